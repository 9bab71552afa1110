package store

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	benchPairs = 200_000
	benchBatch = 1_000
)

// benchStore has pairs (post, user) with even users, flushed to files.
func benchStore(b *testing.B) *Store {
	s := openStore(b, b.TempDir(), testLogID)
	w := s.NewWrite()
	for i := range uint64(benchPairs) {
		require.NoError(b, w.Set([]byte(pairKey(i%1000, 2*i)), make([]byte, 24)))
	}
	require.NoError(b, w.Commit(1))
	require.NoError(b, s.db.Flush())
	return s
}

// benchKeys makes sorted batches of keys, of which the part `known` is there.
func benchKeys(known float64) [][][]byte {
	r := rand.New(rand.NewPCG(1, 1))
	batches := make([][][]byte, 64)
	for i := range batches {
		keys := make([]string, benchBatch)
		for j := range keys {
			n := r.Uint64N(benchPairs)
			user := 2 * n
			if r.Float64() >= known {
				user++
			}
			keys[j] = pairKey(n%1000, user)
		}
		slices.Sort(keys)
		for _, k := range slices.Compact(keys) {
			batches[i] = append(batches[i], []byte(k))
		}
	}
	return batches
}

// BenchmarkLookup tells ns and allocations of a batch, and ns of one key.
func BenchmarkLookup(b *testing.B) {
	s := benchStore(b)
	for name, known := range map[string]float64{"known": 1, "unknown": 0} {
		b.Run(name, func(b *testing.B) {
			batches := benchKeys(known)
			keys, found := 0, 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				batch := batches[i%len(batches)]
				keys += len(batch)
				err := s.Lookup(len(batch), func(i int) []byte { return batch[i] }, func(int, []byte) error { found++; return nil })
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(keys), "ns/key")
			b.ReportMetric(float64(found)/float64(keys), "found/key")
		})
	}
}

// BenchmarkGet is what Lookup is compared with: key by key, in the same order.
func BenchmarkGet(b *testing.B) {
	s := benchStore(b)
	batches := benchKeys(1)
	keys := 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for _, k := range batches[i%len(batches)] {
			_, err := s.Get(string(k))
			require.NoError(b, err)
			keys++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(keys), "ns/key")
}

// BenchmarkWrite tells ns and allocations of a batch, and ns of one key.
func BenchmarkWrite(b *testing.B) {
	s := benchStore(b)
	batches := benchKeys(0.5)
	value := make([]byte, 24)
	keys := 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w := s.NewWrite()
		for _, k := range batches[i%len(batches)] {
			require.NoError(b, w.Set(k, value))
			keys++
		}
		require.NoError(b, w.Commit(int64(i)))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(keys), "ns/key")
}
