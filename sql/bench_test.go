package sql

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkApply runs on each real server, for several batch and statement sizes: batches of random posts out of 1
// million rows. The default of MaxStatementBytes comes from here.
func BenchmarkApply(b *testing.B) {
	for _, s := range realServers() {
		b.Run(s.name, func(b *testing.B) { benchmarkApply(b, realDatabase(b, s.dsn(b))) })
	}
}

func benchmarkApply(b *testing.B, db database) {
	setup := db.startedStore(b)
	const rows = 1_000_000
	position := start
	for first := uint64(0); first < rows; first += 50_000 {
		counts := make([]CountDelta, 50_000)
		for i := range counts {
			counts[i] = CountDelta{PostID: first + uint64(i), Likes: 1}
		}
		next := at(position.NextOffset+1, 0)
		require.NoError(b, setup.Apply(b.Context(), likesTopic(), 0, position, next, counts, nil))
		position = next
	}
	for _, posts := range []int{1, 1000, 50_000} {
		for _, kib := range []int{8, 32, 64, 128, 256, 512, 1024, 4096} {
			if posts < 1000 && kib != 256 {
				continue
			}
			b.Run(fmt.Sprintf("posts=%d/KiB=%d", posts, kib), func(b *testing.B) {
				s := db.store(b, func(o *Options) { o.MaxStatementBytes = kib << 10 })
				random := rand.New(rand.NewPCG(3, 4))
				b.ReportAllocs()
				for b.Loop() {
					next := at(position.NextOffset+1, 0)
					if err := s.Apply(b.Context(), likesTopic(), 0, position, next, randomPosts(random, posts),
						nil); err != nil {
						b.Fatal(err)
					}
					position = next
				}
				b.ReportMetric(float64(posts*b.N)/b.Elapsed().Seconds(), "posts/s")
			})
		}
	}
}

func randomPosts(random *rand.Rand, n int) []CountDelta {
	counts := make([]CountDelta, n)
	for i := range counts {
		counts[i] = CountDelta{PostID: random.Uint64N(1_000_000), Likes: 1}
	}
	return counts
}
