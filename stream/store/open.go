package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"kudos/stream/kafka"
)

// memtableBytes is the size of a partition's memtable. Pebble sorts a write that would fill half of it into a file of
// its own, which costs a fifth of the whole drain rate; the 50,000 pairs of a full batch take 8 MiB.
const memtableBytes = 32 << 20

const (
	l0Stop        = 40        // how many overlapping files may wait for a compaction before writes stop
	l0Hurry       = 25        // how many may wait before compactions hurry
	memtablesStop = 4         // how many memtables may wait for the disk before writes stop
	minMemtable   = 256 << 10 // the size with which Pebble's memtable starts
	// lBaseBytes: up to this size one level holds all of a store, and each compaction rewrites it; another level would
	// write everything once more.
	lBaseBytes = 512 << 20
	// l0Compact is twice the number of files that may overlap before they are compacted. Filters skip most of them, and
	// half as many compactions write half as much.
	l0Compact = 20
)

// lockFile is Pebble's. Ours: corruptMark tells the next Open that files are corrupted; of epochMarker see saveEpoch.
const (
	lockFile    = "LOCK"
	corruptMark = "CORRUPTED"
	epochMarker = "epoch"
)

var (
	errCorrupted = errors.New("local state is corrupted; it is built again from Kafka when the partition is opened")
	errNotOpen   = errors.New("local state is not open")
)

// Open opens the store, whatever log it copies. If its files are unusable, it starts empty: the log has everything.
func (s *Store) Open() error {
	err := s.lockDir()
	switch {
	case err == nil && s.corrupt.Load():
		err = s.rebuild()
	case err == nil:
		if err = s.load(); err != nil && unusable(err) {
			s.log.Warn("local state is not usable and is built again from Kafka", "dir", s.dir, "error", err)
			err = s.rebuild()
		}
	}
	if err != nil {
		return errors.Join(s.failed("opening", err), s.Close())
	}
	return nil
}

// Unusable returns why a store cannot be used until CatchUp reopens it, or nil. Readers may call it.
func Unusable(s *Store) error { return s.failed("reading", s.unusableWhy()) }

// unusableWhy returns why a store cannot be used: it is not open, a file is corrupted, or background work failed.
func (s *Store) unusableWhy() error {
	switch {
	case s.corrupt.Load():
		return errCorrupted
	case s.db == nil:
		return errNotOpen
	}
	return s.background.err()
}

// refresh reopens an unusable store, after alone. What was only in memory is read from the log again.
func (s *Store) refresh(alone func()) error {
	why := s.unusableWhy()
	if why == nil {
		return nil
	}
	alone()
	if s.db != nil {
		s.log.Warn("local state is opened again", "dir", s.dir, "error", why)
		s.closeBuffer()
		_ = s.closeDB() // its error does not matter: the store is broken
	}
	if s.lock != nil { // its file may be gone
		_ = s.lock.Close()
		s.lock = nil
	}
	return s.Open()
}

// lockDir locks the directory against other processes. Then files that Pebble cannot open are damaged, not in use.
func (s *Store) lockDir() (err error) {
	if err := s.fs.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	s.lock, err = pebble.LockDirectory(s.dir, s.fs)
	return err
}

// unusable distinguishes damaged files from a system error (permissions, too many open files, a full disk), which
// deleting them would not fix. Pebble marks only some damage as corruption, and not in the way that errors.Is sees.
func unusable(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) || !errors.As(err, new(syscall.Errno))
}

func (s *Store) load() error {
	if _, err := s.fs.Stat(s.fs.PathJoin(s.dir, corruptMark)); err == nil {
		return errCorrupted
	}
	s.corrupt.Store(false)
	s.background, s.pace = newBackground(), &pace{FS: s.fs}
	opts := s.pebbleOptions()
	db, err := pebble.Open(s.dir, opts)
	if err != nil {
		return err
	}
	s.db = db
	opts.EnsureDefaults()
	s.spillOptions = opts.MakeWriterOptions(0, db.TableFormat())
	if err := s.loadLocal(); err != nil {
		return err
	}
	if err := s.openBuffer(); err != nil {
		return err
	}
	s.shown.show(db, s.buffer)
	return nil
}

func (s *Store) pebbleOptions() *pebble.Options {
	opts := &pebble.Options{
		FS:                          s.pace,
		Lock:                        s.lock,
		Cache:                       s.cache,
		FileCache:                   s.files,
		DisableWAL:                  true,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                s.memtableBytes,
		MemTableStopWritesThreshold: memtablesStop,
		L0CompactionThreshold:       l0Compact,
		L0StopWritesThreshold:       l0Stop,
		LBaseMaxBytes:               lBaseBytes,
		Logger:                      quietLogger{s.log},
		EventListener: &pebble.EventListener{
			DataCorruption: func(info pebble.DataCorruptionInfo) { // Pebble's default would end the process
				s.Distrust(fmt.Errorf("%s: %w", info.Path, info.Details))
			},
			BackgroundError: s.backgroundFailed(s.background),
		},
	}
	if s.memory != nil {
		opts.MemTableSize = minMemtable // unused: spills bypass it
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most lookups of new pairs end here
	}
	return opts
}

