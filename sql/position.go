package sql

import (
	"context"
	stdsql "database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// Source identifies the log whose updates are applied: the topic, its Kafka topic id, and its number of partitions.
type Source struct {
	Topic      string
	TopicID    [16]byte
	Partitions int32
}

func (s Source) topicID() string { return hex.EncodeToString(s.TopicID[:]) }

func (s Source) same(topicID string, partitions int32) error {
	if topicID == s.topicID() && partitions == s.Partitions {
		return nil
	}
	stored := Source{Topic: s.Topic, Partitions: partitions}
	if n, err := hex.Decode(stored.TopicID[:], []byte(topicID)); err != nil || n != len(stored.TopicID) {
		return fmt.Errorf("applied_offset holds the topic id %q, which is not 32 hex digits: "+
			"restore the table from a backup", topicID)
	}
	return &SourceChangedError{Stored: stored, Given: s}
}

// check rejects values that only a bug of the caller can produce.
func (s Source) check(partition int32) error {
	switch {
	case s.Topic == "" || len(s.Topic) > 249:
		return fmt.Errorf("topic name %q has %d bytes; Kafka allows 1 to 249", s.Topic, len(s.Topic))
	case s.TopicID == [16]byte{}:
		return fmt.Errorf("topic %s has no topic id", s.Topic)
	case s.Partitions < 1 || partition < 0 || partition >= s.Partitions:
		return fmt.Errorf("topic %s has no partition %d (of %d)", s.Topic, partition, s.Partitions)
	}
	return nil
}

func (s *Store) check(src Source, partition int32) error {
	if err := src.check(partition); err != nil {
		return err
	}
	if !s.Shard().Has(partition) {
		return fmt.Errorf("partition %d is not in %s", partition, s.Shard())
	}
	return nil
}

// Position is the offset up to which a partition of the log has been applied.
type Position struct {
	NextOffset  int64  `db:"next_offset"`  // of the next record to apply
	NextSeq     uint64 `db:"next_seq"`     // of the next update to apply
	LeaderEpoch int32  `db:"leader_epoch"` // of the last applied record (-1: unknown), to detect a truncated log
}

var start = Position{LeaderEpoch: -1} // the position of an empty database

type positionRow struct {
	TopicID    string `db:"topic_id"`
	Partitions int32  `db:"partitions"`
	Position
}

// Position reads where to resume, under the row lock: it waits for a transaction on this partition whose outcome is
// still unknown. In an empty database it first inserts the rows of ALL its partitions, at offset 0.
//
// It fails with ErrPositionMissing, *SourceChangedError or *ShardError, each of which parks the partition.
func (s *Store) Position(ctx context.Context, src Source, partition int32) (position Position, err error) {
	if err := s.check(src, partition); err != nil {
		return Position{}, err
	}
	err = s.lockPosition(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		// Look for earlier data before the row. In the opposite order, a concurrently starting process could insert the
		// rows and apply updates in between, and its fresh data would look like data without a position.
		refusal, err := startRefusal(ctx, tx, src)
		if err != nil {
			return err
		}
		position, err = selectPosition(ctx, tx, src, partition, " FOR UPDATE")
		switch {
		case err == nil:
			return errRollback
		case !errors.Is(err, stdsql.ErrNoRows):
			return err
		case refusal != nil:
			return refusal
		}
		position = start
		return insertStart(ctx, tx, src, s.Shard(), 0)
	})
	return position, describe(err, "read the applied position of %s/%d in MySQL at %s", src.Topic, partition, s)
}

// lockPosition runs steps, which read a row under its lock and insert it if it is missing. If another process inserts
// the row first, lockPosition runs steps again, which then find it.
func (s *Store) lockPosition(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) (err error) {
	for range 2 {
		err = s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
			if err := checkShard(ctx, tx, s.Shard()); err != nil {
				return err
			}
			if err := s.checkWriters(ctx, tx); err != nil {
				return err
			}
			return steps(ctx, tx)
		})
		if !hasNumber(err, errDuplicateKey) {
			break
		}
	}
	return err
}

// PeekPosition reads the position without a lock, for the periodic check while the partition is idle. Its
// ErrPositionMissing only says that there is no row; Position distinguishes an empty database from a damaged one.
func (s *Store) PeekPosition(ctx context.Context, src Source, partition int32) (Position, error) {
	if err := s.check(src, partition); err != nil {
		return Position{}, err
	}
	position, err := selectPosition(ctx, s.db, src, partition, "")
	if errors.Is(err, stdsql.ErrNoRows) {
		err = ErrPositionMissing
	}
	return position, describe(err, "check the applied position of %s/%d in MySQL at %s", src.Topic, partition, s)
}

