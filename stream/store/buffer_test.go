package store

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/crashdisk"
)

// bufferedStore opens a store whose buffer is spilled after about 30 keys and holds some three times as many.
func bufferedStore(t testing.TB, fs vfs.FS, dir string) *Store {
	stores := NewSetOn(fs, dir, 1<<20, testkit.Log())
	stores.BufferBytes = 4 << 10
	t.Cleanup(stores.Close)
	s := stores.New("table", 0)
	require.NoError(t, s.Open())
	for at := s.dir; at != "." && at != "/"; { // a directory that its parent has not synced is lost in a crash
		at = fs.PathDir(at)
		dir, err := fs.OpenDir(at)
		require.NoError(t, err)
		require.NoError(t, dir.Sync())
		require.NoError(t, dir.Close())
	}
	return s
}

// Random writes, reads, scans, restarts and crashes are compared with a map, after a crash as of the offset left.
func TestBufferedStoreIsATable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			fs := crashdisk.New()
			s := bufferedStore(t, fs, "state")
			table := map[string]string{}
			history := []map[string]string{{}} // by offset + 1
			kept := 0
			for range 400 {
				switch r.IntN(40) {
				case 0:
					require.NoError(t, s.Close())
					s = bufferedStore(t, fs, "state")
					offset, ok := s.Offset()
					require.Equal(t, len(history) > 1, ok)
					require.True(t, !ok || offset == int64(len(history)-2), "closing loses nothing")
				case 1:
					crashed := fs.CrashClone(vfs.CrashCloneCfg{})
					require.NoError(t, s.Close()) // of the store that has crashed
					fs, s = crashed, bufferedStore(t, crashed, "state")
					offset, ok := s.Offset()
					if !ok {
						offset = -1
					}
					kept += int(offset + 1)
					history = history[:offset+2]
					table = maps.Clone(history[offset+1])
				case 2, 3, 4:
					require.Equal(t, table, walkMap(t, s))
				case 5, 6, 7, 8, 9:
					key := randomKey(r)
					require.Equal(t, table[key], get(t, s, key))
				default:
					write(t, s, r, table, int64(len(history)-1))
					history = append(history, maps.Clone(table))
				}
				checkLookup(t, s, r, table)
			}
			require.NoError(t, s.Close())
			require.NotZero(t, kept, "no crash left any data to check")
		})
	}
}

func randomKey(r *rand.Rand) string { return pairKey(uint64(r.IntN(4)), uint64(r.IntN(60))) }

func write(t *testing.T, s *Store, r *rand.Rand, table map[string]string, offset int64) {
	w := s.NewWrite()
	for range r.IntN(12) {
		key, value := randomKey(r), fmt.Sprint(r.IntN(1_000_000))
		if r.IntN(5) == 0 {
			require.NoError(t, w.Set([]byte(key), nil))
			delete(table, key)
			continue
		}
		require.NoError(t, w.Set([]byte(key), []byte(value)))
		table[key] = value
	}
	require.NoError(t, w.Commit(offset))
}

func checkLookup(t *testing.T, s *Store, r *rand.Rand, table map[string]string) {
	var keys []string
	want := map[string]string{}
	for _, i := range r.Perm(60)[:30] {
		key := pairKey(uint64(i%4), uint64(i))
		keys = append(keys, key)
		if value, ok := table[key]; ok {
			want[key] = value
		}
	}
	require.Equal(t, want, lookup(t, s, keys...))
}

func walkMap(t *testing.T, s *Store) map[string]string {
	have := map[string]string{}
	var last []byte
	require.NoError(t, Scan(s, nil, nil, func(key, value []byte) (bool, error) {
		require.Negative(t, bytes.Compare(last, key), "sorted")
		last = bytes.Clone(key)
		have[string(key)] = string(value)
		return true, nil
	}))
	return have
}

// Keys from before a restart are found while the filter is being built, and after.
func TestBufferedStoreAfterAStart(t *testing.T) {
	dir := t.TempDir()
	s := bufferedStore(t, vfs.Default, dir)
	put(t, s, 1, "", "a", "b", "c")
	require.NoError(t, s.Close())

	s = bufferedStore(t, vfs.Default, dir)
	defer func() { require.NoError(t, s.Close()) }()
	put(t, s, 2, "2", "b", "d")
	require.NoError(t, s.spillAll()) // keys that the filter has not read
	<-s.buffer.Read()
	require.Equal(t, map[string]string{"a": "a", "b": "b2", "d": "d2"}, lookup(t, s, "d", "x", "a", "b"))
	put(t, s, 3, "3", "e")
	require.NoError(t, s.spillAll())
	require.Equal(t, map[string]string{"a": "a", "b": "b2", "d": "d2", "e": "e3"},
		lookup(t, s, "e", "d", "x", "a", "b"))
}

