// Package view keeps local copies, on Pebble, of what the reader answers from: Likes of
// the state table (each post's counts, who likes what), Rankings of trending.
//
// In come committed records, a whole transaction at a time; out go answers, each as of a
// definite place in the log, and news of what has changed, for live streams.
package view

import (
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
)

// Liker is a user who likes a post.
type Liker struct {
	UserID  uint64
	SinceMs int64 // event time, Unix milliseconds
	Region  schema.Region
}

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

// Totals are sums over all posts.
type Totals struct {
	// Posts that have a reaction that stands.
	Posts           int64
	Likes, Dislikes int64
}

// NotReadyError says that a partition cannot be answered from now.
type NotReadyError = stream.ViewNotReadyError
