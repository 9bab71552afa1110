package wire

import (
	"time"

	"kudos/schema"
)

// MaxPosts is how many posts an answer tells of at most.
const MaxPosts = 1000

// Counts is the counts of one of several posts.
type Counts struct {
	PostID   uint64 `json:"post_id,string"`
	Likes    int64  `json:"likes"`
	Dislikes int64  `json:"dislikes"`
}

// ManyLikes is the counts of several posts, in the order asked for.
type ManyLikes struct {
	Posts []Counts `json:"posts"`
	// AsOf has a place for each partition that the posts are in, in order.
	AsOf []Position `json:"as_of"`
}

// Likers is a page of those who like a post.
type Likers struct {
	PostID uint64  `json:"post_id,string"`
	Likers []Liker `json:"likers"`
	// NextPageToken is not there on the last page.
	NextPageToken string   `json:"next_page_token,omitempty"`
	AsOf          Position `json:"as_of"`
}

// Liker is a user who likes a post.
type Liker struct {
	UserID uint64 `json:"user_id,string"`
	Since  Millis `json:"since"`
	Region string `json:"region"`
}

// UserReaction is what a user has for a post. Since and Region are not there with NONE.
type UserReaction struct {
	PostID   uint64   `json:"post_id,string"`
	UserID   uint64   `json:"user_id,string"`
	Reaction string   `json:"reaction"`
	Since    *Millis  `json:"since,omitempty"`
	Region   string   `json:"region,omitempty"`
	AsOf     Position `json:"as_of"`
}

// ReactionName is how a reaction is written.
func ReactionName(r schema.Reaction) string {
	switch r {
	case schema.Liked:
		return "LIKE"
	case schema.Disliked:
		return "DISLIKE"
	}
	return "NONE"
}

// Rankings is which rankings there are.
type Rankings struct {
	Rankings []RankingName `json:"rankings"`
}

// RankingName is a region and window, with what tells how its ranking stands.
type RankingName struct {
	Region string        `json:"region"`
	Window string        `json:"window"`
	To     schema.Minute `json:"to"`
	Posts  int           `json:"posts"`
}

// LikesOverTime is likes by the hour or day of their event time.
type LikesOverTime struct {
	Region   string      `json:"region"`
	Interval string      `json:"interval"`
	From     time.Time   `json:"from"`
	To       time.Time   `json:"to"`
	Points   []TimeLikes `json:"points"`
}

// TimeLikes is the likes of the interval that begins at From.
type TimeLikes struct {
	From     time.Time `json:"from"`
	Likes    int64     `json:"likes"`
	Dislikes int64     `json:"dislikes"`
}

// Stats is totals over all posts, and how far behind the reader is.
type Stats struct {
	Posts    int64 `json:"posts"`
	Likes    int64 `json:"likes"`
	Dislikes int64 `json:"dislikes"`
	Events   int64 `json:"events"`
	// EventsBehind and LagMs are -1 while they are not known.
	EventsBehind int64            `json:"events_behind"`
	LagMs        int64            `json:"lag_ms"`
	Partitions   []PartitionStats `json:"partitions"`
}

// PartitionStats is how far a partition is; the offset is 0 while it is not ready.
type PartitionStats struct {
	AsOf  Position `json:"as_of"`
	Ready bool     `json:"ready"`
}

// Millis is a time in Unix milliseconds; in JSON as RFC 3339, UTC.
type Millis int64

// MarshalJSON has no error for a far year, as time's has: one odd event time must not
// take the whole answer with it.
func (m Millis) MarshalJSON() ([]byte, error) {
	return time.UnixMilli(int64(m)).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}