// Distrust marks the content as wrong: it stops all writes to the store, and CatchUp rebuilds it.
func (s *Store) Distrust(why error) {
	if s.corrupt.Swap(true) {
		return
	}
	s.log.Error("local state is corrupted", "dir", s.dir, "error", why)
	if err := s.mark(); err != nil {
		s.log.Error("marking corrupted local state", "dir", s.dir, "error", err)
	}
}

func (s *Store) mark() error {
	f, err := s.fs.Create(s.fs.PathJoin(s.dir, corruptMark), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return f.Close()
}

// background is the context of Pebble's background work on one open db. The first failure cancels it.
type background struct {
	context.Context
	fail context.CancelCauseFunc
}

func newBackground() background {
	ctx, fail := context.WithCancelCause(context.Background())
	return background{ctx, fail}
}

func (b background) err() error { return context.Cause(b) }

const backgroundPause = 100 * time.Millisecond // the time between two attempts of failing background work

// backgroundFailed returns the handler of failed flushes and compactions. Pebble retries them without a pause, forever
// if the disk is full or the files are gone, and writes and Close would wait for that. So the first failure ends the
// use of the store (see refresh), and until somebody notices, each failure sleeps.
func (s *Store) backgroundFailed(b background) func(error) {
	return func(err error) {
		if errors.Is(err, errStopped) {
			return
		}
		s.giveUp(b, err)
		time.Sleep(backgroundPause)
	}
}

func (s *Store) giveUp(b background, err error) {
	if b.err() == nil && !s.corrupt.Load() {
		s.log.Error("local state: background work failed", "dir", s.dir, "error", err)
	}
	b.fail(err)
}

// rebuild replaces the files: deleting all keys would leave a tombstone, slowing lookups. Nobody else may be reading.
func (s *Store) rebuild() error {
	if s.db != nil {
		s.closeBuffer()
		_ = s.closeDB() // its error does not matter: the files are damaged
	}
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == lockFile {
			continue
		}
		if err := s.fs.RemoveAll(s.fs.PathJoin(s.dir, name)); err != nil {
			return err
		}
	}
	return s.load()
}

func (s *Store) loadLocal() error {
	s.id, s.epoch, s.savedEpoch = kafka.LogID{}, -1, -1
	s.offset.Store(offsetNone)
	value, closer, err := s.db.Get([]byte(localKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return s.checkEmpty()
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	id, offset, ok := decodeLocal(value)
	if !ok {
		return errUnknownLog
	}
	s.id = id
	s.offset.Store(offset)
	saved, err := atomicfs.ReadMarker(s.fs, s.dir, epochMarker)
	if err != nil || saved == "" { // none: of an earlier version
		return err
	}
	epoch, err := strconv.ParseInt(saved, 10, 32)
	s.epoch, s.savedEpoch = int32(epoch), int32(epoch)
	return err
}

// saveEpoch saves the epoch before the data. If a crash loses the data, the store is a prefix of what matched the log
// in this epoch.
func (s *Store) saveEpoch(epoch int32) error {
	if epoch == s.savedEpoch {
		return nil
	}
	marker, _, err := atomicfs.LocateMarker(s.fs, s.dir, epochMarker)
	if err == nil {
		err = errors.Join(marker.Move(strconv.Itoa(int(epoch))), marker.Close())
	}
	if err == nil {
		s.savedEpoch = epoch
	}
	return s.failed("writing", err)
}

var errUnknownLog = errors.New("it does not record which topic it is a copy of")

// checkEmpty rejects data without the store's own record.
func (s *Store) checkEmpty() error {
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	any := iter.First()
	if err := iter.Close(); err != nil || !any {
		return err
	}
	return errUnknownLog
}

// Close flushes and closes. Without the flush, everything in memory would have to be read again.
func (s *Store) Close() error {
	var err error
	if s.db != nil {
		err = s.flush()
		s.closeBuffer()
		err = errors.Join(err, s.closeDB())
		if s.corrupt.Load() {
			err = nil // the files are marked, and rebuilt in any case
		}
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	return s.failed("closing", err)
}

// Leave closes a store at the end of its owner's session. A failure only costs time.
func Leave(s *Store) {
	if err := s.Close(); err != nil {
		s.log.Warn("a local copy was not closed cleanly: data that was only in memory is read again",
			"topic", s.topic, "partition", s.partition, "error", err)
	}
}

// flush writes everything in memory to disk. It does not wait for background work that fails.
func (s *Store) flush() error {
	if err := s.background.err(); err != nil {
		return err
	}
	if err := s.spillAll(); err != nil {
		return err
	}
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return nil
	case <-s.background.Done():
		return s.background.err()
	}
}

type quietLogger struct{ log *slog.Logger } // drops Pebble's messages about compactions

func (l quietLogger) Infof(format string, args ...any) {}
func (l quietLogger) Errorf(format string, args ...any) {
	l.log.Error("local state: " + fmt.Sprintf(format, args...))
}
func (l quietLogger) Fatalf(format string, args ...any) {
	l.log.Error("local state: " + fmt.Sprintf(format, args...))
	os.Exit(1) // Pebble calls this when continuing would lose data
}
