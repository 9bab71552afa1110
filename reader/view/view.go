// Package view keeps the reader's materialized views, on Pebble: Likes of the state table (each post's counts, who
// likes what), and Rankings of trending.
//
// A view applies committed records, a whole transaction at a time. What it returns reflects an exact position in the
// log; changes are reported to the live streams.
package view

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Options configure the views.
type Options struct {
	StateDir   string // has the views, with a directory per partition; it is a cache
	CacheBytes int64  // memory of the caches, for all partitions
	Reactions  bool   // keep who likes what, not only counts
	Share      Share  // of the reactions

	History time.Duration // how much of the posts' history to keep; 0: none

	Clients kafka.Clients // of the views' workers; nil: those of Kafka's options
	FS      vfs.FS        // has StateDir; nil: this machine's
}

// Share is this reader's part in sharing out the reactions among readers.
type Share struct {
	Replicas       int // that keep each partition; 0: nothing is shared, each reader keeps all
	Address, Zone  string
	SessionTimeout time.Duration
}

const memtableBytes = 8 << 20 // small: a reader has all partitions, and hot posts are overwritten again and again

// newView returns a view of a topic, in a directory below StateDir; it starts nothing.
func (o Options) newView(
	topic, dir string, cacheBytes int64, kafka kafka.Options, copy func(partition int32) stream.Copy, log *slog.Logger,
) (*store.Set, *stream.View) {
	stores := store.NewSetOn(cmp.Or(o.FS, vfs.Default), filepath.Join(o.StateDir, dir), cacheBytes, log)
	stores.FitMemtables(memtableBytes, cacheBytes)
	view := stream.ViewOptions{Kafka: kafka, Topic: topic, Stores: stores, Copy: copy, Clients: o.Clients}
	return stores, stream.NewView(view, log)
}

// NotReadyError says that a partition cannot be read now.
type NotReadyError = stream.ViewNotReadyError

// Reaction is a user's reaction to a post.
type Reaction struct {
	Reaction schema.Reaction
	SinceMs  int64
	Region   schema.Region
	Void     bool // it does not count: its user was voided
}

// Change is a post's counts after a change.
type Change struct {
	PostID uint64
	schema.Counts
}

// Ranking is the newest ranking of a region and window. AsOf is a position in trending.
type Ranking struct {
	*schema.Ranking
	AsOf wire.Position
}

// Totals are sums over all posts. Posts is the number of posts with a current reaction.
type Totals struct{ Posts, Likes, Dislikes int64 }

// epoch identifies the topic that positions are in, by 8 hex digits. They change when it is deleted and recreated.
func epoch(id [16]byte) string { return fmt.Sprintf("%x", id[:4]) }
