// Package table reads what the fold has committed of a partition: the reactions and counts of its state table,
// its progress record, its last update and its committed offset. The fold and the tools of operators use it; it
// also says whether those agree, and what an operator does where they don't.
package table

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

// progressWindow is how many offsets LastProgress looks at first; progressGrowth, how many times as
// many each time that nothing was there.
const progressWindow, progressGrowth = 1 << 12, 16

// LastProgress reads the last progress record of a partition of the state table; nil if it has none.
// It looks backwards from the end: each transaction ends with one.
func LastProgress(ctx context.Context, cl kmsg.Requestor, partition int32) (last *schema.Progress, err error) {
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicState, partition)
	if err != nil {
		return nil, err
	}
	for window := int64(progressWindow); last == nil; window *= progressGrowth {
		from := max(start, end-window)
		err = kafka.ReadLog(ctx, cl, schema.TopicState, partition, from, func(c kafka.LogChunk) (bool, error) {
			for _, rec := range c.Records {
				if string(rec.Key) != schema.StateProgressKey {
					continue
				}
				p := schema.Progress{}
				if err := schema.DecodeProgress(rec.Value, &p); err != nil {
					return false, fmt.Errorf("%s/%d offset %d: %w", schema.TopicState, partition, rec.Offset, err)
				}
				last = &p
			}
			return c.Next < c.End, nil
		})
		if err != nil || from == start {
			break
		}
	}
	return last, err
}

// LastUpdate reads the last record of a partition of like-updates; nil if it has none.
func LastUpdate(ctx context.Context, cl kmsg.Requestor, partition int32) (last *schema.Update, err error) {
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicUpdates, partition)
	if err != nil {
		return nil, err
	}
	for window := int64(1 << 10); last == nil; window *= progressGrowth {
		from := max(start, end-window)
		err = kafka.ReadLog(ctx, cl, schema.TopicUpdates, partition, from, func(c kafka.LogChunk) (bool, error) {
			if n := len(c.Records); n > 0 {
				u := schema.Update{}
				if err := schema.DecodeUpdate(c.Records[n-1].Value, &u); err != nil {
					return false, fmt.Errorf("%s/%d offset %d: %w", schema.TopicUpdates, partition, c.Records[n-1].Offset, err)
				}
				last = &u
			}
			return c.Next < c.End, nil
		})
		if err != nil || from == start {
			break
		}
	}
	return last, err
}
