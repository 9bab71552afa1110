package rankings_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/schema"
	"kudos/schema/kudosv1"
)

// The oracle itself against the simplest thing that there is: for each ranking one scan of the whole log.

// scan is the log, decoded.
type scan struct {
	log    *rankings.Log
	config rankings.Config
	parts  [][]record
}

type record struct {
	offset, timeMs int64
	post           uint64
	m              *kudosv1.LikeUpdate
}

func newScan(t *testing.T, events int, config rankings.Config) *scan {
	tapes, err := day.Updates(day.Events(day.DefaultOptions(events)), day.DefaultBatching(3))
	require.NoError(t, err)
	s := &scan{log: &rankings.Log{Updates: tapes}, config: config}
	for _, tape := range tapes {
		var part []record
		for rec := range tape.All() {
			r := record{offset: rec.Offset, timeMs: rec.TimeMs, m: &kudosv1.LikeUpdate{}}
			require.NoError(t, proto.Unmarshal(rec.Value, r.m))
			if string(rec.Key) != "_" {
				r.post, err = strconv.ParseUint(string(rec.Key), 10, 64)
				require.NoError(t, err)
			}
			part = append(part, r)
		}
		s.parts = append(s.parts, part)
	}
	return s
}

// window is a ranking that might be asked for.
type window struct {
	name              string
	size, hop, bucket int64
}

var windows = []window{{"10m", 10, 1, 1}, {"1h", 60, 1, 1}, {"24h", 1440, 60, 60}, {"day", 1440, 1440, 60}, {"all", 0, 0, 0}}

// ranking is right for the positions.
func (s *scan) ranking(region string, w window, at []schema.RankingPosition, exclusions int64, last *schema.Ranking) *schema.Ranking {
	lateness := int64(s.config.Lateness / time.Minute)
	r := &schema.Ranking{Version: 1, Region: region, Window: w.name, Score: s.config.Score, TopN: s.config.TopN, MinLikes: s.config.MinLikes}
	r.From, r.To, r.Watermark, r.Exclusions, r.Positions = schema.NoMinute, schema.NoMinute, schema.NoMinute, exclusions, at
	if w.size == 0 || w.name == "day" {
		r.Score = "count"
	} else if r.Score == "decay" {
		r.HalfLife = "30m"
	}
	clocks := []int64{}
	for i := range s.parts {
		clock := int64(schema.NoMinute)
		for _, rec := range s.before(i, at[i].Offset) {
			for _, d := range rec.m.Deltas {
				clock = max(clock, d.Minute, int64(at[i].Idle))
			}
		}
		clocks = append(clocks, clock)
	}
	// Every end of a window that might be, from the latest on.
	if w.size > 0 {
		for to := (slices.Max(clocks)/w.hop + 1) * w.hop; to > slices.Max(clocks)-w.size-w.hop && r.To == schema.NoMinute; to -= w.hop {
			in, ok := 0, true
			for _, clock := range clocks {
				if clock >= to-w.size {
					in++
					ok = ok && clock-lateness >= to-w.hop
				}
			}
			if in > 0 && ok {
				r.From, r.To = schema.Minute(to-w.size), schema.Minute(to)
			}
		}
		if r.To == schema.NoMinute {
			return nil
		}
	}
	for _, clock := range clocks {
		if clock != int64(schema.NoMinute) && (w.size == 0 || clock >= int64(r.From)) {
			if m := schema.Minute(clock - lateness); r.Watermark == schema.NoMinute || m < r.Watermark {
				r.Watermark = m
			}
		}
	}
	r.Posts = s.posts(r, w)
	if last != nil {
		r.Previous = &last.RankingBasis
	}
	for i := range r.Posts {
		r.Posts[i].Rank = i + 1
		if last != nil {
			r.Posts[i].PreviousRank = 1 + slices.IndexFunc(last.Posts, func(p schema.RankedPost) bool { return p.PostID == r.Posts[i].PostID })
		}
	}
	return r
}

func (s *scan) before(partition int, offset int64) []record {
	part := s.parts[partition]
	n := slices.IndexFunc(part, func(r record) bool { return r.offset >= offset })
	if n < 0 {
		return part
	}
	return part[:n]
}

// tally is a post in a window.
type tally struct {
	post         uint64
	likes, score int64
	reached      int64
	buckets      map[int64]int64
}

func (s *scan) posts(r *schema.Ranking, w window) []schema.RankedPost {
	var all []*tally
	for i, at := range r.Positions {
		tallies := map[uint64]*tally{}
		for _, rec := range s.before(i, at.Offset) {
			if tallies[rec.post] == nil {
				tallies[rec.post] = &tally{post: rec.post, buckets: map[int64]int64{}}
			}
			tallies[rec.post].add(rec, r, w)
		}
		var list []*tally
		for _, x := range tallies {
			if x.finish(r, w); x.likes >= r.MinLikes && x.score > 0 && !s.excluded(x.post, at.Exclusions) {
				list = append(list, x)
			}
		}
		all = append(all, best(list, r.TopN)...)
	}
	posts := []schema.RankedPost{}
	for _, x := range best(slices.DeleteFunc(all, func(x *tally) bool { return s.excluded(x.post, r.Exclusions) }), r.TopN) {
		posts = append(posts, schema.RankedPost{PostID: x.post, Likes: x.likes, Score: schema.Score(x.score)})
	}
	return posts
}

