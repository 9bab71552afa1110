package rankings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The topics, as the contract names them.
const (
	topicUpdates    = "like-updates"
	topicExclusions = "trending-exclusions"
	topicTrending   = "trending"
)

// Read reads what is committed in the topics. Rankings come first, so that all which they name is there when it is read; the
// system may be running.
func Read(ctx context.Context, brokers []string) (*Log, error) {
	log := &Log{}
	_, err := readTopic(ctx, brokers, topicTrending, func(rec *kgo.Record) { log.Rankings = append(log.Rankings, of(rec)) })
	if err != nil {
		return nil, err
	}
	_, err = readTopic(ctx, brokers, topicExclusions, func(rec *kgo.Record) { log.Exclusions = append(log.Exclusions, of(rec)) })
	if err != nil {
		return nil, err
	}
	tapes := map[int32]*Tape{}
	ends, err := readTopic(ctx, brokers, topicUpdates, func(rec *kgo.Record) {
		if tapes[rec.Partition] == nil {
			tapes[rec.Partition] = &Tape{}
		}
		tapes[rec.Partition].Add(of(rec))
	})
	if err != nil {
		return nil, err
	}
	for i := range int32(len(ends)) {
		if tapes[i] == nil {
			tapes[i] = &Tape{}
		}
		tapes[i].EndAt(ends[i])
		log.Updates = append(log.Updates, tapes[i])
	}
	return log, nil
}

func of(rec *kgo.Record) Record {
	return Record{Offset: rec.Offset, TimeMs: rec.Timestamp.UnixMilli(), Key: rec.Key, Value: rec.Value}
}

// readTopic reads all that is there, and returns the last stable offset of each partition. Control records are not handed
// out, but read: they may be the last.
func readTopic(ctx context.Context, brokers []string, topic string, each func(*kgo.Record)) (map[int32]int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", topic, err)
	}
	defer cl.Close()
	listed, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("asking for the end of %s: %w", topic, err)
	}
	ends, left, from := map[int32]int64{}, map[int32]bool{}, map[int32]kgo.Offset{}
	var errs []error
	listed.Each(func(l kadm.ListedOffset) {
		if l.Err != nil {
			errs = append(errs, fmt.Errorf("asking for the end of %s/%d: %w", topic, l.Partition, l.Err))
		}
		if ends[l.Partition] = l.Offset; l.Offset > 0 {
			left[l.Partition] = true
			from[l.Partition] = kgo.NewOffset().AtStart()
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("reading %s; still open: partitions %v: %w", topic, slices.Sorted(maps.Keys(left)), err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if rec.Offset < ends[rec.Partition] && !rec.Attrs.IsControl() {
				each(rec)
			}
			if rec.Offset+1 >= ends[rec.Partition] {
				delete(left, rec.Partition)
			}
		})
	}
	return ends, nil
}
