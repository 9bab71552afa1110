package ranker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/ranker/window"
	"kudos/schema"
)

// newMerge is a worker of trending that has heard of nobody yet, and has no table: it gets
// seals only.
func newMerge(partitions int) (*trending, *output) {
	w := &trending{
		config: &window.Config{Windows: []window.Window{window.New(10, 0)}, Lateness: 2, TopN: 5, MinLikes: 1},
		keys:   map[window.Key]*ranking{}, ends: map[string]schema.Minute{}, exclusions: newExclusions(),
		sources: make([]source, partitions),
	}
	w.log, w.settings = discardLog(), w.config.Settings()
	for i := range w.sources {
		w.sources[i].forget()
	}
	return w, w.newOutput()
}

// sealAt is a partition's seal at a watermark, to which it came right now.
func sealAt(w *trending, at schema.Minute) *localSeal {
	return &localSeal{
		Gap: schema.NoMinute, Origin: origin{Settings: w.settings},
		Seal:  window.Seal{Clock: at + 2, Watermark: at, Offset: int64(at), Idle: schema.NoMinute},
		Marks: []window.SealedMark{{Mark: window.Mark{Watermark: at, Offset: int64(at), Idle: schema.NoMinute}}},
	}
}

func (w *trending) mustTake(t *testing.T, p int32, s *localSeal, out *output) {
	t.Helper()
	require.NoError(t, w.takeSeal(p, appendSeal(nil, s), out))
}

// TestNothingIsPublishedBeforeAllAreHeard of, by seals that this process's settings made.
func TestNothingIsPublishedBeforeAllAreHeard(t *testing.T) {
	w, out := newMerge(2)
	publish := func() map[string]schema.Minute {
		t.Helper()
		require.NoError(t, w.publish(out))
		return w.ends
	}
	w.mustTake(t, 0, sealAt(w, 100), out)
	require.NoError(t, w.meet(1, origin{Settings: w.settings}, out)) // a list came, and no seal yet
	require.Empty(t, publish())
	other := sealAt(w, 100)
	other.Origin.Settings++
	w.mustTake(t, 1, other, out)
	require.Empty(t, publish())
	w.mustTake(t, 1, sealAt(w, 100), out)
	require.Equal(t, map[string]schema.Minute{"10m": 101}, publish())
}

// TestSealsTellWhatIsKnown: since when, what the marks are, and which lists may be used.
func TestSealsTellWhatIsKnown(t *testing.T) {
	w, out := newMerge(1)
	key := window.Key{Region: schema.Global, Window: "10m"}
	s := &w.sources[0]
	w.mustTake(t, 0, sealAt(w, 100), out)
	require.EqualValues(t, 100, s.Since)
	require.NoError(t, w.takeList(key, 0, appendList(nil, &localList{
		Version: window.Version{Key: key, End: 101, Offset: 101}, Origin: s.origin,
	}), out))
	require.False(t, w.keys[key].dirty, "it is not sealed")
	w.mustTake(t, 0, sealAt(w, 101), out)
	require.True(t, w.keys[key].dirty)
	require.Empty(t, s.pending)
	require.EqualValues(t, 100, s.Since)
	require.Len(t, s.Marks, 2)
	require.EqualValues(t, 101, s.Seal.Offset)
}

// TestABeginningAnewIsForgotten: of a partition whose table or settings are others, nothing
// that it reported before holds.
func TestABeginningAnewIsForgotten(t *testing.T) {
	w, out := newMerge(1)
	w.mustTake(t, 0, sealAt(w, 100), out)
	again := sealAt(w, 50)
	again.Origin.Table[0] = 1
	w.mustTake(t, 0, again, out)
	require.EqualValues(t, 50, w.sources[0].Since)
	require.Equal(t, again.Marks, w.sources[0].Marks)
	var last []byte // what is left of the mark at 100
	for _, rec := range out.state {
		if string(rec.Key) == string(markKey(0, 100)) {
			last = rec.Value
		}
	}
	require.Nil(t, last, "deleted from the table, too")
}

// TestRankingsWaitForOneLayout: while posts are on their way from one partition to another, and until all partitions tell
// that they have arrived, nothing is made of their lists.
func TestRankingsWaitForOneLayout(t *testing.T) {
	w, out := newMerge(2)
	at := schema.Minute(100)
	seals := func(a, b layout) bool {
		t.Helper()
		at += 10
		for p, l := range []layout{a, b} {
			s := sealAt(w, at)
			s.layout = l
			w.mustTake(t, int32(p), s, out)
			require.Equal(t, l, w.sources[p].layout)
		}
		before := w.ends["10m"]
		require.NoError(t, w.publish(out))
		return w.ends["10m"] != before
	}
	require.True(t, seals(layout{}, layout{}))
	require.False(t, seals(layout{1, true}, layout{}), "locked")
	require.False(t, seals(layout{1, true}, layout{1, true}), "moving")
	require.False(t, seals(layout{1, false}, layout{1, true}), "arrived here, and not there")
	require.False(t, seals(layout{1, false}, layout{}), "there it has not begun")
	require.True(t, seals(layout{1, false}, layout{1, false}))
}
