package sql

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"kudos/schema"
)

// Ranking is all that MySQL has of one region and window: a row for each place.
type Ranking struct {
	Region string // ISO 3166-1 or -2, upper case, or global
	// Window is that of trending; schema.LeaderboardDay and LeaderboardAll are the periods of leaderboard.
	Window string
	AsOf   time.Time    // watermark; zero: none
	Posts  []RankedPost // best first; none: the ranking has no rows
}

// RankedPost is one place of a ranking.
type RankedPost struct {
	PostID uint64
	Score  schema.Score // not in leaderboard, which is by likes
	Likes  int64
}

// RankingPosition reads up to where a partition of trending has been brought to MySQL (NextSeq is not used), under the
// row's lock: it waits for a transaction on this partition whose outcome is still open.
//
// Unlike counts, rankings are absolute: whoever reads the log once more replaces them by what they are, and nothing can
// be damaged. So a row that is missing, or of another log, is no reason to stop: the partition restarts at offset 0.
// What another log has left in the tables goes first, for this one may not have all of its keys.
func (s *Store) RankingPosition(ctx context.Context, src Source, partition int32) (position Position, err error) {
	if err := s.check(src, partition); err != nil {
		return Position{}, err
	}
	err = s.lockPosition(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		var row positionRow
		err := tx.GetContext(ctx, &row, "SELECT topic_id, partitions, next_offset, leader_epoch FROM trending_position"+
			" WHERE topic = ? AND partition_id = ? FOR UPDATE", src.Topic, partition)
		switch {
		case err == nil && row.TopicID == src.topicID() && row.Partitions == src.Partitions:
			position = row.Position
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
		_, err = tx.ExecContext(ctx,
			"INSERT INTO trending_position (topic, partition_id, topic_id, partitions, next_offset, leader_epoch)"+
				" VALUES (?, ?, ?, ?, ?, ?)",
			src.Topic, partition, src.topicID(), src.Partitions, start.NextOffset, start.LeaderEpoch)
		return err
	})
	return position, describe(err,
		"read the position of %s/%d in trending_position in MySQL at %s", src.Topic, partition, s)
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

// ReplaceRankings replaces rankings by those of the range from → to of a partition, each whole: one transaction moves
// the stored position and makes the rows of each ranking what it says. It sorts rankings in place; each key (region and
// window) occurs once, as the newest of the range has it. It may move the position back, to have the log read once
// more.
//
// Fails and retries as Apply does; RankingPosition then says where to go on.
func (s *Store) ReplaceRankings(
	ctx context.Context, src Source, partition int32, from, to Position, rankings []Ranking,
) (err error) {
	defer func() {
		err = describe(err, "replace rankings by %s/%d [%d, %d) in MySQL at %s",
			src.Topic, partition, from.NextOffset, to.NextOffset, s)
	}()
	if err := s.check(src, partition); err != nil {
		return err
	}
	// Without a move the compare-and-swap would succeed again and again.
	if from.NextOffset < 0 || to.NextOffset < 0 || from.NextOffset == to.NextOffset {
		return fmt.Errorf("range from offset %d to offset %d does not move the position",
			from.NextOffset, to.NextOffset)
	}
	slices.SortFunc(rankings, func(a, b Ranking) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Window, b.Window))
	})
	if err := checkRankings(rankings); err != nil {
		return err
	}
	return s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		// It also keeps a process that was away from replacing newer rankings by older ones.
		err := compareAndSwap(ctx, tx,
			"UPDATE trending_position SET next_offset = ?, leader_epoch = ?, updated_at = UTC_TIMESTAMP(3)"+
				" WHERE topic = ? AND partition_id = ? AND topic_id = ? AND partitions = ? AND next_offset = ?",
			to.NextOffset, to.LeaderEpoch, src.Topic, partition, src.topicID(), src.Partitions, from.NextOffset)
		if err != nil {
			return err
		}
		for _, table := range rankingTables {
			if err := table.replace(ctx, tx, s.packet.statementBytes(), rankings); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkRankings refuses what the tables cannot hold, before it could become SQL. rankings are sorted.
func checkRankings(rankings []Ranking) error {
	for i := range rankings {
		r := &rankings[i]
		if err := r.Validate(); err != nil {
			return err
		}
		if i > 0 && r.Region == rankings[i-1].Region && r.Window == rankings[i-1].Window {
			return fmt.Errorf("ranking %s is there twice", schema.RankingKey(r.Region, r.Window))
		}
	}
	return nil
}

// Validate tells what the tables cannot hold.
func (r *Ranking) Validate() error {
	key, year := schema.RankingKey(r.Region, r.Window), r.AsOf.UTC().Year()
	switch {
	case r.Region != schema.GlobalName && !isRegion(r.Region):
		return fmt.Errorf("region %q is neither %s nor of the form AA or AA-AAA", r.Region, schema.GlobalName)
	case !isName(r.Window, 8, "abcdefghijklmnopqrstuvwxyz0123456789"):
		return fmt.Errorf("window %q has not 1 to 8 small letters and digits", r.Window)
	case !r.AsOf.IsZero() && (year < 1000 || year > 9999):
		return fmt.Errorf("ranking %s is as of the year %d, which is outside 1000 to 9999", key, year)
	}
	for _, post := range r.Posts {
		if post.Score < 0 {
			return fmt.Errorf("ranking %s has a score below zero for post %d", key, post.PostID)
		}
	}
	return nil
}