func (x *tally) add(rec record, r *schema.Ranking, w window) {
	before := x.likes
	for _, d := range rec.m.Deltas {
		switch {
		case r.Region != "global" && r.Region != string(d.Region):
		case w.size == 0:
			x.likes += d.Likes
		case int64(r.From) <= d.Minute && d.Minute < int64(r.To):
			x.likes += d.Likes
			x.buckets[d.Minute/w.bucket] += d.Likes
		}
	}
	if w.size == 0 && x.likes != before {
		x.reached = rec.timeMs
	}
}

func (x *tally) finish(r *schema.Ranking, w window) {
	x.score = x.likes * 1_000_000
	if r.Score == "decay" {
		x.score = 0
	}
	for b, n := range x.buckets {
		if r.Score == "decay" { // math.Exp2 is far better than a millionth
			age := (int64(r.To)/w.bucket - 1 - b) * w.bucket
			x.score += n * int64(1e6*math.Exp2(-float64(age)/30))
		}
		if n > 0 {
			x.reached = max(x.reached, b)
		}
	}
}

func best(list []*tally, n int) []*tally {
	slices.SortFunc(list, func(a, b *tally) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.reached, b.reached), cmp.Compare(a.post, b.post))
	})
	return list[:min(n, len(list))]
}

// excluded: every record of the test's log excludes a post, and none puts it back.
func (s *scan) excluded(post uint64, before int64) bool {
	for _, rec := range s.log.Exclusions {
		if rec.Offset < before && string(rec.Key) == strconv.FormatUint(post, 10) {
			return true
		}
	}
	return false
}

// rankings makes some of a key, each farther than the one before.
func (s *scan) rankings(rng *rand.Rand, region string, w window, n int) []*schema.Ranking {
	var made []*schema.Ranking
	var last *schema.Ranking
	at := make([]schema.RankingPosition, len(s.parts))
	for i := range at {
		at[i] = schema.RankingPosition{Partition: int32(i), Idle: schema.NoMinute}
	}
	exclusions := int64(0)
	for step := range n {
		at = slices.Clone(at)
		for i := range at {
			// All near the same share of their logs, one now and then behind.
			end := s.log.Updates[i].End()
			if to := end*int64(step+1)/int64(n) - rng.Int64N(1+end/50); rng.IntN(5) > 0 {
				at[i].Offset = max(at[i].Offset, to)
			}
			at[i].Exclusions = max(at[i].Exclusions, rng.Int64N(int64(step+1))*int64(len(s.log.Exclusions))/int64(n))
		}
		exclusions = max(exclusions, rng.Int64N(int64(step+1))*int64(len(s.log.Exclusions))/int64(n))
		r := s.ranking(region, w, at, exclusions, last)
		if r == nil || needless(r, last) {
			continue
		}
		made = append(made, r)
		last = r
	}
	return made
}

// needless: such a ranking would not be written.
func needless(r, last *schema.Ranking) bool {
	if last == nil {
		return len(r.Posts) == 0
	}
	same := slices.EqualFunc(r.Posts, last.Posts, func(a, b schema.RankedPost) bool {
		return a.PostID == b.PostID && a.Score == b.Score && a.Likes == b.Likes
	})
	return r.To < last.To || same && (r.To == last.To || len(r.Posts) == 0)
}

func TestAgainstAScan(t *testing.T) {
	for _, score := range []string{"count", "decay"} {
		t.Run(score, func(t *testing.T) {
			s := newScan(t, 20_000, rankings.Config{
				Windows:  []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour},
				Lateness: 2 * time.Minute, Score: score, HalfLife: 30 * time.Minute, TopN: 10, MinLikes: 1,
			})
			rng := rand.New(rand.NewPCG(3, 4))
			for i := range 30 {
				part := s.parts[i%3]
				post := part[rng.IntN(len(part))].post
				s.log.Exclusions = append(s.log.Exclusions, rankings.Record{Offset: int64(i), Key: strconv.AppendUint(nil, post, 10), Value: []byte(`{"excluded":true}`)})
			}
			places := 0
			for _, region := range []string{"global", "US", "JP"} {
				for _, w := range windows {
					made := s.rankings(rng, region, w, 12)
					require.NotEmpty(t, made, "%s/%s", region, w.name)
					for _, r := range made {
						places += len(r.Posts)
						value, err := schema.EncodeRanking(r)
						require.NoError(t, err)
						s.log.Rankings = append(s.log.Rankings, rankings.Record{Key: []byte(region + "/" + w.name), Value: value})
					}
				}
			}
			v, err := rankings.Check(s.log, s.config, nil)
			require.NoError(t, err)
			require.Zero(t, v.Differences.Total, v.Differences.String())
			t.Logf("%d rankings with %d places", len(s.log.Rankings), places)
			require.Greater(t, places, 1000)
		})
	}
}
