package fold_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kudos/processor/fold"
	"kudos/processor/fold/foldtest"
	"kudos/schema"
)

// memory is a State in maps that collects what tests check of the changes.
type memory struct {
	foldtest.State
	sums        map[deltaKey]schema.Counts // of the deltas, by post, minute and region
	transitions int                        // events that changed a reaction
	void        map[uint64]bool            // users who were voided: still?
}

type deltaKey struct {
	post   uint64
	minute int64
	region schema.Region
}

func newMemory() *memory {
	state := foldtest.State{Pair: map[fold.PairKey]schema.Pair{}, Count: map[uint64]schema.Counts{}}
	return &memory{State: state, sums: map[deltaKey]schema.Counts{}, void: map[uint64]bool{}}
}

func (m *memory) fold(t testing.TB, events []fold.Event, size int) {
	var f fold.Engine
	for batch := range slices.Chunk(events, size) {
		r, err := f.Fold(batch, m)
		require.NoError(t, err)
		m.transitions += r.Transitions
		for _, u := range r.Voids {
			require.NotEqual(t, m.void[u.UserID], u.Void, "no change")
			m.void[u.UserID] = u.Void
		}
		for _, p := range r.Pairs {
			m.Pair[p.Key] = p.Pair
		}
		for _, c := range r.Counts {
			m.Count[c.PostID] = c.Counts
		}
		for _, u := range r.Updates {
			require.NotEmpty(t, u.Deltas, "an update without a change")
			require.Equal(t, m.Count[u.PostID], u.Counts, "counts of post %d in its update and in the state", u.PostID)
			for _, d := range u.Deltas {
				k := deltaKey{u.PostID, d.Minute, d.Region}
				m.sums[k] = m.sums[k].Plus(schema.Counts{Likes: d.Likes, Dislikes: d.Dislikes})
			}
		}
	}
}

// naive is a second implementation of the fold, as simple as possible: every event in log order against a map.
func naive(events []fold.Event) *memory {
	m := newMemory()
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b fold.Event) int { return int(a.Offset - b.Offset) })
	for _, e := range events {
		k := fold.PairKey{PostID: e.PostID, UserID: e.UserID}
		old, known := m.Pair[k]
		switch {
		case e.Action.OfUser():
			if _, was := m.void[e.UserID]; was || e.Action == schema.Void {
				m.void[e.UserID] = e.Action == schema.Void
			}
			continue
		case known:
			old.Void = m.void[e.UserID]
			m.Pair[k] = old
		}
		late := known && (e.TimeMs < old.TimeMs || e.TimeMs == old.TimeMs && e.Offset <= old.Offset)
		if e.Action == schema.Recount || late {
			continue
		}
		reactions := map[schema.Action]schema.Reaction{schema.Like: schema.Liked, schema.Dislike: schema.Disliked}
		reaction := reactions[e.Action] // none for an unlike
		p := schema.Pair{Reaction: reaction, TimeMs: e.TimeMs, Offset: e.Offset, SinceMs: e.TimeMs, Region: e.Region,
			Void: m.void[e.UserID]}
		if known && p.Reaction == old.Reaction {
			p.SinceMs, p.Region = old.SinceMs, old.Region
		}
		if p.Reaction != old.Reaction {
			m.transitions++
		}
		m.Pair[k] = p
	}
	for k, p := range m.Pair {
		var one schema.Counts
		switch {
		case p.Void:
		case p.Reaction == schema.Liked:
			one.Likes = 1
		case p.Reaction == schema.Disliked:
			one.Dislikes = 1
		}
		d := deltaKey{k.PostID, p.SinceMs / 60000, p.Region}
		m.Count[k.PostID], m.sums[d] = m.Count[k.PostID].Plus(one), m.sums[d].Plus(one)
	}
	return m
}

func notZero[K comparable](sums map[K]schema.Counts) map[K]schema.Counts {
	sums = maps.Clone(sums)
	maps.DeleteFunc(sums, func(_ K, c schema.Counts) bool { return c == (schema.Counts{}) })
	return sums
}

