package store

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

func newStore(t testing.TB, dir string) *Store {
	stores := NewSet(dir, 64<<20, testkit.Log())
	t.Cleanup(stores.Close)
	s := stores.New("table", 0)
	require.Same(t, s, stores.Get("table", 0))
	return s
}

func openStore(t testing.TB, dir string) *Store {
	s := newStore(t, dir)
	require.NoError(t, s.Open())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// put writes keys, each with itself and round as its value, and the offset.
func put(t testing.TB, s *Store, offset int64, round string, keys ...string) {
	w := s.NewWrite()
	for _, k := range keys {
		require.NoError(t, w.Set([]byte(k), []byte(k+round)))
	}
	require.NoError(t, w.Commit(offset))
}

func requireOffset(t testing.TB, s *Store, want int64, why ...any) {
	t.Helper()
	offset, ok := s.Offset()
	require.True(t, ok, why...)
	require.Equal(t, want, offset, why...)
}

func get(t testing.TB, s *Store, key string) (value string) {
	_, err := s.Find([]byte(key), func(v []byte) error { value = string(v); return nil })
	require.NoError(t, err)
	return value
}

func contents(t testing.TB, s *Store) (all []string) {
	require.NoError(t, Scan(s, nil, nil, func(key, value []byte) (bool, error) {
		all = append(all, string(key)+"="+string(value))
		return true, nil
	}))
	return all
}

// Scan never returns the store's own record, whatever the range, and reads one moment.
func TestScan(t *testing.T) {
	s := openStore(t, t.TempDir())
	require.Empty(t, contents(t, s), "an empty store")
	put(t, s, 3, "", "A", "B", "BA", "BB", "C", "_k", "_m", "a", "\xff", "\xff\xff")
	for name, c := range map[string]struct {
		from, to []byte
		want     []string
	}{
		"all":                    {nil, nil, []string{"A", "B", "BA", "BB", "C", "_k", "_m", "a", "\xff", "\xff\xff"}},
		"prefix":                 {[]byte("B"), PrefixEnd([]byte("B")), []string{"B", "BA", "BB"}},
		"prefix of no key":       {[]byte("D"), PrefixEnd([]byte("D")), nil},
		"prefix without end":     {[]byte("\xff"), PrefixEnd([]byte("\xff")), []string{"\xff", "\xff\xff"}},
		"private key's prefix":   {[]byte("_"), PrefixEnd([]byte("_")), []string{"_k", "_m"}},
		"private key itself":     {[]byte(localKey), PrefixEnd([]byte(localKey)), nil},
		"up to a limit":          {nil, []byte("B"), []string{"A"}},
		"across the private key": {[]byte("_k"), []byte("a"), []string{"_k", "_m"}},
	} {
		t.Run(name, func(t *testing.T) {
			var keys []string
			require.NoError(t, Scan(s, c.from, c.to, func(key, value []byte) (bool, error) {
				require.Equal(t, string(key), string(value))
				keys = append(keys, string(key))
				return true, nil
			}))
			require.Equal(t, c.want, keys)
		})
	}
	var seen []string
	require.NoError(t, Scan(s, nil, nil, func(key, value []byte) (bool, error) {
		if len(seen) == 0 {
			put(t, s, 4, "-later", "B", "D")
		}
		seen = append(seen, string(value))
		return len(seen) < 3, nil
	}))
	require.Equal(t, []string{"A", "B", "BA"}, seen)
	failed := fmt.Errorf("failed")
	require.ErrorIs(t, Scan(s, nil, nil, func([]byte, []byte) (bool, error) { return true, failed }), failed)
}

func lookup(t testing.TB, s *Store, keys ...string) map[string]string {
	found := map[string]string{}
	require.NoError(t, s.Lookup(len(keys), func(i int) []byte { return []byte(keys[i]) }, func(i int, v []byte) error {
		found[keys[i]] = string(v)
		return nil
	}))
	return found
}

func TestStoreKeepsDataAndOffset(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	_, ok := s.Offset()
	require.False(t, ok, "an empty store covers no offset")
	put(t, s, 7, "", "a", "b")
	w := s.NewWrite()
	require.NoError(t, w.Set([]byte("a"), nil))
	require.NoError(t, w.Commit(8))
	w = s.NewWrite()
	require.NoError(t, w.Set([]byte("c"), []byte("dropped")))
	w.Discard()
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing twice is a no-op")

	s = openStore(t, dir)
	requireOffset(t, s, 8)
	require.Equal(t, map[string]string{"b": "b"}, lookup(t, s, "a", "b", "c"))
}

func TestStoreInUseIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	put(t, s, 7, "", "a")
	second := newStore(t, dir)
	require.ErrorContains(t, second.Open(), "opening local state in "+s.dir)
	require.NoError(t, second.Close())
	require.Equal(t, "a", get(t, s, "a"))
}

// pairKey is a key as in a state table: 8 bytes of post, 8 bytes of user.
func pairKey(post, user uint64) string {
	return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, post), user))
}

