package sql

import (
	"context"
	stdsql "database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// Source is the log whose updates are applied: a topic under the id its cluster gave it, and its partition count.
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

// check refuses what only a defect of the caller can give.
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
		return fmt.Errorf("partition %d is none of %s", partition, s.Shard())
	}
	return nil
}

// Position is up to where a partition of the log has been applied.
type Position struct {
	NextOffset int64  `db:"next_offset"` // of the next record to apply
	NextSeq    uint64 `db:"next_seq"`    // of the next update to apply
	// LeaderEpoch is that of the last applied record, -1 if unknown. Kafka finds a truncated log by it.
	LeaderEpoch int32 `db:"leader_epoch"`
}

// start is the position in a database to which nothing has been applied.
var start = Position{LeaderEpoch: -1}

type positionRow struct {
	TopicID    string `db:"topic_id"`
	Partitions int32  `db:"partitions"`
	Position
}

// Position reads where to go on, under the row's lock: it waits for a transaction on this partition whose outcome is
// still open. In a database to which nothing was ever applied it first inserts the rows of ALL its partitions at offset
// 0.
//
// Fails with ErrPositionMissing, *SourceChangedError and *ShardError, which park the partition.
func (s *Store) Position(ctx context.Context, src Source, partition int32) (position Position, err error) {
	if err := s.check(src, partition); err != nil {
		return Position{}, err
	}
	err = s.lockPosition(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		// First what was there before, then the row. The other way round, a process that starts beside us could insert
		// the rows and apply to them in between, and its fresh traces would look like traces without a position.
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

// lockPosition runs steps that read a row under its lock, and insert it where it is missing. Another process may insert
// it at the same time and be first: then they run again, and find it.
func (s *Store) lockPosition(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) (err error) {
	for range 2 {
		err = s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
			if err := checkShard(ctx, tx, s.Shard()); err != nil {
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

// PeekPosition reads the position without a lock, for the check while nothing arrives. ErrPositionMissing only tells
// that there is no row; Position tells an empty database from a damaged one.
func (s *Store) PeekPosition(ctx context.Context, src Source, partition int32) (Position, error) {
	if err := s.check(src, partition); err != nil {
		return Position{}, err
	}
	position, err := selectPosition(ctx, s.db, src, partition, "")
	if errors.Is(err, stdsql.ErrNoRows) {
		err = ErrPositionMissing
	}
	return position, describe(err, "look at the applied position of %s/%d in MySQL at %s", src.Topic, partition, s)
}

// startRefusal looks for traces of earlier counting, because of which a partition without a row must not start; nil if
// there are none. The rows of all partitions of a shard are made together, before anything is counted: so one trace
// beside a missing row is damage. Any row of the topic is a trace even beside empty counts: likes and unlikes may have
// cancelled out.
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

// selectPosition returns sql.ErrNoRows if there is no row, *SourceChangedError if it is of another log.
func selectPosition(
	ctx context.Context, q sqlx.QueryerContext, src Source, partition int32, lock string,
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

// insertStart makes the rows of all partitions of the shard from one on, or none. The primary key refuses a second
// start.
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

// insertPosition inserts a row into applied_offset, or into the table that is to replace it.
func insertPosition(ctx context.Context, tx *sqlx.Tx, table string, src Source, partition int32, at Position) error {
	_, err := tx.ExecContext(ctx,
		"INSERT INTO "+table+" (topic, partition_id, topic_id, partitions, next_offset, next_seq, leader_epoch)"+
			" VALUES (?, ?, ?, ?, ?, ?, ?)",
		src.Topic, partition, src.topicID(), src.Partitions, at.NextOffset, at.NextSeq, at.LeaderEpoch)
	return err
}

// AddPartitions has the positions of all databases be of a log that partitions were added to: src is the log as it is
// now. Those of the partitions before stay where they are, the new ones start. A database to which nothing was ever
// applied stays as it is, and so does one in which this was done before.
//
// Fails with *SourceChangedError, before anything is changed at that database, where positions are of another log,
// or of one that had more partitions.
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
		_, err = tx.ExecContext(ctx, update, src.Partitions, src.Topic)
		if err != nil {
			return err
		}
		return insertStart(ctx, tx, src, s.Shard(), before)
	})
}
