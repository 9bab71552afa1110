package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Global stands in rankings for all regions together.
var Global = Region{}

// GlobalName is how Global is written.
const GlobalName = "global"

// RankingRegion is how a region is written in rankings.
func RankingRegion(r Region) string {
	if r == Global {
		return GlobalName
	}
	return r.String()
}

// Names of the two leaderboards, which stand beside the windows.
const (
	LeaderboardDay = "day" // the day (UTC) that the watermark is in
	LeaderboardAll = "all" // all time
)

// WindowName is how a window of a size, in whole minutes, is written: 10m, 1h, 1h30m, 24h.
func WindowName(size time.Duration) string {
	hours, minutes := size/time.Hour, size%time.Hour/time.Minute
	switch {
	case hours == 0:
		return fmt.Sprintf("%dm", minutes)
	case minutes == 0:
		return fmt.Sprintf("%dh", hours)
	}
	return fmt.Sprintf("%dh%dm", hours, minutes)
}

// RankingVersion is the version of Ranking that this program writes.
const RankingVersion = 1

// Ranking is one record of trending: the posts of a region with the most likes in a window, best first. It is a
// function of the logs at the positions that it names: docs/trending.md says which.
type Ranking struct {
	Version int    `json:"version"`
	Region  string `json:"region"` // ISO 3166 code, or global
	Window  string `json:"window"` // 10m, 1h, 24h, …; day and all for the leaderboards
	RankingBasis
	Posts []RankedPost `json:"posts"`
	// Score is what posts are ordered by: count or decay.
	Score string `json:"score"`
	// HalfLife is the age at which a like weighs half, for decay: 30m.
	HalfLife string `json:"half_life,omitempty"`
	TopN     int    `json:"top_n"`     // posts at most
	MinLikes int64  `json:"min_likes"` // likes in the window that a post needs
	// Previous is the basis of the ranking before, which PreviousRank speaks of; nil: this is the first.
	Previous *RankingBasis `json:"previous"`
}

// RankingBasis is what a ranking is made of.
type RankingBasis struct {
	// From and To bound the event times that count, To excluded; none for all time.
	From Minute `json:"from"`
	To   Minute `json:"to"`
	// Watermark: nothing before it is awaited any more, though it still counts if it is in the window.
	Watermark Minute `json:"watermark"`
	// Exclusions is the offset in trending-exclusions up to which (excluded) posts were taken out of the merged list.
	Exclusions int64 `json:"exclusions"`
	// Positions in like-updates, a partition each, in order.
	Positions []RankingPosition `json:"positions"`
}

// RankingPosition is how far one partition of like-updates is covered.
type RankingPosition struct {
	Partition int32 `json:"partition"`
	// Offset of the next record: those before it are covered.
	Offset int64 `json:"offset"`
	// Idle is the time to which the partition's clock was advanced while nothing came; none if it never was.
	Idle Minute `json:"idle"`
	// Exclusions is as in RankingBasis, for this partition's own list.
	Exclusions int64 `json:"exclusions"`
}

// RankedPost is one place of a ranking.
type RankedPost struct {
	Rank int `json:"rank"` // from 1
	// PreviousRank is that in the ranking before; 0: it was not in it.
	PreviousRank int    `json:"previous_rank"`
	PostID       uint64 `json:"post_id,string"` // text: a browser's numbers end at 2^53
	Score        Score  `json:"score"`
	Likes        int64  `json:"likes"`
}

// RankingKey is the key of a ranking in trending: <region>/<window>.
func RankingKey(region, window string) string { return region + "/" + window }

// rankingJSON is a Ranking in the order in which people read: what it is made of comes last.
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

// EncodeRanking is the record's value: JSON in one line.
func EncodeRanking(r *Ranking) ([]byte, error) {
	posts := r.Posts
	if posts == nil {
		posts = []RankedPost{} // [] and not null
	}
	value, err := json.Marshal(rankingJSON{
		r.Version, r.Region, r.Window, r.From, r.To, r.Watermark, posts,
		r.Score, r.HalfLife, r.TopN, r.MinLikes, r.Exclusions, r.Positions, r.Previous,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding ranking %s: %w", RankingKey(r.Region, r.Window), err)
	}
	return value, nil
}

// DecodeRanking reads a record's value. A later version is an error that says so.
func DecodeRanking(value []byte) (*Ranking, error) {
	r := &Ranking{}
	if err := json.Unmarshal(value, r); err != nil {
		return nil, fmt.Errorf("decoding a ranking: %w", err)
	}
	if r.Version != RankingVersion {
		return nil, fmt.Errorf("decoding a ranking: version %d is not known, only %d; run a later version of kudos",
			r.Version, RankingVersion)
	}
	return r, nil
}

// Minute is a time in Unix minutes; in JSON as RFC 3339, UTC, null if there is none.
type Minute int64

// NoMinute is no time.
const NoMinute Minute = math.MinInt64

// Time is the minute's beginning; the zero time if there is none.
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
	if bytes.Equal(b, []byte("null")) {
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

// Score is a post's score in millionths; in JSON and as text a decimal number.
type Score int64

// ScoreOne is the score of one like that has not aged.
const ScoreOne Score = 1_000_000

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

// Exclusion is the value of a record of trending-exclusions, whose key is the post's id in decimal: moderation takes
// the post out of rankings, or puts it back. A tombstone puts it back, too. JSON, so that a script can write it.
type Exclusion struct {
	Excluded bool `json:"excluded"`
	// Reason is for people.
	Reason string `json:"reason,omitempty"`
}

// AppendExclusion appends the record's value.
func AppendExclusion(b []byte, e Exclusion) ([]byte, error) {
	value, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding an exclusion: %w", err)
	}
	return append(b, value...), nil
}

// DecodeExclusion reads a record's value; none (a tombstone) is no exclusion.
func DecodeExclusion(value []byte) (e Exclusion, err error) {
	if len(value) == 0 {
		return e, nil
	}
	if err := json.Unmarshal(value, &e); err != nil {
		return e, fmt.Errorf("decoding an exclusion: %w", err)
	}
	return e, nil
}
