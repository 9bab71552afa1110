package store

import (
	"log/slog"
	"maps"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/stream/store/buffer"
)

// Set opens the local copies of table topics below one folder, which share a
// cache, and hands those that are open to whoever works on them.
type Set struct {
	// MemtableBytes is what each partition may hold in memory before it goes to disk. To
	// be changed before the first store is made, if at all.
	MemtableBytes uint64
	// BufferBytes is for stores that one goroutine at a time reads and writes: so much of
	// what was written last they hold together in order of no kind, which is several times
	// as fast. 0: none. To be changed before the first store is made, if at all.
	BufferBytes uint64

	fs    vfs.FS
	dir   string
	cache *pebble.Cache
	log   *slog.Logger

	memory   *buffer.Memory // nil: without buffers, or no store was made yet
	replayed atomic.Int64

	mu struct {
		sync.Mutex
		open map[topicPartition]*Store
	}
}

type topicPartition struct {
	topic     string
	partition int32
}

// NewSet makes the set on disk; Close it after the last store is closed.
func NewSet(dir string, cacheBytes int64, log *slog.Logger) *Set {
	return NewSetOn(vfs.Default, dir, cacheBytes, log)
}

// NewSetOn makes the set on any file system.
func NewSetOn(fs vfs.FS, dir string, cacheBytes int64, log *slog.Logger) *Set {
	s := &Set{MemtableBytes: memtableBytes, fs: fs, dir: dir, cache: pebble.NewCache(cacheBytes), log: log}
	s.mu.open = map[topicPartition]*Store{}
	return s
}

const (
	// standbyMemtableBytes is what a copy of a partition that is worked on elsewhere holds in memory, a few times that
	// while it has much to read. standbyCacheBytes is only for what Pebble cannot do without: nobody looks anything up
	// in a copy.
	standbyMemtableBytes = 4 << 20
	standbyCacheBytes    = 8 << 20
)

// Standby makes a set of stores on the same folder, for the copies of partitions that are worked on elsewhere: without
// buffers, and with a cache of their own, so that they take no memory from the partitions that are worked on here.
func (s *Set) Standby() *Set {
	copies := NewSetOn(s.fs, s.dir, standbyCacheBytes, s.log)
	copies.MemtableBytes = standbyMemtableBytes
	return copies
}

// FitMemtables makes the memtables no larger than bytes, nor than an eighth of a block cache:
// who gives a store little memory means all of it. To be called before the first store is made.
func (s *Set) FitMemtables(bytes uint64, cacheBytes int64) {
	s.MemtableBytes = max(minMemtable, min(s.MemtableBytes, bytes, uint64(cacheBytes)/8))
}

// Replayed counts the records of changelogs that were read to bring stores up to date.
func (s *Set) Replayed() int64 { return s.replayed.Load() }

// Close gives up what the stores shared.
func (s *Set) Close() {
	s.cache.Unref()
	if s.memory != nil {
		s.memory.Close()
	}
}

// New makes the store of a partition of a table topic. It takes the place of the one that was made before. CatchUp
// opens it, or Open.
func (s *Set) New(topic string, partition int32) *Store {
	st := &Store{
		topic: topic, partition: partition,
		fs:    s.fs,
		dir:   filepath.Join(s.dir, topic, strconv.Itoa(int(partition))),
		cache: s.cache,
		log:   s.log,

		memtableBytes: s.MemtableBytes,
		replayed:      &s.replayed,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.BufferBytes > 0 && s.memory == nil {
		s.memory = buffer.NewMemory(s.BufferBytes)
	}
	st.memory = s.memory
	s.mu.open[topicPartition{topic, partition}] = st
	return st
}

// all returns the stores that were made last, by partition; some may be closed.
func (s *Set) all() map[topicPartition]*Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.open)
}

// Get returns the store that was made last for a partition, or nil.
func (s *Set) Get(topic string, partition int32) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.open[topicPartition{topic, partition}]
}
