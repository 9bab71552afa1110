package store

import (
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/stream/store/buffer"
)

// Set creates the stores of table topics' partitions below one directory, with one cache, and finds them by partition.
type Set struct {
	MemtableBytes uint64 // of each partition; change it only before the first store is created
	// BufferBytes is the memory of the write buffers of all stores together, which keep the last writes unordered:
	// several times as fast as memtables. It requires that one goroutine at a time reads and writes each store. 0: no
	// buffers. To be changed before the first store is created, if at all.
	BufferBytes uint64

	fs    vfs.FS
	dir   string
	cache *pebble.Cache
	files *pebble.FileCache // open files of tables: without it, each store would open up to a thousand
	log   *slog.Logger

	memory   *buffer.Memory // nil: without buffers, or before the first store
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

// NewSet returns a set on disk; Close it after the last store is closed.
func NewSet(dir string, cacheBytes int64, log *slog.Logger) *Set {
	return NewSetOn(vfs.Default, dir, cacheBytes, log)
}

// NewSetOn returns a set on any file system.
func NewSetOn(fs vfs.FS, dir string, cacheBytes int64, log *slog.Logger) *Set {
	s := &Set{MemtableBytes: memtableBytes, fs: fs, dir: dir, cache: pebble.NewCache(cacheBytes), log: log,
		files: pebble.NewFileCache(runtime.GOMAXPROCS(0), tableFiles(openFiles()))}
	s.mu.open = map[topicPartition]*Store{}
	return s
}

const (
	// standbyMemtableBytes is the memtable size of a standby replica, which takes a few times that while it has much to
	// read. standbyCacheBytes is what Pebble cannot do without: nobody looks anything up in a replica.
	standbyMemtableBytes = 4 << 20
	standbyCacheBytes    = 8 << 20
)

// Standby returns a set of stores on the same directory for standby replicas: without buffers, and with its own cache,
// so that they take no memory from the partitions that this process owns.
func (s *Set) Standby() *Set {
	copies := NewSetOn(s.fs, s.dir, standbyCacheBytes, s.log)
	copies.MemtableBytes = standbyMemtableBytes
	return copies
}

// FitMemtables limits memtables to bytes and an eighth of the block cache. Call it before the first store is created.
func (s *Set) FitMemtables(bytes uint64, cacheBytes int64) {
	s.MemtableBytes = max(minMemtable, min(s.MemtableBytes, bytes, uint64(cacheBytes)/8))
}

// Replayed returns how many changelog records were read to bring stores up to date.
func (s *Set) Replayed() int64 { return s.replayed.Load() }

// Close releases what the stores share.
func (s *Set) Close() {
	s.files.Unref()
	s.cache.Unref()
	if s.memory != nil {
		s.memory.Close()
	}
}

// New returns the store of a table topic's partition, replacing the previous one in the set. CatchUp or Open opens it.
func (s *Set) New(topic string, partition int32) *Store {
	st := &Store{topic: topic, partition: partition, fs: s.fs, cache: s.cache, files: s.files, log: s.log,
		dir: filepath.Join(s.dir, topic, strconv.Itoa(int(partition))), memtableBytes: s.MemtableBytes,
		replayed: &s.replayed}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.BufferBytes > 0 && s.memory == nil {
		s.memory = buffer.NewMemory(s.BufferBytes)
	}
	st.memory = s.memory
	s.mu.open[topicPartition{topic, partition}] = st
	return st
}

// all returns the newest store of each partition; some may be closed.
func (s *Set) all() map[topicPartition]*Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.open)
}

// OnDisk returns the partitions of a topic that have a directory.
func (s *Set) OnDisk(topic string) (partitions []int32) {
	names, _ := s.fs.List(s.fs.PathJoin(s.dir, topic)) // none before the first store
	for _, name := range names {
		if n, err := strconv.ParseInt(name, 10, 32); err == nil {
			partitions = append(partitions, int32(n))
		}
	}
	return partitions
}

// Remove deletes the files of a partition's store, which must be closed.
func (s *Set) Remove(topic string, partition int32) error {
	s.mu.Lock()
	delete(s.mu.open, topicPartition{topic, partition})
	s.mu.Unlock()
	return s.fs.RemoveAll(s.fs.PathJoin(s.dir, topic, strconv.Itoa(int(partition))))
}

// Get returns the newest store of a partition, or nil.
func (s *Set) Get(topic string, partition int32) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.open[topicPartition{topic, partition}]
}
