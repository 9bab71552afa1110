// Package wire has the bodies of the responses of the reader's API and live streams. openapi.yaml describes them.
package wire

import (
	"strconv"
	"strings"
	"time"

	"kudos/httpserver/admin"
	"kudos/schema"
)

// MaxPosts is the maximum number of posts in a response.
const MaxPosts = 1000

// Position is a position in one partition of a topic. In as_of, the offset is that of the next record: the response
// covers all records before it, and none from it on.
type Position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// PostLikes is the counts of a post, as of a position in likes.
type PostLikes struct {
	PostID uint64 `json:"post_id,string"`
	schema.Counts
	AsOf Position `json:"as_of"`
}

// Likers is a page of the users who like a post.
type Likers struct {
	PostID        uint64   `json:"post_id,string"`
	Likers        []Liker  `json:"likers"`
	NextPageToken string   `json:"next_page_token,omitempty"` // absent on the last page
	AsOf          Position `json:"as_of"`
}

// Liker is a user who likes a post.
type Liker struct {
	UserID uint64 `json:"user_id,string"`
	Since  Millis `json:"since"`
	Region string `json:"region"`
}

// UserReaction is a user's reaction to a post. Since and Region are absent if it is NONE.
type UserReaction struct {
	PostID   uint64   `json:"post_id,string"`
	UserID   uint64   `json:"user_id,string"`
	Reaction string   `json:"reaction"`
	Since    *Millis  `json:"since,omitempty"`
	Region   string   `json:"region,omitempty"`
	AsOf     Position `json:"as_of"`
}

// UserReactions is a user's reactions to posts, and the position of each partition that has some.
type UserReactions struct {
	UserID    uint64         `json:"user_id,string"`
	Reactions []PostReaction `json:"reactions"`
	AsOf      []Position     `json:"as_of"`
}

// PostReaction is the reaction to a post. Since and Region are absent if it is NONE.
type PostReaction struct {
	PostID   uint64  `json:"post_id,string"`
	Reaction string  `json:"reaction"`
	Since    *Millis `json:"since,omitempty"`
	Region   string  `json:"region,omitempty"`
}

// ReactionName returns a reaction's name in responses.
func ReactionName(r schema.Reaction) string {
	switch r {
	case schema.Liked:
		return "LIKE"
	case schema.Disliked:
		return "DISLIKE"
	}
	return "NONE"
}

// Rankings lists the rankings that exist.
type Rankings struct {
	Rankings []RankingName `json:"rankings"`
}

// RankingName is a region and window, with the end and the size of their ranking.
type RankingName struct {
	Region string        `json:"region"`
	Window string        `json:"window"`
	To     schema.Minute `json:"to"`
	Posts  int           `json:"posts"`
}

// Ranking is a ranking without the parts that only a recomputation needs.
type Ranking struct {
	Region    string              `json:"region"`
	Window    string              `json:"window"`
	From      schema.Minute       `json:"from"`
	To        schema.Minute       `json:"to"`
	Watermark schema.Minute       `json:"watermark"`
	Posts     []schema.RankedPost `json:"posts"`
	Score     string              `json:"score"`
	HalfLife  string              `json:"half_life,omitempty"`
	TopN      int                 `json:"top_n"`
	MinLikes  int64               `json:"min_likes"`
	Positions []Position          `json:"positions"` // in like-updates
}

// NewRanking converts a ranking.
func NewRanking(r *schema.Ranking) *Ranking {
	w := &Ranking{Region: r.Region, Window: r.Window, From: r.From, To: r.To, Watermark: r.Watermark, Posts: r.Posts,
		Score: r.Score, HalfLife: r.HalfLife, TopN: r.TopN, MinLikes: r.MinLikes,
		Positions: make([]Position, len(r.Positions))}
	if w.Posts == nil {
		w.Posts = []schema.RankedPost{} // [], not null
	}
	for i, p := range r.Positions {
		w.Positions[i] = Position{p.Partition, p.Offset}
	}
	return w
}

// LikesOverTime is likes by the hour or day of their event time.
type LikesOverTime struct {
	Region   string      `json:"region"`
	Interval string      `json:"interval"`
	From     time.Time   `json:"from"`
	To       time.Time   `json:"to"`
	Points   []TimeLikes `json:"points"`
}

// PostHistory is how a post's likes have changed over time. Before CompleteFrom, some of it may be missing.
type PostHistory struct {
	PostID       uint64    `json:"post_id,string"`
	CompleteFrom time.Time `json:"complete_from"`
	LikesOverTime
}

// TimeLikes is the likes of the interval that begins at From.
type TimeLikes struct {
	From     time.Time `json:"from"`
	Likes    int64     `json:"likes"`
	Dislikes int64     `json:"dislikes"`
}

