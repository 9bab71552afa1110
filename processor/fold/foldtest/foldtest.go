// Package foldtest is for _test files only, of the fold and its callers: a state in maps, and records as polled.
package foldtest

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold"
	"kudos/schema"
)

// The layout of the partitions, and the log-append time of the records.
const Partitions, AppendMs = 4, int64(1_700_000_000_000)

// Layout has no user buckets.
var Layout = schema.Layout{Partitions: Partitions}

// State is a fold.State in maps.
type State struct {
	Pair  map[fold.PairKey]schema.Pair
	Count map[uint64]schema.Counts
}

func (s *State) Pairs(keys []fold.PairKey, found func(int, schema.Pair)) error {
	return lookUp(s.Pair, keys, found)
}

func (s *State) Counts(posts []uint64, found func(int, schema.Counts)) error {
	return lookUp(s.Count, posts, found)
}

func lookUp[K comparable, V any](in map[K]V, keys []K, found func(int, V)) error {
	for i, k := range keys {
		if v, ok := in[k]; ok {
			found(i, v)
		}
	}
	return nil
}

// Record returns a record of likes, without a key if key is empty.
func Record(partition int32, offset int64, key, value string, headers ...kgo.RecordHeader) *kgo.Record {
	rec := &kgo.Record{Topic: schema.TopicLikes, Partition: partition, Offset: offset, Value: []byte(value),
		Headers: headers, Timestamp: time.UnixMilli(AppendMs)}
	if key != "" {
		rec.Key = []byte(key)
	}
	return rec
}

// PostAt returns the n-th post of a partition, from 0.
func PostAt(partition int32, n int) uint64 {
	for post := uint64(1); ; post++ {
		if schema.PartitionFor(post, Partitions) == partition {
			if n--; n < 0 {
				return post
			}
		}
	}
}
