package store

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/crashdisk"
)

// bufferedStore makes a store whose buffer goes to Pebble after about 30 keys, and holds
// some three times as many.
func bufferedStore(t testing.TB, fs vfs.FS, dir string) *Store {
	stores := NewSetOn(fs, dir, 1<<20, testkit.Log())
	stores.BufferBytes = 4 << 10
	t.Cleanup(stores.Close)
	s := stores.New(testLogID, "table", 0)
	require.NoError(t, s.Open())
	for at := s.dir; at != "." && at != "/"; { // a folder that is not in its own folder is gone after a crash
		at = fs.PathDir(at)
		dir, err := fs.OpenDir(at)
		require.NoError(t, err)
		require.NoError(t, dir.Sync())
		require.NoError(t, dir.Close())
	}
	return s
}

// TestBufferedStoreIsATable writes, reads, walks, closes and crashes at random, and holds
// every answer against a map; after a crash, against what the map was at the offset that
// is left.
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
					require.NoError(t, s.Close()) // of the one that is no more
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
			require.NotZero(t, kept, "crashes left nothing to look at")
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

// checkLookup looks keys up in an order of no kind.
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
	it, err := s.Iterator()
	require.NoError(t, err)
	defer it.Release()
	have := map[string]string{}
	var last []byte
	for it.Next() {
		require.Negative(t, bytes.Compare(last, it.Key()), "in order")
		last = bytes.Clone(it.Key())
		value, err := it.Value()
		require.NoError(t, err)
		have[string(it.Key())] = string(value)
	}
	require.NoError(t, it.Err())
	return have
}

// TestBufferedStoreAfterAStart: what was there before is found while the filter is being
// built, and after.
func TestBufferedStoreAfterAStart(t *testing.T) {
	dir := t.TempDir()
	s := bufferedStore(t, vfs.Default, dir)
	put(t, s, 1, "", "a", "b", "c")
	require.NoError(t, s.Close())

	s = bufferedStore(t, vfs.Default, dir)
	defer func() { require.NoError(t, s.Close()) }()
	build, filter := s.buffer.build, s.buffer.filter
	require.NotNil(t, build)
	put(t, s, 2, "2", "b", "d")
	require.NoError(t, s.spillAll()) // keys that the build does not see
	<-build.done
	require.Equal(t, map[string]string{"a": "a", "b": "b2", "d": "d2"}, lookup(t, s, "d", "x", "a", "b"))
	require.Nil(t, s.buffer.build, "the filter is in use")
	for _, key := range []string{"a", "b", "c", "d"} {
		require.True(t, filter.mayHave(s.buffer.hash([]byte(key))), key)
	}
	require.False(t, filter.mayHave(s.buffer.hash([]byte("x"))))
	put(t, s, 3, "3", "e")
	require.NoError(t, s.spillAll())
	require.Equal(t, map[string]string{"a": "a", "b": "b2", "d": "d2", "e": "e3"}, lookup(t, s, "e", "d", "x", "a", "b"))
}

// TestFilterIsUsedWhenItIsWhole: before, Pebble is asked for every key.
func TestFilterIsUsedWhenItIsWhole(t *testing.T) {
	dir := t.TempDir()
	s := bufferedStore(t, vfs.Default, dir)
	put(t, s, 1, "", "a")
	require.NoError(t, s.Close())
	s = bufferedStore(t, vfs.Default, dir)
	defer func() { require.NoError(t, s.Close()) }()
	<-s.buffer.build.done
	underWay := &filterBuild{stop: make(chan struct{}), done: make(chan struct{})}
	finish := sync.OnceFunc(func() { close(underWay.done) })
	defer finish() // whatever fails: Close waits for it
	s.buffer.build, s.buffer.filter = underWay, newKeyFilter(0)
	require.Equal(t, map[string]string{"a": "a"}, lookup(t, s, "a", "x"), "being made")
	finish()
	require.Equal(t, map[string]string{"a": "a"}, lookup(t, s, "a", "x"), "not made")
	underWay.ok = true
	require.Empty(t, lookup(t, s, "a", "x"), "it decides, and this one is empty")
}