func (m *memory) diff(want *memory) string {
	return cmp.Diff(want.Pair, m.Pair) + cmp.Diff(want.void, m.void) + cmp.Diff(notZero(want.Count), notZero(m.Count)) +
		cmp.Diff(notZero(want.sums), notZero(m.sums), cmp.AllowUnexported(deltaKey{}))
}

// randomEvents makes few pairs collide often, also with equal times.
func randomEvents(r *rand.Rand, n int) []fold.Event {
	regions := []schema.Region{{'U', 'S'}, {'D', 'E'}, schema.UnknownRegion, {'U', 'S', '-', 'C', 'A'}}
	events := make([]fold.Event, n)
	for i := range events {
		events[i] = fold.Event{Offset: int64(i), Event: schema.Event{
			PostID: 1 + r.Uint64N(4), UserID: 1 + r.Uint64N(5), Action: schema.Action(1 + r.IntN(3)),
			TimeMs: 60_000*int64(r.IntN(5)) + int64(r.IntN(3)), Region: regions[r.IntN(len(regions))],
		}}
	}
	return events
}

// voiding replaces some events by those of `kudos void`.
func voiding(r *rand.Rand, events []fold.Event) {
	for i := range events {
		switch e := &events[i]; r.IntN(10) {
		case 0:
			e.PostID, e.Action = 0, []schema.Action{schema.Void, schema.Void, schema.Unvoid}[r.IntN(3)]
		case 1:
			e.Action = schema.Recount
		}
	}
}

