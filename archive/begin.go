package archive

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

// findBegin returns where a partition of like-updates is whole from: behind the last gap in the
// numbers of the updates, which compaction makes in what is older than 7 days. It is the position
// of the update there, or of the first one that is to come; virgin: there never was one. seen is
// told of each offset that is read.
func findBegin(ctx context.Context, cl kmsg.Requestor, partition int32, seen func(next, end int64)) (begin position, virgin bool, err error) {
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicUpdates, partition)
	if err != nil {
		return begin, false, err
	}
	begin.NextOffset = start
	var u schema.Update
	next, first := uint64(0), true
	err = kafka.ReadLogSmall(ctx, cl, schema.TopicUpdates, partition, start, func(c kafka.LogChunk) (bool, error) {
		for _, rec := range c.Records {
			if err := schema.DecodeUpdate(rec.Value, &u); err != nil {
				return false, notUnderstood(rec, err)
			}
			if first || u.Seq != next {
				begin = position{NextOffset: rec.Offset, NextSeq: u.Seq}
			}
			next, first = u.Seq+1, false
		}
		seen(c.Next, end)
		return c.Next < end, nil
	})
	if err != nil {
		return begin, false, fmt.Errorf("looking for where the updates are whole: %w", err)
	}
	return begin, first && start == 0, nil
}