// TestStagedIsNotKept: what is not known to be in the log is found, and goes nowhere.
func TestStagedIsNotKept(t *testing.T) {
	dir := t.TempDir()
	s := bufferedStore(t, vfs.Default, dir)
	put(t, s, 1, "", "a")
	require.NoError(t, s.spillAll())
	put(t, s, 2, "2", "b")
	stage := func(value string) {
		entries := []entry{{[]byte("a"), []byte(value)}, {[]byte("b"), nil}, {[]byte("c"), []byte(value)}}
		s.Stage(len(entries), func(i int) (key, value []byte) { return entries[i].key, entries[i].value })
	}
	stage("staged")
	require.Equal(t, map[string]string{"a": "staged", "c": "staged"}, lookup(t, s, "c", "b", "a"))
	offset, _ := s.Offset()
	require.EqualValues(t, 2, offset)
	_, err := s.Iterator()
	require.ErrorContains(t, err, "is not sealed")

	s.Abandon()
	offset, _ = s.Offset()
	require.EqualValues(t, 1, offset, "what was not on disk is read from the log again")
	require.Equal(t, map[string]string{"a": "a"}, lookup(t, s, "a", "b", "c"))
	s.Abandon()
	put(t, s, 2, "2", "b")
	require.Equal(t, map[string]string{"a": "a", "b": "b2"}, walkMap(t, s))

	stage("sealed")
	require.NoError(t, s.Seal(3))
	want := map[string]string{"a": "sealed", "c": "sealed"}
	require.Equal(t, want, lookup(t, s, "a", "b", "c"))
	stage("on the way")
	require.NoError(t, s.Seal(4))
	require.NoError(t, s.beginSpill())
	stage("staged")
	s.Abandon()
	offset, _ = s.Offset()
	require.EqualValues(t, 4, offset, "what is on its way to disk is not lost")
	require.Equal(t, map[string]string{"a": "on the way", "c": "on the way"}, lookup(t, s, "a", "b", "c"))
	require.NoError(t, s.Close())
	s = bufferedStore(t, vfs.Default, dir)
	require.Equal(t, map[string]string{"a": "on the way", "c": "on the way"}, walkMap(t, s))
	require.NoError(t, s.Close())
}

// TestBuffersShareTheirMemory: what stores hold together stays within the budget, however
// many they are, and what was written last is read from memory.
func TestBuffersShareTheirMemory(t *testing.T) {
	const budget = 64 << 10
	stores := NewSetOn(vfs.NewMem(), "state", 1<<20, testkit.Log())
	stores.BufferBytes = budget
	defer stores.Close()
	var all []*Store
	for partition := range int32(3) {
		s := stores.New(testLogID, "table", partition)
		require.NoError(t, s.Open())
		all = append(all, s)
		for i := range 3000 {
			put(t, s, int64(i), "", fmt.Sprint("key ", i))
		}
		held := 0
		for _, s := range all {
			require.NoError(t, s.settle())
			require.NotEmpty(t, s.buffer.older)
			held += s.buffer.recent.held() + s.buffer.spill.entries.held()
			for _, m := range s.buffer.older {
				held += m.held()
			}
			for i := range 3000 {
				key := fmt.Sprint("key ", i)
				require.Equal(t, key, get(t, s, key))
			}
		}
		if len(all) == 1 {
			require.Greater(t, held, budget/2, "what is on disk stays to be read")
		}
		require.LessOrEqual(t, all[len(all)-1].buffer.recent.held(), budget/len(all)/spillsPerShare)
	}
	for i := range 3000 { // those that were there before give up what is beyond their share
		for _, s := range all {
			put(t, s, int64(3000+i), "", fmt.Sprint("key ", i))
		}
	}
	held := 0
	for _, s := range all {
		held += s.buffer.recent.held() + s.buffer.spill.entries.held()
		for _, m := range s.buffer.older {
			held += m.held()
		}
		require.NoError(t, s.Close())
	}
	require.LessOrEqual(t, held, budget)
	require.Zero(t, stores.budget.open.Load())
}

// TestSpillLeavesNothing: what was written aside has become one of Pebble's files.
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

// TestSpillWaitsForCompactions: files that overlap do not pile up without end, and what waits
// for disk is found meanwhile.
func TestSpillWaitsForCompactions(t *testing.T) {
	s := bufferedStore(t, vfs.NewMem(), "state")
	<-s.buffer.build.done // reads what is to be closed
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
	testkit.WaitFor(t, "the spill to lie on disk", func() bool { return s.db.Metrics().Levels[0].Sublevels == l0Stop })
	select {
	case <-s.buffer.spill.done:
		t.Fatal("the spill did not wait")
	case <-time.After(5 * compactionPause):
	}
	require.Equal(t, map[string]string{"a": "alast"}, lookup(t, s, "a", "x"))
	require.NoError(t, s.db.Compact(t.Context(), []byte("_"), []byte("z"), false))
	require.NoError(t, s.settle())
	require.NoError(t, s.Close())
}

// TestStoreOutlivesItsStores: closing what stores share takes no memory from one that is open.
func TestStoreOutlivesItsStores(t *testing.T) {
	stores := NewSetOn(vfs.NewMem(), "state", 1<<20, testkit.Log())
	stores.BufferBytes = minPaged
	s := stores.New(testLogID, "table", 0)
	require.NoError(t, s.Open())
	put(t, s, 1, "", "a")
	stores.Close()
	require.NotEmpty(t, stores.budget.pages.all, "its memory is still there")
	require.Equal(t, "a", get(t, s, "a"))
	require.NoError(t, s.Close())
	stores.budget.pages.close()
}
