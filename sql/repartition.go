package sql

import (
	"context"

	"github.com/jmoiron/sqlx"
)

// AddPartitions has the positions of all databases be of a log that partitions were added to: src is the log
// as it is now. Those of the partitions before stay where they are, the new ones start. A database to which nothing was ever
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
		if err := checkShard(ctx, tx, s.options.Shard); err != nil {
			return err
		}
		var rows []struct {
			positionRow
			Partition int32 `db:"partition_id"`
		}
		err := tx.SelectContext(ctx, &rows, "SELECT partition_id, topic_id, partitions, next_offset, next_seq, leader_epoch FROM applied_offset"+
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
		if _, err := tx.ExecContext(ctx, "UPDATE applied_offset SET partitions = ? WHERE topic = ?", src.Partitions, src.Topic); err != nil {
			return err
		}
		return insertStart(ctx, tx, src, s.options.Shard, before)
	})
}