// Stats has totals over all posts, and the reader's lag.
type Stats struct {
	Posts    int64 `json:"posts"`
	Likes    int64 `json:"likes"`
	Dislikes int64 `json:"dislikes"`
	Events   int64 `json:"events"`
	// EventsBehind and LagMs are -1 while unknown.
	EventsBehind int64             `json:"events_behind"`
	LagMs        int64             `json:"lag_ms"`
	Partitions   []PartitionStats  `json:"partitions"`   // of counts
	Reactions    []PartitionStats  `json:"reactions"`    // of the partitions that this reader keeps
	Transactions []OpenTransaction `json:"transactions"` // that hide events of likes from all readers
}

// PartitionStats is the position of a partition. The offset is 0 while the partition is not ready.
type PartitionStats struct {
	AsOf  Position `json:"as_of"`
	Ready bool     `json:"ready"`
}

// Health is what an operator asks first.
type Health struct {
	At           time.Time           `json:"at"`
	Lanes        []LaneStats         `json:"lanes"`
	Processes    []Process           `json:"processes"` // one for each of reader.admin_urls
	Transactions []OpenTransaction   `json:"transactions"`
	Audit        *schema.AuditResult `json:"audit,omitempty"`  // the last one; nil: none is known
	Errors       []string            `json:"errors,omitempty"` // what is unknown, and why
}

// LaneStats is a partition of a lane.
type LaneStats struct {
	Lane string `json:"lane"`
	PartitionStats
	Lag int64 `json:"lag_records"` // of likes; -1: unknown
}

// Process is what an admin server answered, or why it did not.
type Process struct {
	URL   string `json:"url"`
	Error string `json:"error,omitempty"`
	*admin.Readiness
}

// OpenTransaction is in a partition whose records from Stable on consumers do not get yet.
type OpenTransaction struct {
	Position
	Topic  string `json:"topic"`
	End    int64  `json:"high_watermark"`
	OpenMs int64  `json:"open_ms,omitempty"` // how long the last stable offset has not moved; 0: unknown
}

// The most requested bodies are written without reflection; a test compares them with encoding/json. as_of is the last
// member of each, so that the entity tag can leave it out.

// AppendJSON appends p as encoding/json writes it.
func (p *PostLikes) AppendJSON(b []byte) []byte {
	b = appendCounts(b, p.PostID, p.Counts)
	b = append(b, `,"as_of":`...)
	b = p.AsOf.appendJSON(b)
	return append(b, '}')
}

// AppendManyLikes appends the counts of posts, in their order, {"posts":[…],"as_of":[…]}, and a viewer's reactions,
// which have a position of their own, unless nil.
func AppendManyLikes(b []byte, posts []uint64, counts []schema.Counts, asOf []Position, viewers []schema.Reaction,
	viewersAsOf []Position,
) []byte {
	b = append(b, `{"posts":[`...)
	for i, post := range posts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCounts(b, post, counts[i])
		if viewers != nil {
			b = append(append(append(b, `,"reaction":"`...), ReactionName(viewers[i])...), '"')
		}
		b = append(b, '}')
	}
	b = appendPositions(append(b, `],"as_of":`...), asOf)
	if viewers != nil {
		b = appendPositions(append(b, `,"reactions_as_of":`...), viewersAsOf)
	}
	return append(b, '}')
}

func appendPositions(b []byte, positions []Position) []byte {
	b = append(b, '[')
	for i, p := range positions {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.appendJSON(b)
	}
	return append(b, ']')
}

// appendCounts leaves the object open.
func appendCounts(b []byte, post uint64, c schema.Counts) []byte {
	b = append(b, `{"post_id":"`...)
	b = strconv.AppendUint(b, post, 10)
	b = append(b, `","likes":`...)
	b = strconv.AppendInt(b, c.Likes, 10)
	b = append(b, `,"dislikes":`...)
	return strconv.AppendInt(b, c.Dislikes, 10)
}

func (p Position) appendJSON(b []byte) []byte {
	b = append(b, `{"partition":`...)
	b = strconv.AppendInt(b, int64(p.Partition), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, p.Offset, 10)
	return append(b, '}')
}

// PositionsText returns positions as a comma-separated list.
func PositionsText(positions []Position) string {
	var buf [64]byte
	b := buf[:0]
	for i, p := range positions {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.AppendTo(b)
	}
	return string(b)
}

// AppendTo appends partition:offset.
func (p Position) AppendTo(b []byte) []byte {
	b = append(strconv.AppendInt(b, int64(p.Partition), 10), ':')
	return strconv.AppendInt(b, p.Offset, 10)
}

// ParsePosition parses partition:offset.
func ParsePosition(text string) (p Position, ok bool) {
	partition, offset, _ := strings.Cut(text, ":")
	at, err := strconv.ParseUint(partition, 10, 31)
	next, offsetErr := strconv.ParseUint(offset, 10, 63)
	return Position{Partition: int32(at), Offset: int64(next)}, err == nil && offsetErr == nil
}

func (p Position) String() string { return string(p.AppendTo(nil)) }

// Millis is a time in Unix milliseconds. In JSON it is RFC 3339, in UTC.
type Millis int64

// MarshalJSON accepts far years, unlike time.Time's: one odd event time must not prevent the whole response.
func (m Millis) MarshalJSON() ([]byte, error) {
	return time.UnixMilli(int64(m)).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}
