package window

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// update is one record of a simulated like-updates.
type update struct {
	post      uint64
	deltas    []schema.Delta
	withdrawn bool // a like of the first delta was withdrawn
}

// world is several partitions with their logs, and a merge that sees what they have sealed.
type world struct {
	config   *Config
	logs     [][]update
	rows     []map[RowKey][]byte // saved state, by partition
	parts    []*Partition
	clocks   []Clock
	versions map[Key][][]Version // by partition
	last     map[string]schema.Minute
}

func newWorld(config *Config, partitions int) *world {
	w := &world{config: config, versions: map[Key][][]Version{}, last: map[string]schema.Minute{}}
	for range partitions {
		w.parts = append(w.parts, NewPartition(config))
		w.rows = append(w.rows, map[RowKey][]byte{})
		mark := Mark{Watermark: schema.NoMinute, Idle: schema.NoMinute}
		w.clocks = append(w.clocks, Clock{Since: schema.NoMinute, Seal: Seal{schema.NoMinute, mark}})
	}
	w.logs = make([][]update, partitions)
	return w
}

func (w *world) add(p int, u update) {
	w.logs[p] = append(w.logs[p], u)
	w.parts[p].Share(u.post, u.post >= firstShared)
	w.parts[p].Add(u.post, u.deltas, int64(len(w.logs[p])-1))
}

func (w *world) idle(p int, to schema.Minute) {
	for w.parts[p].AdvanceIdle(to, int64(len(w.logs[p]))) {
	}
}

// seal makes a partition report.
func (w *world) seal(p int) {
	part, c := w.parts[p], &w.clocks[p]
	rowsOf(part, w.rows[p])
	part.MakeVersions(int64(len(w.logs[p])))
	for _, v := range part.Versions {
		if w.versions[v.Key] == nil {
			w.versions[v.Key] = make([][]Version, len(w.parts))
		}
		w.versions[v.Key][p] = append(w.versions[v.Key][p], v)
	}
	c.Marks = append(c.Marks, part.Marks...)
	part.Versions, part.Marks = nil, nil
	c.Seal = Seal{part.Clock, Mark{Watermark: part.Watermark(), Offset: int64(len(w.logs[p])), Idle: part.Idle}}
}

// restart restarts a partition, which must just have reported, from its rows.
func (w *world) restart(t *testing.T, p int) {
	old := w.parts[p]
	w.parts[p] = NewPartition(w.config)
	for _, post := range old.shared {
		w.parts[p].Share(post, true)
	}
	for key, value := range w.rows[p] {
		require.NoError(t, w.parts[p].LoadRow(key, value))
	}
	w.parts[p].LoadClock(old.Clock, old.Idle, old.Kept(), maps.Clone(old.listed))
	w.parts[p].MakeVersions(int64(len(w.logs[p])))
	require.Empty(t, w.parts[p].Versions, "nothing has changed")
}

// check compares every ranking that can be computed now with the logs.
func (w *world) check(t *testing.T) (made int) {
	for i := range w.config.Windows {
		win := &w.config.Windows[i]
		last, ok := w.last[win.Name]
		if !ok {
			last = schema.NoMinute
		}
		end, ok := Align(win, w.clocks, last)
		if !ok {
			continue
		}
		w.last[win.Name] = end
		positions := make([]int64, len(w.parts))
		for p := range w.clocks {
			positions[p] = w.clocks[p].At(end).Offset
		}
		for _, region := range []schema.Region{schema.Global, {'D', 'E'}, {'U', 'S'}} {
			key := Key{region, win.Name}
			var lists [][]Post
			for p, versions := range w.versions[key] {
				at := -1
				for i, v := range versions {
					if v.End <= end && v.Offset <= w.clocks[p].Seal.Offset {
						at = i
					}
				}
				if at >= 0 && w.clocks[p].In(win, end) {
					lists = append(lists, versions[at].Posts)
				}
			}
			have := Merge(lists, w.config.TopN, w.config.MinLikes, func(uint64) bool { return false })
			want := w.recompute(win, region, end, positions)
			require.Equal(t, want, append([]Post{}, have...), "%s/%s to %s at %v",
				schema.RankingRegion(region), win.Name, end, positions)
			made++
		}
	}
	return made
}

