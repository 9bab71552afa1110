// Package table reads what the fold has committed for a partition: its state table, progress, last update and offset.
// It checks that those agree, and says what an operator does if not. The fold and the operators' tools use it.
package table

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

// LastProgress returns the last progress record of a state table partition, or nil. Each transaction ends with one.
func LastProgress(ctx context.Context, cl kmsg.Requestor, partition int32) (*schema.Progress, error) {
	isProgress := func(rec *kgo.Record) bool { return string(rec.Key) == schema.StateProgressKey }
	return readLast(ctx, cl, schema.TopicState, partition, 1<<12, isProgress, schema.DecodeProgress)
}

// HasAllCounts reports whether a partition of like-counts has all counts as of the state table's progress: only then do
// both end with the same progress record.
func HasAllCounts(ctx context.Context, cl kmsg.Requestor, partition int32, of *schema.Progress) (bool, error) {
	isProgress := func(rec *kgo.Record) bool { return string(rec.Key) == schema.StateProgressKey }
	decode := func(value []byte, into *schema.Progress) error {
		if value == nil { // counts are missing
			return nil
		}
		return schema.DecodeProgress(value, into)
	}
	last, err := readLast(ctx, cl, schema.TopicCounts, partition, 1<<10, isProgress, decode)
	return last != nil && *last == *of, err
}

// LastUpdate returns the last record of a partition of like-updates; nil if it has none.
func LastUpdate(ctx context.Context, cl kmsg.Requestor, partition int32) (*schema.Update, error) {
	isUpdate := func(*kgo.Record) bool { return true }
	return readLast(ctx, cl, schema.TopicUpdates, partition, 1<<10, isUpdate, schema.DecodeUpdate)
}

// readLast decodes the last wanted record of a partition. It searches from the end, first in the last window offsets,
// then in 16 times as many.
func readLast[T any](ctx context.Context, cl kmsg.Requestor, topic string, partition int32, window int64,
	wanted func(*kgo.Record) bool, decode func(value []byte, into *T) error,
) (last *T, err error) {
	start, end, err := kafka.Bounds(ctx, cl, topic, partition)
	if err != nil {
		return nil, err
	}
	for ; last == nil; window *= 16 {
		from := max(start, end-window)
		err = kafka.ReadLog(ctx, cl, topic, partition, from, func(c kafka.LogChunk) (bool, error) {
			for _, rec := range slices.Backward(c.Records) {
				if !wanted(rec) {
					continue
				}
				last = new(T)
				if err := decode(rec.Value, last); err != nil {
					return false, fmt.Errorf("%s/%d offset %d: %w", topic, partition, rec.Offset, err)
				}
				break
			}
			return c.Next < c.End, nil
		})
		if err != nil || from == start {
			break
		}
	}
	return last, err
}

// IsEmpty reports whether a partition has no committed record; offsets don't tell, due to aborted and control records.
func IsEmpty(ctx context.Context, cl kmsg.Requestor, topic string, partition int32) (empty bool, err error) {
	start, end, err := kafka.Bounds(ctx, cl, topic, partition)
	if err != nil || start == end { // read nothing: whoever creates topics may not have the right to
		return err == nil, err
	}
	empty = true
	err = kafka.ReadLog(ctx, cl, topic, partition, start, func(c kafka.LogChunk) (bool, error) {
		empty = len(c.Records) == 0
		return empty && c.Next < c.End, nil
	})
	if err != nil {
		return false, fmt.Errorf("searching for records in %s/%d: %w", topic, partition, err)
	}
	return empty, nil
}