// Staged entries that may not be in the log are found, but never written to disk.
func TestStagedIsNotKept(t *testing.T) {
	dir := t.TempDir()
	s := bufferedStore(t, vfs.Default, dir)
	put(t, s, 1, "", "a")
	require.NoError(t, s.spillAll())
	put(t, s, 2, "2", "b")
	stage := func(value string) *Write {
		entries := []entry{{[]byte("a"), []byte(value)}, {[]byte("b"), nil}, {[]byte("c"), []byte(value)}}
		w := s.NewWrite()
		w.Stage(len(entries), func(i int) (key, value []byte) { return entries[i].key, entries[i].value })
		return w
	}
	w := stage("staged")
	require.Equal(t, map[string]string{"a": "staged", "c": "staged"}, lookup(t, s, "c", "b", "a"))
	requireOffset(t, s, 2)
	_, err := s.NewReader()
	require.ErrorContains(t, err, "is not committed")

	w.Discard()
	requireOffset(t, s, 1, "what is not on disk is read from the log again")
	require.Equal(t, map[string]string{"a": "a"}, lookup(t, s, "a", "b", "c"))
	w.Discard()
	put(t, s, 2, "2", "b")
	require.Equal(t, map[string]string{"a": "a", "b": "b2"}, walkMap(t, s))

	require.NoError(t, stage("sealed").Commit(3))
	require.Equal(t, map[string]string{"a": "sealed", "c": "sealed"}, lookup(t, s, "a", "b", "c"))
	require.NoError(t, stage("on the way").Commit(4))
	require.NoError(t, s.beginSpill())
	stage("staged").Discard()
	requireOffset(t, s, 4, "what is being spilled is not lost")
	require.Equal(t, map[string]string{"a": "on the way", "c": "on the way"}, lookup(t, s, "a", "b", "c"))
	require.NoError(t, s.Close())
	s = bufferedStore(t, vfs.Default, dir)
	require.Equal(t, map[string]string{"a": "on the way", "c": "on the way"}, walkMap(t, s))
	require.NoError(t, s.Close())
}

// The file of a spill becomes one of Pebble's files.
func TestSpillLeavesNothing(t *testing.T) {
	fs := vfs.NewMem()
	s := bufferedStore(t, fs, "state")
	put(t, s, 1, "", "a")
	require.NoError(t, s.spillAll())
	names, err := fs.List(s.dir)
	require.NoError(t, err)
	require.NotContains(t, names, spillFile)
	require.NoError(t, s.Close())
}

// Overlapping files do not accumulate without bound, and entries of a waiting spill are found.
func TestSpillWaitsForCompactions(t *testing.T) {
	testkit.Label(t)
	s := bufferedStore(t, vfs.NewMem(), "state")
	<-s.buffer.Read() // it reads the db that is about to be closed
	require.NoError(t, s.db.Close())
	opts := s.pebbleOptions()
	opts.DisableAutomaticCompactions = true
	var err error
	s.db, err = pebble.Open(s.dir, opts)
	require.NoError(t, err)
	offset := int64(0)
	for ; s.db.Metrics().Levels[0].Sublevels < l0Stop-1; offset++ { // the first ones go to lower levels
		require.Less(t, offset, int64(3*l0Stop))
		put(t, s, offset, fmt.Sprint(offset), "a", "b")
		require.NoError(t, s.spillAll())
	}
	put(t, s, offset, "last", "a", "b")
	require.NoError(t, s.beginSpill())
	testkit.WaitFor(t, "the spill to be on disk", func() bool { return s.db.Metrics().Levels[0].Sublevels == l0Stop })
	testkit.WaitFor(t, "the spill to wait for a compaction", func() bool {
		return len(testkit.Goroutines(t, "kudos/stream/store.(*Store).waitWhile")) == 1
	})
	require.True(t, s.pace.hurry.Load())
	require.False(t, s.buffer.Settled())
	require.Equal(t, map[string]string{"a": "alast"}, lookup(t, s, "a", "x"))
	require.NoError(t, s.db.Compact(t.Context(), []byte("_"), []byte("z"), false))
	require.NoError(t, s.buffer.Settle())
	require.False(t, s.pace.hurry.Load())
	require.NoError(t, s.Close())
}

// Closing the set takes no memory from a store that is open.
func TestStoreOutlivesItsStores(t *testing.T) {
	stores := NewSetOn(vfs.NewMem(), "state", 1<<20, testkit.Log())
	stores.BufferBytes = 64 << 20
	s := stores.New("table", 0)
	require.NoError(t, s.Open())
	put(t, s, 1, "", "a")
	stores.Close()
	require.Equal(t, "a", get(t, s, "a"))
	require.NoError(t, s.Close())
	stores.memory.Close()
}
