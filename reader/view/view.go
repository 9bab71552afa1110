// Package view keeps local copies, on Pebble, of what the reader answers from: Likes of
// the state table (each post's counts, who likes what), Rankings of trending.
//
// In come committed records, a whole transaction at a time; out go answers, each as of a
// definite place in the log, and news of what has changed, for live streams.
package view

import (
	"fmt"

	"kudos/reader/wire"
	"kudos/schema"
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
type NotReadyError struct {
	Topic     string
	Partition int32 // -1: not even the number of partitions is known
	// Behind is how many records are still to be read; -1: not known.
	Behind int64
	// Reason is why, if it is not just that the copy is being made; Remedy what helps.
	Reason, Remedy string
}

func (e *NotReadyError) Error() string {
	text := e.Topic
	if e.Partition >= 0 {
		text += fmt.Sprintf("/%d", e.Partition)
	}
	switch {
	case e.Reason != "":
		text += ": " + e.Reason
	case e.Behind >= 0:
		text += fmt.Sprintf(": the local copy is %d records behind", e.Behind)
	default:
		text += ": the local copy is being opened"
	}
	if e.Remedy != "" {
		text += " (remedy: " + e.Remedy + ")"
	}
	return text
}
