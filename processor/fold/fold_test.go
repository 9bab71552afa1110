package fold_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kudos/processor/fold"
	"kudos/schema"
)

// memory is a State in maps, and what a test wants to know of the changes.
type memory struct {
	pairs  map[fold.PairKey]schema.Pair
	counts map[uint64]schema.Counts
	// sums are the deltas added up by post, minute and region.
	sums map[deltaKey][2]int64
	// transitions are events that changed a reaction.
	transitions int
}

type deltaKey struct {
	post   uint64
	minute int64
	region schema.Region
}

func newMemory() *memory {
	return &memory{pairs: map[fold.PairKey]schema.Pair{}, counts: map[uint64]schema.Counts{}, sums: map[deltaKey][2]int64{}}
}

func (m *memory) Pairs(keys []fold.PairKey, found func(int, schema.Pair)) error {
	for i, k := range keys {
		if p, ok := m.pairs[k]; ok {
			found(i, p)
		}
	}
	return nil
}

func (m *memory) Counts(posts []uint64, found func(int, schema.Counts)) error {
	for i, id := range posts {
		if c, ok := m.counts[id]; ok {
			found(i, c)
		}
	}
	return nil
}

// fold folds the events in batches of the given size.
func (m *memory) fold(t testing.TB, events []fold.Event, size int) {
	var f fold.Folder
	for batch := range slices.Chunk(events, size) {
		r, err := f.Fold(batch, m)
		require.NoError(t, err)
		m.transitions += r.Transitions
		for _, p := range r.Pairs {
			m.pairs[p.Key] = p.Pair
		}
		for _, c := range r.Counts {
			m.counts[c.PostID] = c.Counts
		}
		for _, u := range r.Updates {
			require.NotEmpty(t, u.Deltas, "an update without a change")
			require.Equal(t, m.counts[u.PostID], u.Counts, "counts of post %d in its update and in the state", u.PostID)
			for _, d := range u.Deltas {
				k := deltaKey{u.PostID, d.Minute, d.Region}
				s := m.sums[k]
				m.sums[k] = [2]int64{s[0] + d.Likes, s[1] + d.Dislikes}
				if m.sums[k] == [2]int64{} {
					delete(m.sums, k)
				}
			}
		}
	}
}

// naive is the fold said once more, as simply as can be: every event in log order
// against a map.
func naive(events []fold.Event) *memory {
	m := newMemory()
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b fold.Event) int { return int(a.Offset - b.Offset) })
	for _, e := range events {
		k := fold.PairKey{PostID: e.PostID, UserID: e.UserID}
		old, known := m.pairs[k]
		if known && (e.TimeMs < old.TimeMs || e.TimeMs == old.TimeMs && e.Offset <= old.Offset) {
			continue
		}
		p := schema.Pair{Reaction: map[schema.Action]schema.Reaction{schema.Like: schema.Liked, schema.Unlike: schema.NoReaction, schema.Dislike: schema.Disliked}[e.Action], TimeMs: e.TimeMs, Offset: e.Offset, SinceMs: e.TimeMs, Region: e.Region}
		if known && p.Reaction == old.Reaction {
			p.SinceMs, p.Region = old.SinceMs, old.Region
		}
		if p.Reaction != old.Reaction {
			m.transitions++
		}
		m.pairs[k] = p
	}
	for k, p := range m.pairs {
		c := m.counts[k.PostID]
		d := deltaKey{k.PostID, p.SinceMs / 60000, p.Region}
		s := m.sums[d]
		switch p.Reaction {
		case schema.Liked:
			c.Likes++
			s[0]++
		case schema.Disliked:
			c.Dislikes++
			s[1]++
		default:
			continue
		}
		m.counts[k.PostID], m.sums[d] = c, s
	}
	return m
}

func (m *memory) diff(want *memory) string {
	zero := func(m map[uint64]schema.Counts) map[uint64]schema.Counts {
		out := map[uint64]schema.Counts{}
		for k, c := range m {
			if c != (schema.Counts{}) {
				out[k] = c
			}
		}
		return out
	}
	return cmp.Diff(want.pairs, m.pairs) + cmp.Diff(zero(want.counts), zero(m.counts)) +
		cmp.Diff(want.sums, m.sums, cmp.AllowUnexported(deltaKey{}))
}