func TestFoldEqualsNaiveFoldInAnyBatching(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		events := randomEvents(r, 1+r.IntN(200))
		if seed%2 == 1 {
			voiding(r, events)
		}
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

// Where a like counts (since, region) may depend on the order of arrival; the reactions may not.
func TestAnyPermutationAndDuplicationGivesTheSameState(t *testing.T) {
	type latest struct {
		Reaction       schema.Reaction
		TimeMs, Offset int64
	}
	states := func(m *memory) map[fold.PairKey]latest {
		out := map[fold.PairKey]latest{}
		for k, p := range m.Pair {
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
		for post, c := range want.Count {
			require.Equal(t, c, m.Count[post], "seed %d, post %d", seed, post)
		}
		var left schema.Counts
		for _, s := range m.sums {
			left = left.Plus(s)
		}
		for _, c := range want.Count {
			left = left.Minus(c)
		}
		require.Zero(t, left, "seed %d: deltas and counts", seed)
	}
}

func event(offset int64, action schema.Action, timeMs int64, region string) fold.Event {
	rg, _ := schema.ParseRegion(region)
	e := schema.Event{PostID: 7, UserID: 1, Action: action, TimeMs: timeMs, Region: rg}
	return fold.Event{Offset: offset, Event: e}
}

func delta(region string, minute, likes, dislikes int64) schema.Delta {
	rg, _ := schema.ParseRegion(region)
	return schema.Delta{Region: rg, Minute: minute, Likes: likes, Dislikes: dislikes}
}

func TestDeltas(t *testing.T) {
	const m = 60_000
	type events = []fold.Event
	type deltas = []schema.Delta
	of := func(action schema.Action) func(offset, timeMs int64, region string) fold.Event {
		return func(offset, timeMs int64, region string) fold.Event { return event(offset, action, timeMs, region) }
	}
	like, dislike, unlike := of(schema.Like), of(schema.Dislike), of(schema.Unlike)
	liked := events{like(0, 5*m, "US")}
	for name, c := range map[string]struct {
		before, batch []fold.Event
		want          []schema.Delta
		counts        schema.Counts
	}{
		"a like": {nil, liked, deltas{delta("US", 5, 1, 0)}, schema.Counts{Likes: 1}},
		"a double click": {nil, append(liked, like(1, 5*m, "US")),
			deltas{delta("US", 5, 1, 0)}, schema.Counts{Likes: 1}},
		"liked again": {liked, events{like(1, 6*m, "DE")}, nil, schema.Counts{Likes: 1}},
		"withdrawn where it was counted": {liked, events{unlike(1, 9*m, "DE")},
			deltas{delta("US", 5, -1, 0)}, schema.Counts{}},
		"like and unlike in one batch": {nil, events{like(0, 5*m, "US"), unlike(1, 6*m, "US")}, nil, schema.Counts{}},
		"moved to another minute": {liked, events{unlike(1, 6*m, "US"), like(2, 7*m, "DE")},
			deltas{delta("US", 5, -1, 0), delta("DE", 7, 1, 0)}, schema.Counts{Likes: 1}},
		"a like becomes a dislike": {liked, events{dislike(1, 5*m+1, "US")},
			deltas{delta("US", 5, -1, 1)}, schema.Counts{Dislikes: 1}},
		"unlike withdraws a dislike": {events{dislike(0, 5*m, "US")}, events{unlike(1, 6*m, "US")},
			deltas{delta("US", 5, 0, -1)}, schema.Counts{}},
		"an earlier event is late": {events{unlike(0, 5*m, "US")}, events{like(1, 4*m, "US")}, nil, schema.Counts{}},
		"a late event between two likes": {events{like(0, 5*m, "US"), like(1, 9*m, "US")},
			events{unlike(2, 7*m, "US")}, nil, schema.Counts{Likes: 1}},
		"equal times: the later offset decides": {liked, events{unlike(1, 5*m, "US")},
			deltas{delta("US", 5, -1, 0)}, schema.Counts{}},
		"an unlike without a like overrides an earlier like": {events{unlike(0, 5*m, "US")},
			events{like(1, 5*m-1, "US")}, nil, schema.Counts{}},
	} {
		t.Run(name, func(t *testing.T) {
			state := newMemory()
			if len(c.before) > 0 {
				state.fold(t, c.before, len(c.before))
			}
			var f fold.Engine
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
					events[i] = fold.Event{Offset: int64(i),
						Event: schema.Event{PostID: 1 + r.Uint64N(c.posts), UserID: 1 + r.Uint64N(1<<20),
							Action: schema.Like, TimeMs: 1e12 + int64(i), Region: schema.Region{'U', 'S'}}}
				}
				var f fold.Engine
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

// TestVoidIsUndoneExactly: once a user is voided and each reaction recounted, the counts are as if the user had done
// nothing; after an UNVOID they are as if there had been no VOID, in each minute and region.
func TestVoidIsUndoneExactly(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		events := randomEvents(r, 1+r.IntN(200))
		from := r.IntN(len(events))
		step := func(action schema.Action) (all []fold.Event) {
			next := int64(len(events)) * (1 + int64(action))
			all = append(all, fold.Event{Offset: next, Event: schema.Event{UserID: 1, Action: action}})
			for post := range uint64(4) {
				all = append(all, fold.Event{Offset: next + 1 + int64(post),
					Event: schema.Event{PostID: 1 + post, UserID: 1, Action: schema.Recount}})
			}
			return all
		}
		m, size := newMemory(), 1+r.IntN(9)
		m.fold(t, slices.Concat(events[:from], step(schema.Void), events[from:]), size)
		others := naive(slices.DeleteFunc(slices.Clone(events), func(e fold.Event) bool { return e.UserID == 1 }))
		require.Equal(t, notZero(others.Count), notZero(m.Count), "seed %d", seed)
		require.Equal(t, notZero(others.sums), notZero(m.sums), "seed %d", seed)

		m = newMemory()
		m.fold(t, slices.Concat(events[:from], step(schema.Void), events[from:], step(schema.Unvoid)), size)
		m.void = map[uint64]bool{}
		require.Empty(t, m.diff(naive(events)), "seed %d", seed)
	}
}
