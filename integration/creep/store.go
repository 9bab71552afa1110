package creep

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/schema"
	"kudos/stream/store"
)

const (
	storePairs = 10_000 // in the store; every second user of each post
	storePosts = 100
	storeBatch = 1000 // keys looked up or written together
	storeCache = 64 << 20
)

// storeBuffer is a buffered store's memory, flushed to Pebble by fourths: a workload's writes fill it several times.
const storeBuffer = 4 << 20

// stores are the two kinds: Pebble alone, for concurrent readers, and with a write buffer in front, for the fold.
func stores() []Workload {
	known := func(s *store.Store, batch [][]byte) error { return lookUp(s, batch, len(batch)) }
	unknown := func(s *store.Store, batch [][]byte) error { return lookUp(s, batch, 0) }
	recent := func(s *store.Store, batch [][]byte) error {
		if err := write(s, batch); err != nil {
			return err
		}
		return lookUp(s, batch, len(batch))
	}
	return []Workload{
		inStore("store/lookup_known", 0, 30, known, 0),
		inStore("store/lookup_unknown", 0, 60, unknown, 1),
		inStore("store/write", 0, 80, write, 1),
		inStore("buffered_store/lookup_known", storeBuffer, 30, known, 0),
		inStore("buffered_store/lookup_unknown", storeBuffer, 200, unknown, 1),
		inStore("buffered_store/write_and_lookup", storeBuffer, 120, recent, 1),
	}
}

func lookUp(s *store.Store, batch [][]byte, want int) error {
	found := 0
	err := s.Lookup(len(batch), func(i int) []byte { return batch[i] }, func(int, []byte) error { found++; return nil })
	if err == nil && found != want {
		err = fmt.Errorf("found %d of %d keys, expected %d", found, len(batch), want)
	}
	return err
}

func write(s *store.Store, batch [][]byte) error {
	w := s.NewWrite()
	value := schema.AppendPair(nil, pair(0))
	for _, key := range batch {
		if err := w.Set(key, value); err != nil {
			w.Discard()
			return err
		}
	}
	return w.Commit(1)
}

// inStore applies do to batches of keys in a store that is flushed to disk. The keys' users are even, and so exist,
// plus off. Repetitions dominate the cost of filling the store, which varies: skiplists are randomized.
func inStore(
	name string, bufferBytes uint64, repetitions int, do func(*store.Store, [][]byte) error, off uint64,
) Workload {
	return Workload{Name: name, Events: storeBatch, Repetitions: repetitions,
		Prepare: func() (func() error, func() error, error) {
			stores := store.NewSetOn(vfs.NewMem(), "state", storeCache, slog.New(slog.DiscardHandler))
			stores.BufferBytes = bufferBytes
			s, err := filled(stores)
			if err != nil {
				stores.Close()
				return nil, nil, err
			}
			batches, next := batchesOf(off), 0
			repeat := func() error { next++; return do(s, batches[next%len(batches)]) }
			return repeat, func() error { defer stores.Close(); return s.Close() }, nil
		}}
}

// filled opens a store with all pairs in files, and the files' blocks in the cache.
func filled(stores *store.Set) (*store.Store, error) {
	s := stores.New(schema.TopicState, 0)
	if err := s.Open(); err != nil {
		return nil, err
	}
	batches := batchesOf(0)
	for _, batch := range batches {
		if err := write(s, batch); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	// Close flushes memory to files.
	if err := s.Close(); err != nil {
		return nil, err
	}
	if err := s.Open(); err != nil {
		return nil, err
	}
	// A buffered store's filter is filled in a goroutine. With GOMAXPROCS=1 it runs now, for 10 ms at a time.
	for range 100 {
		runtime.Gosched()
	}
	for _, batch := range batches {
		if err := lookUp(s, batch, len(batch)); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func batchesOf(off uint64) [][][]byte {
	var batches [][][]byte
	for chunk := range slices.Chunk(seeded().Perm(storePairs), storeBatch) {
		batch := make([][]byte, len(chunk))
		for n, i := range chunk {
			batch[n] = schema.AppendPairKey(nil, 1+uint64(i)%storePosts, 2*uint64(i)+2+off)
		}
		slices.SortFunc(batch, slices.Compare)
		batches = append(batches, batch)
	}
	return batches
}
