package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/lovoo/goka/storage"
)

// LogID names one log for good: a topic that was deleted and created anew, or one of
// the same name in another cluster, has another.
type LogID struct {
	ClusterID string
	TopicID   [16]byte
}

// Store is the local copy of one partition of a table topic, on Pebble. It is a
// cache: never ahead of the committed log, and rebuilt from it when lost. Data and
// the log position are written in one atomic batch. There is no write-ahead log (the
// topic is one): what a crash takes is read again from the position that is left.
//
// Any number of readers, one writer. It is goka's storage.Storage too.
type Store struct {
	dir   string
	id    LogID
	cache *pebble.Cache
	log   *slog.Logger

	db *pebble.DB

	mu struct {
		sync.Mutex
		// offset of the last log record that the store covers; offsetNone: none.
		offset int64
	}
}

// offsetNone is below every offset, and no value that goka gives a meaning.
const offsetNone = -1 << 62

// localKey holds the store's own record: which log this is a copy of and how far it
// goes. It lies among the log's keys, so those must never be this one.
const localKey = "_local"

const localVersion = 1

// memtableBytes is small on purpose: hot keys are overwritten in the memtable again
// and again, and a small one stays in the processor's caches.
const memtableBytes = 16 << 20

// Open opens the store and makes it empty if it is a copy of another log, or not
// readable: the log has everything.
func (s *Store) Open() error {
	db, err := s.openDB()
	if errors.Is(err, pebble.ErrCorruption) {
		s.log.Warn("local state is corrupted and is built again from Kafka", "dir", s.dir, "error", err)
		if err = os.RemoveAll(s.dir); err == nil {
			db, err = s.openDB()
		}
	}
	if err != nil {
		return fmt.Errorf("opening local state in %s: %w", s.dir, err)
	}
	s.db = db
	if err := s.loadLocal(); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

func (s *Store) openDB() (*pebble.DB, error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	opts := &pebble.Options{
		Cache:                       s.cache,
		DisableWAL:                  true,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                memtableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       20,
		LBaseMaxBytes:               64 << 20,
		Logger:                      quietLogger{s.log},
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most look-ups of new pairs end here
	}
	return pebble.Open(s.dir, opts)
}

// loadLocal reads the store's own record, and wipes the store if it is of another log.
func (s *Store) loadLocal() error {
	s.setOffset(offsetNone)
	value, closer, err := s.db.Get([]byte(localKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return s.wipe() // nothing, or remains of a first batch: either way start clean
	}
	if err != nil {
		return fmt.Errorf("reading local state in %s: %w", s.dir, err)
	}
	defer closer.Close()
	id, offset, ok := decodeLocal(value)
	if !ok || id != s.id {
		s.log.Warn("local state is a copy of another log and is built again", "dir", s.dir)
		return s.wipe()
	}
	s.setOffset(offset)
	return nil
}

// wipe deletes all keys. Nothing is above a key of 64 bytes of 0xff.
func (s *Store) wipe() error {
	end := make([]byte, 64)
	for i := range end {
		end[i] = 0xff
	}
	if err := s.db.DeleteRange([]byte{0}, end, pebble.NoSync); err != nil {
		return fmt.Errorf("wiping local state in %s: %w", s.dir, err)
	}
	return nil
}

// Write is one atomic change of a Store.
type Write struct {
	s *Store
	b *pebble.Batch
}

// NewWrite begins a change; Commit or Discard it.
func (s *Store) NewWrite() *Write { return &Write{s: s, b: s.db.NewBatch()} }

// Set sets a key; a nil value deletes it.
func (w *Write) Set(key, value []byte) error {
	if value == nil {
		return w.b.Delete(key, nil)
	}
	return w.b.Set(key, value, nil)
}

// Discard drops the change.
func (w *Write) Discard() { _ = w.b.Close() }

// Commit applies the change together with the offset of the last log record that it
// covers.
func (w *Write) Commit(offset int64) error {
	if err := w.b.Set([]byte(localKey), encodeLocal(w.s.id, offset), nil); err != nil {
		return fmt.Errorf("writing local state in %s: %w", w.s.dir, err)
	}
	if err := w.b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("writing local state in %s: %w", w.s.dir, err)
	}
	w.s.setOffset(offset)
	return nil
}

// Lookup reads many keys, which must be sorted and distinct: found is called with
// the index and the value of each key that is there, in order. The value is valid
// during the call only. One iterator in key order is several times as fast as
// single look-ups.
func (s *Store) Lookup(n int, key func(i int) []byte, found func(i int, value []byte) error) error {
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("reading local state in %s: %w", s.dir, err)
	}
	defer iter.Close()
	for i := range n {
		// The whole key is its prefix, so this asks the Bloom filters first.
		if !iter.SeekPrefixGE(key(i)) {
			if err := iter.Error(); err != nil {
				return fmt.Errorf("reading local state in %s: %w", s.dir, err)
			}
			continue
		}
		value, err := iter.ValueAndErr()
		if err != nil {
			return fmt.Errorf("reading local state in %s: %w", s.dir, err)
		}
		if err := found(i, value); err != nil {
			return err
		}
	}
	return nil
}

