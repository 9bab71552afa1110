package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var Global = Region{} // the region that stands for all regions together in rankings

const GlobalName = "global" // the name of Global

// RankingRegion is the name of a region in rankings.
func RankingRegion(r Region) string {
	if r == Global {
		return GlobalName
	}
	return r.String()
}

// Names of the two leaderboards, used like names of windows.
const (
	LeaderboardDay = "day" // the day (UTC) of the watermark
	LeaderboardAll = "all" // all time
)

// IsLeaderboard reports whether the name is that of a leaderboard, not of a window.
func IsLeaderboard(name string) bool { return name == LeaderboardDay || name == LeaderboardAll }

// WindowName is the name of a window with this size, in whole minutes: 10m, 1h, 1h30m, 24h.
func WindowName(size time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(size.String())
}

const RankingVersion = 1 // the version of Ranking that this program writes

// Ranking is one record of the topic trending: the posts with the most likes in a region and window, best first. It is
// a function of the logs up to the positions that it names; docs/trending.md defines it.
type Ranking struct {
	Version int    `json:"version"`
	Region  string `json:"region"` // ISO 3166 code, or global
	Window  string `json:"window"` // 10m, 1h, 24h, …; day and all for the leaderboards
	RankingBasis
	Posts    []RankedPost `json:"posts"`
	Score    string       `json:"score"`               // how posts are scored: count or decay
	HalfLife string       `json:"half_life,omitempty"` // the age at which a like weighs half, for decay: 30m
	TopN     int          `json:"top_n"`               // maximum number of posts
	MinLikes int64        `json:"min_likes"`           // likes in the window that a post needs to be ranked
	// Previous is the basis of the previous ranking, which PreviousRank refers to; nil for the first ranking.
	Previous *RankingBasis `json:"previous"`
}

// RankingBasis is what a ranking was computed from.
type RankingBasis struct {
	// From (inclusive) and To (exclusive) bound the event times; both are absent for all time.
	From Minute `json:"from"`
	To   Minute `json:"to"`
	// Watermark is the time before which no events are expected. Late events still count if they are in the window.
	Watermark Minute `json:"watermark"`
	// Exclusions is the offset in trending-exclusions up to which excluded posts were removed from the merged list.
	Exclusions int64 `json:"exclusions"`
	// Positions in like-updates, one per partition, in order.
	Positions []RankingPosition `json:"positions"`
}

// RankingPosition is how much of one partition of like-updates a ranking covers.
type RankingPosition struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"` // the next offset: the records before it are covered
	// Idle is the time to which the partition's clock was advanced while no records arrived; absent if it never was.
	Idle Minute `json:"idle"`
	// Exclusions is the same as in RankingBasis, for the list of this partition.
	Exclusions int64 `json:"exclusions"`
}

// RankedPost is one entry of a ranking.
type RankedPost struct {
	Rank         int    `json:"rank"`           // from 1
	PreviousRank int    `json:"previous_rank"`  // in the previous ranking; 0 if the post was not in it
	PostID       uint64 `json:"post_id,string"` // a string, because numbers in browsers are exact only up to 2^53
	Score        Score  `json:"score"`
	Likes        int64  `json:"likes"`
}

// RankingKey is the key of a ranking in trending: <region>/<window>.
func RankingKey(region, window string) string { return region + "/" + window }

// rankingJSON is a Ranking in reading order: the basis comes last.
type rankingJSON struct {
	Version    int               `json:"version"`
	Region     string            `json:"region"`
	Window     string            `json:"window"`
	From       Minute            `json:"from"`
	To         Minute            `json:"to"`
	Watermark  Minute            `json:"watermark"`
	Posts      []RankedPost      `json:"posts"`
	Score      string            `json:"score"`
	HalfLife   string            `json:"half_life,omitempty"`
	TopN       int               `json:"top_n"`
	MinLikes   int64             `json:"min_likes"`
	Exclusions int64             `json:"exclusions"`
	Positions  []RankingPosition `json:"positions"`
	Previous   *RankingBasis     `json:"previous"`
}

