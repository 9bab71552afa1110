package sql

import (
	"context"
	stdsql "database/sql"
	"errors"

	"github.com/jmoiron/sqlx"
)

// Position is up to where a partition of the log has been applied.
type Position struct {
	NextOffset  int64  // of the next record to apply
	NextSeq     uint64 // of the next update to apply
	LeaderEpoch int32  // of the last applied record, -1 if unknown; Kafka finds a truncated log by it
}

// start is the position in a database to which nothing has been applied.
var start = Position{LeaderEpoch: -1}

// Position reads where to go on, under the row's lock: it waits for a transaction on this partition whose outcome is
// still open. In a database to which nothing was ever applied it first inserts the rows of ALL its partitions at offset 0.
//
// Fails with ErrPositionMissing, *SourceChangedError and *ShardError, which park the partition.
func (s *Store) Position(ctx context.Context, src Source, partition int32) (Position, error) {
	if err := s.check(src, partition); err != nil {
		return Position{}, err
	}
	position, err := s.lockPosition(ctx, src, partition)
	if hasNumber(err, errDuplicateKey) {
		// Another process found the database empty at the same time and was first. Its rows are there now.
		position, err = s.lockPosition(ctx, src, partition)
	}
	if err != nil {
		return Position{}, describe(err, "read the applied position of %s/%d in MySQL at %s", src.Topic, partition, s)
	}
	return position, nil
}

func (s *Store) lockPosition(ctx context.Context, src Source, partition int32) (position Position, _ error) {
	err := s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		if err := checkShard(ctx, tx, s.options.Shard); err != nil {
			return err
		}
		// First what was there before, then the row. The other way round, a process that starts beside us could insert
		// the rows and apply to them in between, and its fresh traces would look like traces without a position.
		before, err := selectTraces(ctx, tx, src)
		if err != nil {
			return err
		}
		position, err = selectPosition(ctx, tx, src, partition, " FOR UPDATE")
		if err == nil {
			return errRollback
		}
		if !errors.Is(err, stdsql.ErrNoRows) {
			return err
		}
		if err := before.allowStart(src); err != nil {
			return err
		}
		position = start
		return insertStart(ctx, tx, src, s.options.Shard, 0)
	})
	return position, err
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
	if err != nil {
		return Position{}, describe(err, "look at the applied position of %s/%d in MySQL at %s", src.Topic, partition, s)
	}
	return position, nil
}

// traces of earlier counting. The rows of all partitions of a shard come into being together, before anything is counted: so one
// trace beside a missing row is damage.
type traces struct {
	counted bool
	rows    []positionRow // any row of the topic: a trace even beside empty counts, likes and unlikes may have cancelled out
}

func selectTraces(ctx context.Context, tx *sqlx.Tx, src Source) (found traces, _ error) {
	err := tx.GetContext(ctx, &found.counted,
		"SELECT EXISTS (SELECT 1 FROM like_count) OR EXISTS (SELECT 1 FROM like_hourly)")
	if err != nil {
		return found, err
	}
	err = tx.SelectContext(ctx, &found.rows,
		"SELECT topic_id, partitions FROM applied_offset WHERE topic = ? ORDER BY partition_id LIMIT 1", src.Topic)
	return found, err
}

func (t traces) allowStart(src Source) error {
	for _, row := range t.rows {
		if err := src.same(row.TopicID, row.Partitions); err != nil {
			return err
		}
	}
	if t.counted || len(t.rows) > 0 {
		return ErrPositionMissing
	}
	return nil
}

type positionRow struct {
	TopicID     string `db:"topic_id"`
	Partitions  int32  `db:"partitions"`
	NextOffset  int64  `db:"next_offset"`
	NextSeq     uint64 `db:"next_seq"`
	LeaderEpoch int32  `db:"leader_epoch"`
}

// selectPosition returns sql.ErrNoRows if there is no row, *SourceChangedError if it is of another log.
func selectPosition(ctx context.Context, q sqlx.QueryerContext, src Source, partition int32, lock string) (Position, error) {
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
	return Position{NextOffset: row.NextOffset, NextSeq: row.NextSeq, LeaderEpoch: row.LeaderEpoch}, nil
}

// insertStart makes the rows of all partitions of the shard from one on, or none. The primary key refuses a second start.
func insertStart(ctx context.Context, tx *sqlx.Tx, src Source, shard Shard, from int32) error {
	for partition := from; partition < src.Partitions; partition++ {
		if !shard.Has(partition) {
			continue
		}
		_, err := tx.ExecContext(ctx,
			"INSERT INTO applied_offset (topic, partition_id, topic_id, partitions, next_offset, next_seq, leader_epoch)"+
				" VALUES (?, ?, ?, ?, ?, ?, ?)",
			src.Topic, partition, src.topicID(), src.Partitions, start.NextOffset, start.NextSeq, start.LeaderEpoch)
		if err != nil {
			return err
		}
	}
	return nil
}