// Close flushes and closes; without the flush all that is in memory would have to be
// read again.
func (s *Store) Close() error {
	if s.db == nil {
		return nil
	}
	err := s.db.Flush()
	err = errors.Join(err, s.db.Close())
	s.db = nil
	if err != nil {
		return fmt.Errorf("closing local state in %s: %w", s.dir, err)
	}
	return nil
}

// Offset returns the offset of the last log record that the store covers; ok is
// false when it covers none.
func (s *Store) Offset() (offset int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.offset, s.mu.offset != offsetNone
}

func (s *Store) setOffset(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.offset = offset
}

func encodeLocal(id LogID, offset int64) []byte {
	b := append(make([]byte, 0, 64), localVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	b = append(b, id.TopicID[:]...)
	return append(b, id.ClusterID...)
}

func decodeLocal(b []byte) (id LogID, offset int64, ok bool) {
	if len(b) < 1+8+16 || b[0] != localVersion {
		return LogID{}, 0, false
	}
	return LogID{TopicID: [16]byte(b[9:25]), ClusterID: string(b[25:])}, int64(binary.BigEndian.Uint64(b[1:])), true
}

// Stores opens the local copies of table topics below one folder, which share a
// cache, and hands those that are open to whoever works on them.
type Stores struct {
	dir   string
	cache *pebble.Cache
	log   *slog.Logger

	mu struct {
		sync.Mutex
		open map[topicPartition]*Store
	}
}

type topicPartition struct {
	topic     string
	partition int32
}

// NewStores makes the set; Close it after the last store is closed.
func NewStores(dir string, cacheBytes int64, log *slog.Logger) *Stores {
	s := &Stores{dir: dir, cache: pebble.NewCache(cacheBytes), log: log}
	s.mu.open = map[topicPartition]*Store{}
	return s
}

// Close gives the cache up.
func (s *Stores) Close() { s.cache.Unref() }

// Builder is goka's storage.Builder. identify tells which log a topic is at present.
func (s *Stores) Builder(identify func(topic string) (LogID, error)) storage.Builder {
	return func(topic string, partition int32) (storage.Storage, error) {
		id, err := identify(topic)
		if err != nil {
			return nil, fmt.Errorf("local state of %s/%d: %w", topic, partition, err)
		}
		st := &Store{
			dir:   filepath.Join(s.dir, topic, strconv.Itoa(int(partition))),
			id:    id,
			cache: s.cache,
			log:   s.log,
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.open[topicPartition{topic, partition}] = st
		return st, nil
	}
}

// Get returns the store that goka opened last for a partition, or nil.
func (s *Stores) Get(topic string, partition int32) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.open[topicPartition{topic, partition}]
}

// quietLogger keeps Pebble's talk about compactions out of the log.
type quietLogger struct{ log *slog.Logger }

func (l quietLogger) Infof(format string, args ...any) {}
func (l quietLogger) Errorf(format string, args ...any) {
	l.log.Error("local state: " + fmt.Sprintf(format, args...))
}
func (l quietLogger) Fatalf(format string, args ...any) {
	l.log.Error("local state: " + fmt.Sprintf(format, args...))
	os.Exit(1) // Pebble calls this when going on would lose data
}
