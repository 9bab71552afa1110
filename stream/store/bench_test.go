package store

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"kudos/dev/testkit"

	"github.com/stretchr/testify/require"
)

// BenchmarkFold does with a store what the fold does, batch by batch: it looks up the pairs and counts of all events,
// and writes them. It measures what the buffer gains over plain Pebble with as much memory, in time per event and in
// CPU time of the whole process (spills and compactions run concurrently). -benchtime=80x means 2,000,000 events.
func BenchmarkFold(b *testing.B) {
	const events = 25_000
	for _, shape := range []struct {
		name  string
		posts int
	}{{"hot", 1}, {"posts=1000", 1000}, {"uniform", 1_000_000}} {
		for _, kind := range []struct {
			name   string
			buffer uint64
		}{{"plain", 0}, {"buffered", 128 << 20}} {
			b.Run(shape.name+"/"+kind.name, func(b *testing.B) {
				stores := NewSet(b.TempDir(), 384<<20, testkit.Log()) // Pebble takes the memory of memtables from it
				defer stores.Close()
				stores.MemtableBytes, stores.BufferBytes = 32<<20, kind.buffer
				s := stores.New("table", 0)
				require.NoError(b, s.Open())
				r := rand.New(rand.NewPCG(1, 1))
				began := cpuTime(b)
				for i := 0; b.Loop(); i++ {
					foldBatch(b, s, r, shape.posts, events, int64(i))
				}
				require.NoError(b, s.Close())
				n := float64(b.N * events)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/event")
				b.ReportMetric(float64((cpuTime(b)-began).Nanoseconds())/n, "cpu-ns/event")
			})
		}
	}
}

// foldBatch looks up and writes what a batch of events needs, in key order.
func foldBatch(b *testing.B, s *Store, r *rand.Rand, posts, events int, offset int64) {
	keys := make([]string, 0, 2*events)
	for range events {
		pair := pairKey(r.Uint64N(uint64(posts)), r.Uint64N(1_000_000))
		keys = append(keys, pair, pair[:8])
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	found := 0
	require.NoError(b, s.Lookup(len(keys), func(i int) []byte {
		return []byte(keys[i])
	}, func(int, []byte) error { found++; return nil }))
	value := make([]byte, 24)
	w := s.NewWrite()
	if s.buffer != nil {
		w.Stage(len(keys), func(i int) ([]byte, []byte) { return []byte(keys[i]), value })
	} else {
		for _, key := range keys {
			require.NoError(b, w.Set([]byte(key), value))
		}
	}
	require.NoError(b, w.Commit(offset))
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
