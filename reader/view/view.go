// Package view keeps local copies, on Pebble, of what the reader answers from: Likes of the state table (each post's
// counts, who likes what), Rankings of trending.
//
// A copy applies committed records, a whole transaction at a time. What it returns is as of a definite position in the
// log; what has changed is reported to the live streams.
package view

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Options of the local copies.
type Options struct {
	StateDir   string // has them, a directory per partition; it is a cache
	CacheBytes int64  // memory of the block cache, for all partitions
	Reactions  bool   // keep who likes what, and not only counts
}

// memtableBytes is what a partition may hold in memory before it goes to disk. Small, for a reader has all partitions,
// and hot posts are written again and again.
const memtableBytes = 8 << 20

// newView makes a copy of a topic in a directory below StateDir; it starts nothing.
func (o Options) newView(
	topic, dir string, cacheBytes int64, kafka kafka.Options, copy func(partition int32) stream.Copy, log *slog.Logger,
) (*store.Set, *stream.View) {
	stores := store.NewSet(filepath.Join(o.StateDir, dir), cacheBytes, log)
	stores.FitMemtables(memtableBytes, cacheBytes)
	return stores, stream.NewView(stream.ViewOptions{Kafka: kafka, Topic: topic, Stores: stores, Copy: copy}, log)
}

// NotReadyError says that a partition cannot be answered from now.
type NotReadyError = stream.ViewNotReadyError

// Reaction is what a user has for a post.
type Reaction struct {
	Reaction schema.Reaction
	SinceMs  int64
	Region   schema.Region
}

// Change is a post's counts after they have changed.
type Change struct {
	PostID uint64
	schema.Counts
}

// Ranking is the newest ranking of a region and window. AsOf is in the topic trending.
type Ranking struct {
	*schema.Ranking
	AsOf wire.Position
}

// Totals are sums over all posts. Posts are those that have a current reaction.
type Totals struct{ Posts, Likes, Dislikes int64 }

// epoch names the topic that positions are of: 8 hex digits, others when it was deleted and recreated.
func epoch(id [16]byte) string { return fmt.Sprintf("%x", id[:4]) }
