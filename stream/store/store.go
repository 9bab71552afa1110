package store

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/stream/kafka"
	"kudos/stream/store/buffer"
)

// Store is the local copy of one partition of a table topic, on Pebble. It is a cache: never ahead of the committed
// log, and rebuilt from it when lost. Data and the log position are written in one atomic batch. There is no
// write-ahead log (the topic is one): after a crash, the lost writes are replayed from the position on disk.
//
// It has any number of readers and one writer; with a buffer, one goroutine at a time is both.
type Store struct {
	topic     string
	partition int32

	fs    vfs.FS
	dir   string
	id    kafka.LogID // which log this is a copy of; zero: none yet
	cache *pebble.Cache
	files *pebble.FileCache
	log   *slog.Logger

	memtableBytes uint64
	replayed      *atomic.Int64  // shared with its Set
	memory        *buffer.Memory // nil: each Write goes to Pebble at once
	buffer        *buffer.Buffer // nil while closed, or without memory
	spillOptions  sstable.WriterOptions
	spilled       int64 // offset of the last spill, done or in progress
	spilledEpoch  int32

	lock       *pebble.Lock
	db         *pebble.DB
	pace       *pace // of db
	shown      shownStore
	corrupt    atomic.Bool // the content is wrong, or a file is corrupted
	background background  // of the db that is open, or was last

	offset atomic.Int64 // of the last log record that the store covers; offsetNone: none
	epoch  int32        // its leader epoch, or a lower one; -1: not known
	// savedEpoch is the one on disk, never older than the data there. It is no part of the store's own record, which
	// earlier versions must be able to read.
	savedEpoch int32
}

const offsetNone = -1 << 62 // below every offset, and not one of goka's special values

// localKey holds the store's own record: which log, and the offset. It is among the log's keys; none may equal it.
const localKey = "_local"

const localVersion = 1

// Write is one atomic change of a Store.
type Write struct {
	s     *Store
	epoch int32
	b     *pebble.Batch
	// entries and bytes hold the change of a store with a buffer.
	entries []entry
	bytes   []byte
	staged  bool
}

type entry struct{ key, value []byte }

// NewWrite starts a change; Commit or Discard it.
func (s *Store) NewWrite() *Write {
	if s.buffer != nil {
		return &Write{s: s, epoch: s.epoch}
	}
	return &Write{s: s, epoch: s.epoch, b: s.db.NewBatch()}
}

// SetEpoch sets the leader epoch of the last log record that it covers, or a lower one, such as -1.
func (w *Write) SetEpoch(epoch int32) { w.epoch = max(w.epoch, epoch) }

// Set sets a key; a nil value deletes it.
func (w *Write) Set(key, value []byte) error {
	switch {
	case w.b == nil:
		e := entry{key: w.copy(key)}
		if value != nil {
			e.value = w.copy(value)
		}
		w.entries = append(w.entries, e)
		return nil
	case value == nil:
		return w.b.Delete(key, nil)
	}
	return w.b.Set(key, value, nil)
}

func (w *Write) copy(b []byte) []byte {
	n := len(w.bytes)
	w.bytes = append(w.bytes, b...)
	return w.bytes[n:len(w.bytes):len(w.bytes)]
}

// Stage makes n entries visible to lookups before the log has them, which it may never have: Commit or Discard tells. A
// nil value deletes. Until then they are in memory only, and nothing is written to disk. It requires a buffer.
func (w *Write) Stage(n int, entry func(i int) (key, value []byte)) {
	w.staged = true
	w.s.buffer.Stage(n, entry)
}

// Discard drops the change. If entries were staged, it also drops all writes since the last spill, which the log has.
func (w *Write) Discard() {
	if w.staged {
		w.s.abandon()
	}
	w.close()
}

func (w *Write) close() {
	if w.b != nil {
		_ = w.b.Close()
	}
}

// Commit applies the change together with the offset of the last log record that it covers.
func (w *Write) Commit(offset int64) error {
	defer w.close()
	if err := w.s.failed("writing", w.s.unusableWhy()); err != nil {
		return err
	}
	w.s.epoch = w.epoch
	if w.b == nil {
		w.s.buffer.Stage(len(w.entries), func(i int) ([]byte, []byte) { return w.entries[i].key, w.entries[i].value })
		return w.s.seal(offset)
	}
	if err := w.s.saveEpoch(w.epoch); err != nil {
		return err
	}
	if err := w.s.commitBatch(w.b, w.s.id, offset); err != nil {
		return err
	}
	w.s.offset.Store(offset)
	return nil
}

// failed names the operation and the store in its error; nil stays nil.
func (s *Store) failed(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s local state in %s: %w", operation, s.dir, err)
}

func (s *Store) commitBatch(b *pebble.Batch, id kafka.LogID, offset int64) error {
	if err := b.Set([]byte(localKey), encodeLocal(id, offset), nil); err != nil {
		return s.failed("writing", err)
	}
	return s.failed("writing", b.Commit(pebble.NoSync))
}

// Offset returns the offset of the last log record that the store covers; ok is false when it covers none.
func (s *Store) Offset() (offset int64, ok bool) {
	offset = s.offset.Load()
	return offset, offset != offsetNone
}

// LogID returns which log this is a copy of, after CatchUp.
func (s *Store) LogID() kafka.LogID { return s.id }

func encodeLocal(id kafka.LogID, offset int64) []byte {
	b := append(make([]byte, 0, 64), localVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	b = append(b, id.TopicID[:]...)
	return append(b, id.ClusterID...)
}

func decodeLocal(b []byte) (id kafka.LogID, offset int64, ok bool) {
	if len(b) < 1+8+16 || b[0] != localVersion {
		return kafka.LogID{}, 0, false
	}
	id = kafka.LogID{TopicID: [16]byte(b[9:25]), ClusterID: string(b[25:])}
	return id, int64(binary.BigEndian.Uint64(b[1:])), true
}
