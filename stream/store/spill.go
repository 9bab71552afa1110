package store

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/stream/store/buffer"
)

const spillFile = "spill" // the name of a spill until Pebble ingests it

const compactionPause = 20 * time.Millisecond // how often waitWhile checks the progress of compactions

const filterKeyBytes = 24 // about the size of an entry on disk, to estimate how many there are

// openBuffer opens the write buffer, whose filter reads the keys that Pebble has.
func (s *Store) openBuffer() error {
	if s.memory == nil {
		return nil
	}
	iter, err := s.db.NewIter(nil) // a snapshot of the keys, however long reading them takes
	if err != nil {
		return err
	}
	s.spilled, s.spilledEpoch = s.offset.Load(), s.epoch
	total := s.db.Metrics().Total()
	s.buffer = s.memory.Open(uint64(total.TablesSize)/filterKeyBytes, func(each func(key []byte) bool) error {
		for ok := iter.First(); ok && each(iter.Key()); ok = iter.Next() {
		}
		return iter.Close()
	})
	return nil
}

// closeBuffer stops the buffer's goroutines. Its content is lost.
func (s *Store) closeBuffer() {
	if s.buffer != nil {
		s.buffer.Close()
		s.buffer = nil
	}
}

// seal marks all that was staged as being in the log, up to and including offset.
func (s *Store) seal(offset int64) error {
	s.buffer.Seal()
	s.offset.Store(offset)
	if s.buffer.Settled() {
		if err := s.buffer.Settle(); err != nil {
			return err
		}
	}
	if !s.buffer.Full() {
		return nil
	}
	return s.beginSpill()
}

// abandon drops what was staged, and with it everything written since the last spill.
func (s *Store) abandon() {
	if s.buffer != nil && s.buffer.Unsealed() {
		s.buffer.Abandon()
		s.offset.Store(s.spilled)
		s.epoch = s.spilledEpoch
	}
}

// beginSpill starts to write the buffer to disk, once the previous spill is there.
func (s *Store) beginSpill() error {
	if s.buffer.Unsealed() {
		return s.failed("writing", errors.New("what was staged is not committed"))
	}
	if err := s.buffer.Settle(); err != nil {
		return err
	}
	offset, epoch, id, background := s.offset.Load(), s.epoch, s.id, s.background
	if s.buffer.Empty() && offset == s.spilled {
		return nil
	}
	s.spilled, s.spilledEpoch = offset, epoch
	s.buffer.Spill(func(sp *buffer.Spill) error {
		err := s.writeOut(sp, encodeLocal(id, offset), epoch)
		if err != nil {
			s.giveUp(background, err)
		}
		return err
	})
	return nil
}

func (s *Store) spillAll() error {
	if s.buffer == nil {
		return nil
	}
	if err := s.beginSpill(); err != nil {
		return err
	}
	return s.buffer.Settle()
}

// writeOut writes a spill to disk and ingests it, concurrent with the store's owner: it uses nothing the owner changes.
func (s *Store) writeOut(sp *buffer.Spill, local []byte, epoch int32) error {
	path := s.fs.PathJoin(s.dir, spillFile)
	if err := s.writeSpill(path, sp, local); err != nil {
		return s.failed("writing", err)
	}
	if err := s.saveEpoch(epoch); err != nil {
		return err
	}
	if err := s.db.Ingest(context.Background(), []string{path}); err != nil {
		return s.failed("writing", err)
	}
	// The next spill is delayed while too many files overlap: each lookup in Pebble reads all of them.
	return s.waitWhile(func(m *pebble.Metrics) bool { return m.Levels[0].Sublevels >= l0Stop })
}

// AwaitWritable waits until Pebble can take a write without stalling midway. Its error says why the store takes none.
func (s *Store) AwaitWritable() error {
	if s.db == nil {
		return errNotOpen
	}
	if err := s.failed("writing", s.unusableWhy()); err != nil {
		return err
	}
	return s.waitWhile(func(m *pebble.Metrics) bool {
		return m.Levels[0].Sublevels >= l0Stop-2 || m.MemTable.Size >= (memtablesStop-1)*s.memtableBytes
	})
}

func (s *Store) waitWhile(full func(*pebble.Metrics) bool) error {
	pause := time.NewTicker(compactionPause)
	defer pause.Stop()
	for {
		m := s.db.Metrics()
		s.pace.hurry.Store(m.Levels[0].Sublevels >= l0Hurry)
		if !full(m) {
			return nil
		}
		select {
		case <-pause.C:
		case <-s.background.Done(): // nothing compacts any more
			return s.background.err()
		}
	}
}

// writeSpill writes a spill and the store's own record, in key order.
func (s *Store) writeSpill(path string, sp *buffer.Spill, local []byte) (err error) {
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), s.spillOptions)
	defer func() {
		if closed := w.Close(); err == nil {
			err = closed
		}
	}()
	own, written := []byte(localKey), false
	err = sp.Sorted(func(key, value []byte) error {
		if !written && bytes.Compare(key, own) > 0 {
			written = true
			if err := w.Set(own, local); err != nil {
				return err
			}
		}
		if value == nil {
			return w.Delete(key)
		}
		return w.Set(key, value)
	})
	if err != nil || written {
		return err
	}
	return w.Set(own, local)
}