// EncodeRanking returns the record's value, JSON on one line.
func EncodeRanking(r *Ranking) ([]byte, error) {
	posts := r.Posts
	if posts == nil {
		posts = []RankedPost{} // encodes as [], not null
	}
	value, err := json.Marshal(rankingJSON{r.Version, r.Region, r.Window, r.From, r.To, r.Watermark, posts,
		r.Score, r.HalfLife, r.TopN, r.MinLikes, r.Exclusions, r.Positions, r.Previous})
	if err != nil {
		return nil, fmt.Errorf("encoding ranking %s: %w", RankingKey(r.Region, r.Window), err)
	}
	return value, nil
}

// DecodeRanking decodes a record's value. A later version is an error that says so.
func DecodeRanking(value []byte) (*Ranking, error) {
	r := &Ranking{}
	if err := json.Unmarshal(value, r); err != nil {
		return nil, fmt.Errorf("decoding a ranking: %w", err)
	}
	if r.Version != RankingVersion {
		return nil, fmt.Errorf("decoding a ranking: unknown version %d, expected %d; run a later version of kudos",
			r.Version, RankingVersion)
	}
	return r, nil
}

// Minute is a time in Unix minutes. In JSON it is RFC 3339 in UTC, or null if there is none.
type Minute int64

const NoMinute Minute = math.MinInt64 // the absent time

// Time is the start of the minute, or the zero time for NoMinute.
func (m Minute) Time() time.Time {
	if m == NoMinute {
		return time.Time{}
	}
	return time.Unix(int64(m)*60, 0).UTC()
}

func (m Minute) String() string {
	if m == NoMinute {
		return "none"
	}
	return m.Time().Format(time.RFC3339)
}

func (m Minute) MarshalJSON() ([]byte, error) {
	if m == NoMinute {
		return []byte("null"), nil
	}
	return m.Time().MarshalJSON()
}

func (m *Minute) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*m = NoMinute
		return nil
	}
	var t time.Time
	if err := t.UnmarshalJSON(b); err != nil {
		return err
	}
	*m = Minute(t.Unix() / 60)
	return nil
}

// Score is a post's score in millionths. In JSON and as text it is a decimal number.
type Score int64

const ScoreOne Score = 1_000_000 // the score of one like without decay

func (s Score) String() string {
	whole, part := int64(s/ScoreOne), int64(s%ScoreOne)
	if part == 0 {
		return strconv.FormatInt(whole, 10)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%06d", whole, part), "0")
}

func (s Score) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

func (s *Score) UnmarshalJSON(b []byte) error {
	whole, part, _ := strings.Cut(string(b), ".")
	if len(part) > 6 {
		return fmt.Errorf("score %s has more than 6 decimals", b)
	}
	n, err := strconv.ParseUint(whole+part+strings.Repeat("0", 6-len(part)), 10, 63)
	if err != nil {
		return fmt.Errorf("score %s: %w", b, errors.Unwrap(err))
	}
	*s = Score(n)
	return nil
}

// Exclusion is the value of a record of trending-exclusions, whose key is the post id in decimal: moderation excludes
// the post from rankings, or includes it again. A tombstone includes it, too. It is JSON, so that scripts can write it.
type Exclusion struct {
	Excluded bool   `json:"excluded"`
	Reason   string `json:"reason,omitempty"` // free text for operators
}

// AppendExclusion appends the record's value.
func AppendExclusion(b []byte, e Exclusion) []byte {
	value, _ := json.Marshal(e) // cannot fail
	return append(b, value...)
}

// DecodeExclusion decodes a record's value; a tombstone is not an exclusion.
func DecodeExclusion(value []byte) (e Exclusion, err error) {
	if len(value) == 0 {
		return e, nil
	}
	if err := json.Unmarshal(value, &e); err != nil {
		return e, fmt.Errorf("decoding an exclusion: %w", err)
	}
	return e, nil
}
