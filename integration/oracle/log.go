package oracle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The topics of the contract.
const (
	topicLikes   = "likes"
	topicUpdates = "like-updates"
	topicTable   = "latest-like-action-table"
	topicDLT     = "likes.dlt"
)

// read reads committed records of the given partitions, each from an offset until done returns true for it. Control
// records are included: they occupy offsets. Records that are no longer in the log are an error, never skipped.
func (o *Oracle) read(
	ctx context.Context, topic string, from map[int32]int64, each func(*kgo.Record) (done bool),
) error {
	if len(from) == 0 {
		return nil
	}
	offsets := map[int32]kgo.Offset{}
	for p, at := range from {
		offsets[p] = kgo.NewOffset().At(at)
		if at == 0 { // a compacted topic need not start at 0
			offsets[p] = kgo.NewOffset().AtStart()
		}
	}
	cl, err := o.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer cl.Close()
	left := maps.Clone(from)
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("reading %s; unfinished partitions: %v: %w", topic, slices.Sorted(maps.Keys(left)), err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if _, open := left[rec.Partition]; open && each(rec) {
				delete(left, rec.Partition)
			}
		})
	}
	return nil
}

// readTo reads each partition from next up to an end (exclusive, after a record). It advances next: retries continue.
func (o *Oracle) readTo(ctx context.Context, topic string, next, ends map[int32]int64, each func(*kgo.Record)) error {
	from := map[int32]int64{}
	for p, end := range ends {
		if next[p] < end {
			from[p] = next[p]
		}
	}
	return o.read(ctx, topic, from, func(rec *kgo.Record) bool {
		if rec.Offset >= ends[rec.Partition] {
			return true
		}
		if rec.Offset >= next[rec.Partition] {
			next[rec.Partition] = rec.Offset + 1
			if !rec.Attrs.IsControl() {
				each(rec)
			}
		}
		return rec.Offset+1 >= ends[rec.Partition]
	})
}

// ReadAll reads a topic from its start to its current end, and returns the end. It calls each with every data record.
func (o *Oracle) ReadAll(ctx context.Context, topic string, each func(*kgo.Record)) (ends map[int32]int64, err error) {
	if ends, err = o.ends(ctx, topic); err != nil {
		return nil, err
	}
	return ends, o.readTo(ctx, topic, map[int32]int64{}, ends, each)
}

func (o *Oracle) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	return bounds(ctx, topic, o.admin.ListCommittedOffsets)
}

func bounds(
	ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error),
) (map[int32]int64, error) {
	listed, err := list(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("listing the offsets of %s: %w", topic, err)
	}
	offsets := map[int32]int64{}
	var errs []error
	listed.Each(func(l kadm.ListedOffset) {
		if offsets[l.Partition] = l.Offset; l.Err != nil {
			errs = append(errs, fmt.Errorf("listing the offsets of %s/%d: %w", topic, l.Partition, l.Err))
		}
	})
	return offsets, errors.Join(errs...)
}

// LastRecords returns the last committed data record of each partition that has one, searching from the end for speed.
func (o *Oracle) LastRecords(ctx context.Context, topic string) (map[int32]*kgo.Record, error) {
	ends, err := o.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	starts, err := bounds(ctx, topic, o.admin.ListStartOffsets)
	if err != nil {
		return nil, err
	}
	last := map[int32]*kgo.Record{}
	for window := int64(8); ; window *= 8 {
		from, whole := map[int32]int64{}, true
		for p, end := range ends {
			if last[p] == nil && starts[p] < end {
				whole = whole && window >= end-starts[p]
				from[p] = max(starts[p], end-window)
			}
		}
		err := o.read(ctx, topic, from, func(rec *kgo.Record) bool {
			if !rec.Attrs.IsControl() && rec.Offset < ends[rec.Partition] {
				last[rec.Partition] = rec
			}
			return rec.Offset+1 >= ends[rec.Partition]
		})
		if err != nil || whole {
			return last, err
		}
	}
}