// randomEvents makes few pairs collide often, with equal times among them.
func randomEvents(r *rand.Rand, n int) []fold.Event {
	regions := []schema.Region{{'U', 'S'}, {'D', 'E'}, schema.UnknownRegion, {'U', 'S', '-', 'C', 'A'}}
	events := make([]fold.Event, n)
	for i := range events {
		events[i] = fold.Event{Offset: int64(i), Event: schema.Event{
			PostID: 1 + r.Uint64N(4), UserID: 1 + r.Uint64N(5),
			Action: schema.Action(1 + r.IntN(3)),
			TimeMs: 60_000*int64(r.IntN(5)) + int64(r.IntN(3)),
			Region: regions[r.IntN(len(regions))],
		}}
	}
	return events
}

func TestFoldEqualsNaiveFoldInAnyBatching(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		events := randomEvents(r, 1+r.IntN(200))
		want := naive(events)
		for _, size := range []int{1, 2, 3, 7, 50, len(events)} {
			m := newMemory()
			m.fold(t, events, size)
			if d := m.diff(want); d != "" {
				t.Fatalf("seed %d, batches of %d (-want +got):\n%s", seed, size, d)
			}
			require.Equal(t, want.transitions, m.transitions, "seed %d, batches of %d", seed, size)
		}
	}
}

// Where a like counts (since, region) may depend on the order of arrival; what is
// liked may not.
func TestAnyPermutationAndDuplicationGivesTheSameState(t *testing.T) {
	type latest struct {
		Reaction       schema.Reaction
		TimeMs, Offset int64
	}
	states := func(m *memory) map[fold.PairKey]latest {
		out := map[fold.PairKey]latest{}
		for k, p := range m.pairs {
			out[k] = latest{p.Reaction, p.TimeMs, p.Offset}
		}
		return out
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		events := randomEvents(r, 1+r.IntN(100))
		want := naive(events)
		shuffled := append(slices.Clone(events), events[:r.IntN(len(events))]...)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		m := newMemory()
		m.fold(t, shuffled, 1+r.IntN(len(shuffled)))
		require.Equal(t, states(want), states(m), "seed %d", seed)
		for post, c := range want.counts {
			require.Equal(t, c, m.counts[post], "seed %d, post %d", seed, post)
		}
		var likes, dislikes int64
		for _, s := range m.sums {
			likes, dislikes = likes+s[0], dislikes+s[1]
		}
		for _, c := range want.counts {
			likes, dislikes = likes-c.Likes, dislikes-c.Dislikes
		}
		require.Zero(t, likes, "seed %d: deltas and counts", seed)
		require.Zero(t, dislikes, "seed %d: deltas and counts", seed)
	}
}

func event(offset int64, action schema.Action, timeMs int64, region string) fold.Event {
	rg, _ := schema.ParseRegion(region)
	return fold.Event{Offset: offset, Event: schema.Event{PostID: 7, UserID: 1, Action: action, TimeMs: timeMs, Region: rg}}
}

func delta(region string, minute, likes, dislikes int64) schema.Delta {
	rg, _ := schema.ParseRegion(region)
	return schema.Delta{Region: rg, Minute: minute, Likes: likes, Dislikes: dislikes}
}

