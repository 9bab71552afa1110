package bench

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// TestStreamIsTheSameEverywhere pins the bytes that a seed gives.
func TestStreamIsTheSameEverywhere(t *testing.T) {
	want := map[string]string{
		"hot":            "d0d3d8a88d46f50f",
		"skewed-1000":    "2d46f005a40f7bc8",
		"skewed-1000000": "eb8702d96813d55d",
		"uniform":        "9b7337298fe30d5a",
	}
	have := map[string]string{}
	for _, shape := range Shapes() {
		s, err := NewStream(1, shape)
		require.NoError(t, err)
		hash := sha256.New()
		for range 20_000 {
			e, err := s.Next()
			require.NoError(t, err)
			hash.Write(schema.AppendEvent(nil, &e))
		}
		for post, n := range s.Liked() {
			hash.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, post), uint64(n)))
		}
		have[shape.Name] = hex.EncodeToString(hash.Sum(nil))[:16]
	}
	require.Equal(t, want, have, "the stream is another one: figures do not compare with earlier ones")
}

// TestStreamCountsAreThoseOfARecount sorts the events by pair and looks at the last of each.
func TestStreamCountsAreThoseOfARecount(t *testing.T) {
	const events = 50_000
	for _, shape := range append(Shapes(), Shape{Name: "few", Posts: 7, Partitions: 1}) {
		s, err := NewStream(7, shape)
		require.NoError(t, err)
		type numbered struct {
			schema.Event
			n int
		}
		log := make([]numbered, events)
		for i := range log {
			e, err := s.Next()
			require.NoError(t, err)
			require.NoError(t, e.Check())
			if e.PostID > uint64(shape.Posts) || i > 0 && e.TimeMs < log[i-1].TimeMs {
				t.Fatalf("shape %s: event %d is %+v, after %+v: a post beyond the last one, or a time that decreases", shape.Name, i, e, log[max(0, i-1)].Event)
			}
			log[i] = numbered{e, i}
		}
		slices.SortFunc(log, func(a, b numbered) int {
			return cmp.Or(cmp.Compare(a.PostID, b.PostID), cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.n, b.n))
		})
		want, pairs, unlikes := map[uint64]int64{}, 0, 0
		for i, e := range log {
			if e.Action == schema.Unlike {
				unlikes++
			}
			if i+1 < len(log) && log[i+1].PostID == e.PostID && log[i+1].UserID == e.UserID {
				continue
			}
			pairs++
			if e.Action == schema.Like {
				want[e.PostID]++
			}
		}
		have := map[uint64]int64{}
		for post, n := range s.Liked() {
			have[post] = n
			if s.Count(post) != n {
				t.Fatalf("post %d: Count says %d, Liked %d", post, s.Count(post), n)
			}
		}
		require.Equal(t, want, have, "shape %s", shape.Name)
		require.Equal(t, pairs, s.Pairs(), "shape %s: no two pairs may have the same user", shape.Name)
		require.Equal(t, events, s.Events())
		require.InEpsilon(t, events*9/10, pairs, 0.02, "shape %s: new pairs", shape.Name)
		require.Greater(t, unlikes, events*unlikesPer100/100, "shape %s: unlikes, and repeats of some", shape.Name)
	}
}

// TestSkewedIsZipf: the first post has twice the likes of the second, and ten times those of the tenth.
func TestSkewedIsZipf(t *testing.T) {
	shape, err := ShapeNamed("skewed-1000")
	require.NoError(t, err)
	s, err := NewStream(1, shape)
	require.NoError(t, err)
	for range 300_000 {
		_, err := s.Next()
		require.NoError(t, err)
	}
	require.InEpsilon(t, 2, float64(s.Count(1))/float64(s.Count(2)), 0.1)
	require.InEpsilon(t, 10, float64(s.Count(1))/float64(s.Count(10)), 0.1)
	require.Zero(t, s.Count(0))
	require.Zero(t, s.Count(1001))
}

func TestShapeNamedSaysWhatThereIs(t *testing.T) {
	_, err := ShapeNamed("warm")
	require.ErrorContains(t, err, "skewed-1000")
	_, err = NewStream(1, Shape{Name: "empty"})
	require.ErrorContains(t, err, "empty: 0 posts")
}