func (w *world) recompute(win *Window, region schema.Region, end schema.Minute, positions []int64) []Post {
	posts, likes := []Post{}, map[uint64]map[schema.Minute]int64{}
	for p, log := range w.logs {
		for _, u := range log[:positions[p]] {
			for _, d := range u.deltas {
				m := schema.Minute(d.Minute)
				if (region == schema.Global || d.Region == region) && m >= end-schema.Minute(win.Size) && m < end {
					if likes[u.post] == nil {
						likes[u.post] = map[schema.Minute]int64{}
					}
					bucket := math.Floor(float64(m)/float64(win.Bucket)) * float64(win.Bucket)
					likes[u.post][schema.Minute(bucket)] += d.Likes
				}
			}
		}
	}
	for id, buckets := range likes {
		post := Post{ID: id, Reached: math.MinInt64}
		for b, n := range buckets {
			post.Likes += n
			weight := int64(1_000_000)
			if win.HalfLife > 0 {
				// floating point is accurate enough for the few weights in this test
				age := float64(int64(end-b) - win.Bucket)
				weight = int64(math.Floor(1e6*math.Pow(2, -age/float64(win.HalfLife)) + 1e-9))
			}
			post.Score += schema.Score(n * weight)
			if n > 0 {
				post.Reached = max(post.Reached, int64(b))
			}
		}
		if post.Likes >= w.config.MinLikes && post.Score > 0 {
			posts = append(posts, post)
		}
	}
	slices.SortFunc(posts, func(a, b Post) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Reached, b.Reached), cmp.Compare(a.ID, b.ID))
	})
	return posts[:min(len(posts), w.config.TopN)]
}

// TestRankingsEqualTheRecount: in whatever order things arrive, a ranking follows from the logs at its positions.
func TestRankingsEqualTheRecount(t *testing.T) {
	for _, halfLife := range []int64{0, 4} {
		for seed := range uint64(40) {
			t.Run(fmt.Sprintf("half life %d, seed %d", halfLife, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				windows := []Window{New(10, halfLife), New(60, halfLife), New(24*60, 0), Day()}
				config := &Config{
					Windows: windows, Lateness: r.Int64N(3), TopN: 1 + r.IntN(5), MinLikes: 1 + r.Int64N(2),
				}
				w := newWorld(config, 1+r.IntN(3))
				made, now := 0, schema.Minute(30_000_000+r.Int64N(10_000))
				for range 400 {
					p := r.IntN(len(w.parts))
					switch k := r.IntN(30); {
					case k == 0:
						w.idle(p, now)
					case k == 1:
						now += schema.Minute(r.Int64N(200))
					case k < 5:
						now++
					case k < 11:
						w.seal(p)
						if k == 5 {
							w.restart(t, p)
						}
						made += w.check(t)
					default:
						w.add(p, w.randomUpdate(r, p, now))
					}
				}
				for p := range w.parts {
					w.idle(p, now+3000)
					w.seal(p)
				}
				made += w.check(t)
				require.Positive(t, made)
				for p := range w.parts {
					posts, cells := w.parts[p].Size()
					require.Zero(t, posts+cells, "everything has left the windows")
				}
			})
		}
	}
}

const firstShared = 1000 // of the posts that are in all partitions

// randomUpdate likes a post, or withdraws an earlier like.
func (w *world) randomUpdate(r *rand.Rand, p int, now schema.Minute) update {
	u := update{post: uint64(1 + p + len(w.parts)*r.IntN(8))}
	if r.IntN(6) == 0 {
		u.post = firstShared + uint64(r.IntN(3))
	}
	for range 1 + r.IntN(3) {
		region := []schema.Region{{'D', 'E'}, {'U', 'S'}}[r.IntN(2)]
		minute := int64(now) - int64(r.ExpFloat64()*8)
		u.deltas = append(u.deltas, schema.Delta{Region: region, Minute: minute, Likes: 1 + r.Int64N(3)})
	}
	if r.IntN(3) == 0 { // withdraw an earlier like where it was counted
		log := w.logs[p]
		for range min(len(log), 5) {
			old := &log[r.IntN(len(log))]
			if d := old.deltas[0]; d.Likes > 0 && !old.withdrawn {
				old.withdrawn = true
				u.post, u.deltas = old.post, []schema.Delta{{Region: d.Region, Minute: d.Minute, Likes: -1}}
				break
			}
		}
	}
	return u
}

