package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// RankingPosition reads up to where a partition of trending has been brought to MySQL (NextSeq is not used), under the
// row's lock: it waits for a transaction on this partition whose outcome is still open.
//
// Unlike counts, rankings are absolute: whoever reads the log once more replaces them by what they are, and nothing can
// be damaged. So a row that is missing, or of another log, is no reason to stop: the partition starts anew at offset 0.
// What another log has left in the tables goes first, for this one may not have all of its keys.
func (s *Store) RankingPosition(ctx context.Context, src Source, partition int32) (Position, error) {
	if err := s.check(src, partition); err != nil {
		return Position{}, err
	}
	position, err := s.lockRankingPosition(ctx, src, partition)
	if hasNumber(err, errDuplicateKey) {
		// Another process made the row at the same time and was first.
		position, err = s.lockRankingPosition(ctx, src, partition)
	}
	if err != nil {
		return Position{}, describe(err, "read the position of %s/%d in trending_position in MySQL at %s", src.Topic, partition, s)
	}
	return position, nil
}

func (s *Store) lockRankingPosition(ctx context.Context, src Source, partition int32) (position Position, _ error) {
	err := s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		if err := checkShard(ctx, tx, s.options.Shard); err != nil {
			return err
		}
		var row positionRow
		err := tx.GetContext(ctx, &row, "SELECT topic_id, partitions, next_offset, leader_epoch FROM trending_position"+
			" WHERE topic = ? AND partition_id = ? FOR UPDATE", src.Topic, partition)
		switch {
		case err == nil && row.TopicID == src.topicID() && row.Partitions == src.Partitions:
			position = Position{NextOffset: row.NextOffset, LeaderEpoch: row.LeaderEpoch}
			return errRollback
		case err == nil:
			s.log.Warn("the rankings in MySQL come from another log: deleted, to be made anew", "topic", src.Topic,
				"topic_id", row.TopicID, "partitions", row.Partitions)
			if err := deleteRankings(ctx, tx, src); err != nil {
				return err
			}
		case !errors.Is(err, stdsql.ErrNoRows):
			return err
		}
		position = start
		_, err = tx.ExecContext(ctx, "INSERT INTO trending_position (topic, partition_id, topic_id, partitions, next_offset, leader_epoch)"+
			" VALUES (?, ?, ?, ?, ?, ?)", src.Topic, partition, src.topicID(), src.Partitions, start.NextOffset, start.LeaderEpoch)
		return err
	})
	return position, err
}

// deleteRankings happens once for all partitions: the positions of the others go too, so that they find no other log.
func deleteRankings(ctx context.Context, tx *sqlx.Tx, src Source) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM trending_position WHERE topic = ?", src.Topic); err != nil {
		return err
	}
	for _, table := range rankingTables {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table.name); err != nil {
			return err
		}
	}
	return nil
}

// moveRankingPosition is the compare-and-swap that keeps whoever stands elsewhere from replacing newer rankings by older
// ones. It comes first: the row lock it takes keeps everybody else off this partition, and so off its keys, until the end.
func moveRankingPosition(ctx context.Context, tx *sqlx.Tx, src Source, partition int32, from, to Position) error {
	result, err := tx.ExecContext(ctx, "UPDATE trending_position SET next_offset = ?, leader_epoch = ?, updated_at = UTC_TIMESTAMP(3)"+
		" WHERE topic = ? AND partition_id = ? AND topic_id = ? AND partitions = ? AND next_offset = ?",
		to.NextOffset, to.LeaderEpoch, src.Topic, partition, src.topicID(), src.Partitions, from.NextOffset)
	if err != nil {
		return err
	}
	return requireMoved(result)
}

// checkRankingRange: back is allowed, to read the log once more. Not moving is not: the compare-and-swap would succeed
// again and again.
func checkRankingRange(from, to Position) error {
	if from.NextOffset < 0 || to.NextOffset < 0 || from.NextOffset == to.NextOffset {
		return fmt.Errorf("range from offset %d to offset %d does not move the position", from.NextOffset, to.NextOffset)
	}
	return nil
}
