package store

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
)

var testLogID = kafka.LogID{ClusterID: "a-cluster", TopicID: [16]byte{1, 2, 3}}

// newStore makes a store of partition 0 of topic "table" below dir.
func newStore(t testing.TB, dir string, id kafka.LogID) *Store {
	stores := NewSet(dir, 64<<20, testkit.Log())
	t.Cleanup(stores.Close)
	s := stores.New(id, "table", 0)
	require.Same(t, s, stores.Get("table", 0))
	return s
}

func openStore(t testing.TB, dir string, id kafka.LogID) *Store {
	s := newStore(t, dir, id)
	require.NoError(t, s.Open())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// put writes keys, whose values are their own and round's, and the offset.
func put(t testing.TB, s *Store, offset int64, round string, keys ...string) {
	w := s.NewWrite()
	for _, k := range keys {
		require.NoError(t, w.Set([]byte(k), []byte(k+round)))
	}
	require.NoError(t, w.Commit(offset))
}

func get(t testing.TB, s *Store, key string) string {
	v, err := s.Get(key)
	require.NoError(t, err)
	return string(v)
}

// lookup returns what Lookup finds of keys, by key.
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
	s := newStore(t, dir, testLogID)
	require.NoError(t, s.Open())
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
	require.NoError(t, s.Close(), "closing again is nothing")

	s = openStore(t, dir, testLogID)
	offset, ok := s.Offset()
	require.True(t, ok)
	require.EqualValues(t, 8, offset)
	require.Equal(t, map[string]string{"b": "b"}, lookup(t, s, "a", "b", "c"))
}

func TestStoreOfAnotherLogIsWiped(t *testing.T) {
	for name, id := range map[string]kafka.LogID{
		"cluster": {ClusterID: "another", TopicID: testLogID.TopicID},
		"topic":   {ClusterID: testLogID.ClusterID, TopicID: [16]byte{9}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := newStore(t, dir, testLogID)
			require.NoError(t, s.Open())
			put(t, s, 7, "", "a", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
			require.NoError(t, s.Close())

			s = openStore(t, dir, id)
			_, ok := s.Offset()
			require.False(t, ok)
			it, err := s.Iterator()
			require.NoError(t, err)
			defer it.Release()
			require.False(t, it.Next(), "nothing of the other log may be left")
		})
	}
}

func TestStoreInUseIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, testLogID)
	put(t, s, 7, "", "a")
	second := newStore(t, dir, testLogID)
	require.ErrorContains(t, second.Open(), "opening local state in "+s.dir)
	require.NoError(t, second.Close())
	require.Equal(t, "a", get(t, s, "a"))
}

// pairKey is what a state table has: 8 bytes of post, 8 bytes of user.
func pairKey(post, user uint64) string {
	return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, post), user))
}

func TestLookup(t *testing.T) {
	s := openStore(t, t.TempDir(), testLogID)
	// A post whose 8 bytes begin the 9 of a private key, and its pairs.
	trap := binary.BigEndian.Uint64([]byte("_progres"))
	keys := []string{
		string(binary.BigEndian.AppendUint64(nil, 1)), pairKey(1, 1), pairKey(1, 2), pairKey(2, 1),
		"_progres", "_progress", pairKey(trap, 's'), "_loca", "_local\x00",
		string(binary.BigEndian.AppendUint64(nil, 1<<64-1)), pairKey(1<<64-1, 1<<64-1),
	}
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
	check("in a file, behind Bloom filters")
	require.NoError(t, s.Delete("_progress"))
	delete(want, "_progress")
	check("one deleted")

	stop := fmt.Errorf("stop")
	calls := 0
	require.ErrorIs(t, s.Lookup(len(keys), func(i int) []byte { return []byte(keys[i]) }, func(int, []byte) error {
		calls++
		return stop
	}), stop)
	require.Equal(t, 1, calls)
}

func TestReadersBesideTheWriter(t *testing.T) {
	s := openStore(t, t.TempDir(), testLogID)
	keys := []string{"a", "b", "c", "d"}
	put(t, s, 0, "-0", keys...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// A look-up sees one write whole or not at all.
				found := lookup(t, s, keys...)
				round := found["a"][1:]
				for _, k := range keys {
					if found[k] != k+round {
						t.Errorf("half a write was visible: %v", found)
						return
					}
				}
				if _, err := s.Get("a"); err != nil {
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
	close(stop)
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
	for name, harm := range map[string]func(t *testing.T, s *Store){
		"table cut short":      func(t *testing.T, s *Store) { require.NoError(t, os.Truncate(newest(t, s, "*.sst"), 100)) },
		"table overwritten":    func(t *testing.T, s *Store) { damage(t, newest(t, s, "*.sst")) },
		"table missing":        func(t *testing.T, s *Store) { require.NoError(t, os.Remove(newest(t, s, "*.sst"))) },
		"manifest cut off":     func(t *testing.T, s *Store) { require.NoError(t, os.Truncate(newest(t, s, "MANIFEST*"), 0)) },
		"manifest cut short":   func(t *testing.T, s *Store) { require.NoError(t, os.Truncate(newest(t, s, "MANIFEST*"), 60)) },
		"manifest overwritten": func(t *testing.T, s *Store) { damage(t, newest(t, s, "MANIFEST*")) },
		"manifest missing":     func(t *testing.T, s *Store) { require.NoError(t, os.Remove(newest(t, s, "MANIFEST*"))) },
		"its marker missing":   func(t *testing.T, s *Store) { require.NoError(t, os.Remove(newest(t, s, "marker.manifest*"))) },
		"options overwritten":  func(t *testing.T, s *Store) { damage(t, newest(t, s, "OPTIONS*")) },
		"found corrupted before": func(t *testing.T, s *Store) {
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, corruptMark), nil, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := newStore(t, dir, testLogID)
			require.NoError(t, s.Open())
			fill(t, s, 5000, 7)
			require.NoError(t, s.Close())
			harm(t, s)

			s = openStore(t, dir, testLogID)
			_, ok := s.Offset()
			require.False(t, ok, "nothing may be believed of damaged files")
			require.Empty(t, lookup(t, s, "key-000001"))
			put(t, s, 1, "-new", "key-000001")
			require.NoError(t, s.Close())
			require.NoError(t, s.Open())
			require.Equal(t, "key-000001-new", get(t, s, "key-000001"))
		})
	}
}

// TestStoreCorruptedWhileOpen: a block that does not read right must neither end the
// process (Pebble's default) nor be an error for ever.
func TestStoreCorruptedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, testLogID)
	require.NoError(t, s.Open())
	fill(t, s, 5000, 7)
	require.NoError(t, s.Close())
	s = openStore(t, dir, testLogID) // with nothing in the cache but the first block
	damage(t, newest(t, s, "*.sst"))
	err := s.Lookup(1, func(int) []byte { return []byte("key-004000") }, func(int, []byte) error { return nil })
	require.Error(t, err)
	require.True(t, pebble.IsCorruptionError(err), err)
	w := s.NewWrite()
	require.NoError(t, w.Set([]byte("a"), []byte("b")))
	require.ErrorIs(t, w.Commit(8), errCorrupted, "what is damaged is not written on")
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	_, ok := s.Offset()
	require.False(t, ok)
}