// A partition lists a shared post with its likes there. MinLikes and exclusions apply only to the sum.
func TestPostsWithUserBuckets(t *testing.T) {
	p := NewPartition(&Config{Windows: []Window{New(10, 0)}, TopN: 1, MinLikes: 2})
	like := []schema.Delta{{Region: schema.Region{'D', 'E'}, Minute: 100, Likes: 1}}
	p.Share(9, true)
	p.Share(8, true)
	p.Add(9, like, 0)
	p.Add(8, like, 1)
	listed := func() (ids []uint64) {
		p.Versions = nil
		p.MakeVersions(2)
		for _, v := range p.Versions {
			if v.Region == schema.Global {
				for _, post := range v.Posts {
					ids = append(ids, post.ID)
				}
			}
		}
		return ids
	}
	require.Equal(t, []uint64{8, 9}, listed(), "fewer likes and more posts than configured")
	p.Exclude(8, true)
	require.Empty(t, listed(), "no list has changed: the merge removes the post")
	p.Share(9, false)
	require.Equal(t, []uint64{8}, listed(), "like any other post now")

	nobody := func(uint64) bool { return false }
	one, none := Post{ID: 1, Likes: 1, Score: 5, Reached: 3}, Post{ID: 2, Likes: 9}
	require.Empty(t, Merge([][]Post{{one, none}}, 3, 2, nobody), "too few likes; no score")
	two := []Post{{ID: 1, Likes: 2, Score: 10, Reached: 3}}
	require.Equal(t, two, Merge([][]Post{{one, none}, {one}}, 3, 2, nobody))
	require.Empty(t, Merge([][]Post{{one}, {one}}, 3, 2, func(post uint64) bool { return post == 1 }))
}

// TestIdleAdvanceStepsWhilePostsRemain: a long idle advance makes its lists in several steps, until nothing is left.
func TestIdleAdvanceStepsWhilePostsRemain(t *testing.T) {
	const start, to = schema.Minute(30_000_000), schema.Minute(40_000_000)
	p := NewPartition(configOf(New(10, 0), New(60, 0)))
	for m := range schema.Minute(60) {
		like(p, uint64(m), start+m)
	}
	steps := 0
	for p.Versions = nil; p.AdvanceIdle(to, 60); p.Versions = nil {
		require.LessOrEqual(t, len(p.Versions), 2*2*(idleStep+1), "two windows, two boards")
		steps++
	}
	require.Equal(t, to, p.Clock)
	require.Equal(t, to, p.Idle)
	require.Equal(t, 7, steps, "six until the end of the hour")
}

// The likes of a bucket all have the bucket's age.
func TestWeightsAreByBucket(t *testing.T) {
	require.Equal(t, []schema.Score{1_000_000, 500_000, 250_000}, weights(3, 60, 60))
	require.Equal(t, []schema.Score{1_000_000, 707_106, 500_000}, weights(3, 30, 60))
}

// The expected values are 10^6 * 2^(-p/q), computed with 30 digits and truncated.
func TestHalved(t *testing.T) {
	for _, tt := range []struct {
		p, q int64
		want schema.Score
	}{
		{0, 30, 1_000_000}, {30, 30, 500_000}, {60, 30, 250_000}, {1, 30, 977_159}, {29, 30, 511_686}, {1, 2, 707_106},
		{600, 30, 0}, {599, 30, 0}, {597, 30, 1}, {1, 10080, 999_931}, {719, 10079, 951_755},
	} {
		require.Equal(t, tt.want, halved(tt.p, tt.q), "2^-(%d/%d)", tt.p, tt.q)
	}
}