func TestLookup(t *testing.T) {
	s := openStore(t, t.TempDir())
	// The 8 bytes of this post are the beginning of a private key of 9.
	trap := binary.BigEndian.Uint64([]byte("_progres"))
	keys := []string{string(binary.BigEndian.AppendUint64(nil, 1)), pairKey(1, 1), pairKey(1, 2), pairKey(2, 1),
		"_progres", "_progress", pairKey(trap, 's'), "_loca", "_local\x00",
		string(binary.BigEndian.AppendUint64(nil, 1<<64-1)), pairKey(1<<64-1, 1<<64-1)}
	slices.Sort(keys)
	put(t, s, 3, "", keys...)
	want := map[string]string{}
	for _, k := range keys {
		want[k] = k
	}
	all := append([]string{pairKey(0, 0), pairKey(1, 3), pairKey(2, 0), "_progre", "_progresst", "_", "a"}, keys...)
	slices.Sort(all)
	check := func(where string) {
		require.Equal(t, want, lookup(t, s, all...), where)
		require.Empty(t, lookup(t, s))
		require.Empty(t, lookup(t, s, "_progre", "_progresst"), where)
		require.Equal(t, map[string]string{"_progres": "_progres"}, lookup(t, s, "_progres"), where)
	}
	check("in memory")
	require.NoError(t, s.db.Flush())
	check("in a file with Bloom filters")
	w := s.NewWrite()
	require.NoError(t, w.Set([]byte("_progress"), nil))
	require.NoError(t, w.Commit(4))
	delete(want, "_progress")
	check("after a deletion")

	stop := fmt.Errorf("stop")
	calls := 0
	require.ErrorIs(t, s.Lookup(len(keys), func(i int) []byte { return []byte(keys[i]) }, func(int, []byte) error {
		calls++
		return stop
	}), stop)
	require.Equal(t, 1, calls)
}

func TestReadersDuringWrites(t *testing.T) {
	s := openStore(t, t.TempDir())
	keys := []string{"a", "b", "c", "d"}
	put(t, s, 0, "-0", keys...)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				// A lookup sees a write as a whole or not at all.
				found := lookup(t, s, keys...)
				round := found["a"][1:]
				for _, k := range keys {
					if found[k] != k+round {
						t.Errorf("half a write was visible: %v", found)
						return
					}
				}
				if _, err := s.Find([]byte("a"), func([]byte) error { return nil }); err != nil {
					t.Error(err)
				}
				s.Offset()
			}
		})
	}
	for i := range 500 {
		put(t, s, int64(i), fmt.Sprintf("-%d", i), keys...)
		if i%100 == 99 {
			require.NoError(t, s.db.Flush())
		}
	}
	stop.Store(true)
	wg.Wait()
}

// fill writes n keys and flushes, so that there are files.
func fill(t testing.TB, s *Store, n int, offset int64) {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%06d", i)
	}
	put(t, s, offset, "", keys...)
	require.NoError(t, s.db.Flush())
}

func newest(t testing.TB, s *Store, pattern string) string {
	files, err := filepath.Glob(filepath.Join(s.dir, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	return files[len(files)-1]
}

func damage(t testing.TB, file string) {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	for i := range b {
		b[i] ^= 0x55
	}
	require.NoError(t, os.WriteFile(file, b, 0o644))
}

func TestDamagedStoreIsBuiltAgain(t *testing.T) {
	cut := func(pattern string, to int64) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) { require.NoError(t, os.Truncate(newest(t, s, pattern), to)) }
	}
	remove := func(pattern string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) { require.NoError(t, os.Remove(newest(t, s, pattern))) }
	}
	overwrite := func(pattern string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) { damage(t, newest(t, s, pattern)) }
	}
	for name, harm := range map[string]func(*testing.T, *Store){
		"table truncated":         cut("*.sst", 100),
		"table overwritten":       overwrite("*.sst"),
		"table missing":           remove("*.sst"),
		"manifest emptied":        cut("MANIFEST*", 0),
		"manifest truncated":      cut("MANIFEST*", 60),
		"manifest overwritten":    overwrite("MANIFEST*"),
		"manifest missing":        remove("MANIFEST*"),
		"manifest marker missing": remove("marker.manifest*"),
		"options overwritten":     overwrite("OPTIONS*"),
		"already known to be corrupted": func(t *testing.T, s *Store) {
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, corruptMark), nil, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir)
			fill(t, s, 5000, 7)
			require.NoError(t, s.Close())
			harm(t, s)

			s = openStore(t, dir)
			_, ok := s.Offset()
			require.False(t, ok, "damaged files must not be trusted")
			require.Empty(t, lookup(t, s, "key-000001"))
			put(t, s, 1, "-new", "key-000001")
			require.NoError(t, s.Close())
			require.NoError(t, s.Open())
			require.Equal(t, "key-000001-new", get(t, s, "key-000001"))
		})
	}
}

// A corrupted block must neither end the process (Pebble's default) nor be an error forever.
func TestStoreCorruptedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	fill(t, s, 5000, 7)
	require.NoError(t, s.Close())
	s = openStore(t, dir) // with nothing in the cache but the first block
	damage(t, newest(t, s, "*.sst"))
	err := s.Lookup(1, func(int) []byte { return []byte("key-004000") }, func(int, []byte) error { return nil })
	require.Error(t, err)
	require.True(t, pebble.IsCorruptionError(err), err)
	w := s.NewWrite()
	require.NoError(t, w.Set([]byte("a"), []byte("b")))
	require.ErrorIs(t, w.Commit(8), errCorrupted, "a damaged store rejects writes")
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	_, ok := s.Offset()
	require.False(t, ok)
}