// startRefusal looks for traces of earlier counting and returns why a partition without a row must not start; nil if it
// may. The rows of all partitions of a shard are inserted together, before anything is counted, so any trace without a
// row means damage. A row of another partition is a trace even if counts are empty: likes and unlikes may cancel out.
func startRefusal(ctx context.Context, tx *sqlx.Tx, src Source) (refusal, err error) {
	var counted bool
	err = tx.GetContext(ctx, &counted, "SELECT EXISTS (SELECT 1 FROM like_count) OR EXISTS (SELECT 1 FROM like_hourly)")
	if err != nil {
		return nil, err
	}
	var rows []positionRow
	err = tx.SelectContext(ctx, &rows,
		"SELECT topic_id, partitions FROM applied_offset WHERE topic = ? ORDER BY partition_id LIMIT 1", src.Topic)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if err := src.same(row.TopicID, row.Partitions); err != nil {
			return err, nil
		}
	}
	if counted || len(rows) > 0 {
		return ErrPositionMissing, nil
	}
	return nil, nil
}

// selectPosition returns sql.ErrNoRows if there is no row, and *SourceChangedError if the row belongs to another log.
func selectPosition(ctx context.Context, q sqlx.QueryerContext, src Source, partition int32, lock string,
) (Position, error) {
	var row positionRow
	err := sqlx.GetContext(ctx, q, &row,
		"SELECT topic_id, partitions, next_offset, next_seq, leader_epoch FROM applied_offset"+
			" WHERE topic = ? AND partition_id = ?"+lock, src.Topic, partition)
	if err != nil {
		return Position{}, err
	}
	if err := src.same(row.TopicID, row.Partitions); err != nil {
		return Position{}, err
	}
	return row.Position, nil
}

// insertStart inserts the rows of all partitions of the shard that are >= from. The primary key rejects a second start.
func insertStart(ctx context.Context, tx *sqlx.Tx, src Source, shard Shard, from int32) error {
	for partition := from; partition < src.Partitions; partition++ {
		if !shard.Has(partition) {
			continue
		}
		if err := insertPosition(ctx, tx, "applied_offset", src, partition, start); err != nil {
			return err
		}
	}
	return nil
}

func insertPosition(ctx context.Context, tx *sqlx.Tx, table string, src Source, partition int32, at Position) error {
	_, err := tx.ExecContext(ctx,
		"INSERT INTO "+table+" (topic, partition_id, topic_id, partitions, next_offset, next_seq, leader_epoch)"+
			" VALUES (?, ?, ?, ?, ?, ?, ?)",
		src.Topic, partition, src.topicID(), src.Partitions, at.NextOffset, at.NextSeq, at.LeaderEpoch)
	return err
}

// AddPartitions updates the positions in all databases after partitions were added to the log; src includes them.
// Existing partitions keep their positions, new ones start at 0. Empty and already updated databases are left alone.
//
// It fails with *SourceChangedError, before changing that database, if a position is of another log or more partitions.
func (s *Shards) AddPartitions(ctx context.Context, src Source) error {
	for _, store := range s.stores {
		if err := store.addPartitions(ctx, src); err != nil {
			return describe(err, "add partitions of %s to the positions in MySQL at %s", src.Topic, store)
		}
	}
	return nil
}

func (s *Store) addPartitions(ctx context.Context, src Source) error {
	if err := src.check(0); err != nil {
		return err
	}
	return s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		if err := checkShard(ctx, tx, s.Shard()); err != nil {
			return err
		}
		var rows []positionRow
		err := tx.SelectContext(ctx, &rows, "SELECT topic_id, partitions FROM applied_offset"+
			" WHERE topic = ? ORDER BY partition_id FOR UPDATE", src.Topic)
		if err != nil {
			return err
		}
		before := src.Partitions
		for _, row := range rows {
			if row.TopicID != src.topicID() || row.Partitions > src.Partitions {
				return src.same(row.TopicID, row.Partitions)
			}
			before = min(before, row.Partitions)
		}
		if before == src.Partitions {
			return errRollback
		}
		update := "UPDATE applied_offset SET partitions = ? WHERE topic = ?"
		if _, err := tx.ExecContext(ctx, update, src.Partitions, src.Topic); err != nil {
			return err
		}
		return insertStart(ctx, tx, src, s.Shard(), before)
	})
}