func TestDeltas(t *testing.T) {
	const m = 60_000
	for name, c := range map[string]struct {
		before, batch []fold.Event
		want          []schema.Delta
		counts        schema.Counts
	}{
		"a like":                                {nil, []fold.Event{event(0, schema.Like, 5*m, "US")}, []schema.Delta{delta("US", 5, 1, 0)}, schema.Counts{Likes: 1}},
		"a double click":                        {nil, []fold.Event{event(0, schema.Like, 5*m, "US"), event(1, schema.Like, 5*m, "US")}, []schema.Delta{delta("US", 5, 1, 0)}, schema.Counts{Likes: 1}},
		"liked again":                           {[]fold.Event{event(0, schema.Like, 5*m, "US")}, []fold.Event{event(1, schema.Like, 6*m, "DE")}, nil, schema.Counts{Likes: 1}},
		"withdrawn where it was counted":        {[]fold.Event{event(0, schema.Like, 5*m, "US")}, []fold.Event{event(1, schema.Unlike, 9*m, "DE")}, []schema.Delta{delta("US", 5, -1, 0)}, schema.Counts{}},
		"like and unlike in one batch":          {nil, []fold.Event{event(0, schema.Like, 5*m, "US"), event(1, schema.Unlike, 6*m, "US")}, nil, schema.Counts{}},
		"moved to another minute":               {[]fold.Event{event(0, schema.Like, 5*m, "US")}, []fold.Event{event(1, schema.Unlike, 6*m, "US"), event(2, schema.Like, 7*m, "DE")}, []schema.Delta{delta("US", 5, -1, 0), delta("DE", 7, 1, 0)}, schema.Counts{Likes: 1}},
		"a like becomes a dislike":              {[]fold.Event{event(0, schema.Like, 5*m, "US")}, []fold.Event{event(1, schema.Dislike, 5*m+1, "US")}, []schema.Delta{delta("US", 5, -1, 1)}, schema.Counts{Dislikes: 1}},
		"unlike withdraws a dislike":            {[]fold.Event{event(0, schema.Dislike, 5*m, "US")}, []fold.Event{event(1, schema.Unlike, 6*m, "US")}, []schema.Delta{delta("US", 5, 0, -1)}, schema.Counts{}},
		"an earlier event comes late":           {[]fold.Event{event(0, schema.Unlike, 5*m, "US")}, []fold.Event{event(1, schema.Like, 4*m, "US")}, nil, schema.Counts{}},
		"between two of the same, come late":    {[]fold.Event{event(0, schema.Like, 5*m, "US"), event(1, schema.Like, 9*m, "US")}, []fold.Event{event(2, schema.Unlike, 7*m, "US")}, nil, schema.Counts{Likes: 1}},
		"equal times: the later in the log":     {[]fold.Event{event(0, schema.Like, 5*m, "US")}, []fold.Event{event(1, schema.Unlike, 5*m, "US")}, []schema.Delta{delta("US", 5, -1, 0)}, schema.Counts{}},
		"an unlike of nothing keeps a like out": {[]fold.Event{event(0, schema.Unlike, 5*m, "US")}, []fold.Event{event(1, schema.Like, 5*m-1, "US")}, nil, schema.Counts{}},
	} {
		t.Run(name, func(t *testing.T) {
			state := newMemory()
			if len(c.before) > 0 {
				state.fold(t, c.before, len(c.before))
			}
			var f fold.Folder
			r, err := f.Fold(c.batch, state)
			require.NoError(t, err)
			if c.want == nil {
				require.Empty(t, r.Updates)
				require.Empty(t, r.Counts)
				return
			}
			require.Len(t, r.Updates, 1)
			require.Equal(t, c.want, r.Updates[0].Deltas)
			require.Equal(t, c.counts, r.Updates[0].Counts)
		})
	}
}

func BenchmarkFold(b *testing.B) {
	for _, c := range []struct {
		name  string
		posts uint64
	}{{"hot", 1}, {"1000_posts", 1000}, {"uniform", 1 << 40}} {
		for _, size := range []int{1000, 50_000} {
			b.Run(fmt.Sprintf("%s/batch_%d", c.name, size), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				events := make([]fold.Event, size)
				for i := range events {
					events[i] = fold.Event{Offset: int64(i), Event: schema.Event{PostID: 1 + r.Uint64N(c.posts), UserID: 1 + r.Uint64N(1<<20), Action: schema.Like, TimeMs: 1e12 + int64(i), Region: schema.Region{'U', 'S'}}}
				}
				var f fold.Folder
				empty := newMemory()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := f.Fold(events, empty); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/event")
			})
		}
	}
}
