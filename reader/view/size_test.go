package view

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/schema"
	"kudos/stream/store"
)

// TestBytesPerPost measures a count on disk, and in the block cache when every post is hot. Sizes do not depend on the
// machine. (Weibo's hand-packed counter service had 8 to 16 bytes.)
func TestBytesPerPost(t *testing.T) {
	const n = 200_000
	random := rand.New(rand.NewPCG(1, 2))
	for name, id := range map[string]func(i int) uint64{
		"numbered": func(i int) uint64 { return uint64(i*8 + 1) }, // one partition of eight
		"snowflake": func(i int) uint64 {
			return uint64(1_700_000_000_000+i*500+random.IntN(500))<<22 | random.Uint64N(1<<12)
		},
		"random": func(int) uint64 { return random.Uint64() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stores := store.NewSet(dir, 8<<20, testkit.Log())
			defer stores.Close()
			stores.MemtableBytes = memtableBytes
			store := stores.New("t", 0)
			require.NoError(t, store.Open())
			ids := make([]uint64, n)
			for i := range ids {
				ids[i] = id(i)
			}
			random.Shuffle(n, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			for len(ids) > 0 {
				w := store.NewWrite()
				for _, post := range ids[:n/100] {
					c := schema.Counts{Likes: int64(random.ExpFloat64() * 100)}
					if random.IntN(5) == 0 {
						c.Dislikes = int64(random.ExpFloat64() * 5)
					}
					require.NoError(t, w.Set(appendCountsKey(nil, post), appendCounts(nil, c)))
				}
				require.NoError(t, w.Commit(0))
				ids = ids[n/100:]
			}
			require.NoError(t, store.Close())
			disk, memory := sizes(t, filepath.Join(dir, "t", "0"))
			t.Logf("%.1f bytes per post on disk, %.1f in the block cache", disk/n, memory/n)
			require.LessOrEqual(t, disk/n, 16.0)
			require.LessOrEqual(t, memory/n, 24.0)
		})
	}
}

// sizes returns the size of a compacted store, and of the block cache when it holds everything.
func sizes(t *testing.T, dir string) (disk, memory float64) {
	cache := pebble.NewCache(256 << 20)
	defer cache.Unref()
	db, err := pebble.Open(dir, &pebble.Options{Cache: cache, DisableWAL: true, FormatMajorVersion: pebble.FormatNewest,
		Logger: silent{}})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	iter, err := db.NewIter(nil)
	require.NoError(t, err)
	for ok := iter.First(); ok; ok = iter.Next() {
		_, err := iter.ValueAndErr()
		require.NoError(t, err)
	}
	require.NoError(t, iter.Close())
	m := db.Metrics()
	return float64(m.Total().TablesSize), float64(m.BlockCache.Size)
}

// silent keeps Pebble's log out of the tests' output.
type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
