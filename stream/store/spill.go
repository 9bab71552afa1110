package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/stream/store/buffer"
)

// spillFile is what a spill is called until it is one of Pebble's files.
const spillFile = "spill"

// compactionPause is the time between two looks at how compactions go on.
const compactionPause = 20 * time.Millisecond

// filterKeyBytes is about what a key takes on disk.
const filterKeyBytes = 24

// openBuffer begins with the keys that Pebble has.
func (s *Store) openBuffer() error {
	if s.memory == nil {
		return nil
	}
	iter, err := s.db.NewIter(nil) // sees the keys of now, however long it takes
	if err != nil {
		return err
	}
	s.spilled = s.offset.Load()
	total := s.db.Metrics().Total()
	s.buffer = s.memory.Open(uint64(total.TablesSize)/filterKeyBytes, func(each func(key []byte) bool) error {
		for ok := iter.First(); ok && each(iter.Key()); ok = iter.Next() {
		}
		return iter.Close()
	})
	return nil
}

// closeBuffer ends what the buffer has running. What is in it is lost.
func (s *Store) closeBuffer() {
	if s.buffer != nil {
		s.buffer.Close()
		s.buffer = nil
	}
}

// seal tells that the log has all that was staged, up to and including offset.
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

// abandon forgets what was staged, and with it what was written since the last spill.
func (s *Store) abandon() {
	if s.buffer != nil && s.buffer.Unsealed() {
		s.buffer.Abandon()
		s.offset.Store(s.spilled)
	}
}

// beginSpill sends what is in the buffer to disk, once the spill before has come there.
func (s *Store) beginSpill() error {
	if s.buffer.Unsealed() {
		return fmt.Errorf("writing local state in %s: what was staged is not sealed", s.dir)
	}
	if err := s.buffer.Settle(); err != nil {
		return err
	}
	offset, id, background := s.offset.Load(), s.id, s.background
	if s.buffer.Empty() && offset == s.spilled {
		return nil
	}
	s.spilled = offset
	s.buffer.Spill(func(sp *buffer.Spill) error {
		err := s.writeOut(sp, encodeLocal(id, offset))
		if err != nil {
			s.giveUp(background, err)
		}
		return err
	})
	return nil
}

// spillAll has Pebble know all that the store has.
func (s *Store) spillAll() error {
	if s.buffer == nil {
		return nil
	}
	if err := s.beginSpill(); err != nil {
		return err
	}
	return s.buffer.Settle()
}

// writeOut brings a spill to disk, as one of Pebble's files. Of the store it touches nothing that its owner changes
// meanwhile.
func (s *Store) writeOut(sp *buffer.Spill, local []byte) error {
	path := s.fs.PathJoin(s.dir, spillFile)
	if err := s.writeSpill(path, sp, local); err != nil {
		return fmt.Errorf("writing local state in %s: %w", s.dir, err)
	}
	if err := s.db.Ingest(context.Background(), []string{path}); err != nil {
		return fmt.Errorf("writing local state in %s: %w", s.dir, err)
	}
	return s.waitForCompactions()
}

// waitForCompactions holds the next spill back while too many lie one over the other: each
// look-up in Pebble asks them all.
func (s *Store) waitForCompactions() error {
	return s.waitWhile(func(m *pebble.Metrics) bool { return m.Levels[0].Sublevels >= l0Stop })
}

// Room waits until Pebble takes a write without a pause in the middle of it, and returns why the store takes none.
func (s *Store) Room() error {
	if s.db == nil {
		return errNotOpen
	}
	if err := s.usable(); err != nil {
		return err
	}
	return s.waitWhile(func(m *pebble.Metrics) bool {
		return m.Levels[0].Sublevels >= l0Stop-2 || m.MemTable.Size >= (memtablesStop-1)*s.memtableBytes
	})
}

func (s *Store) waitWhile(full func(*pebble.Metrics) bool) error {
	pause := time.NewTicker(compactionPause)
	defer pause.Stop()
	for full(s.db.Metrics()) {
		select {
		case <-pause.C:
		case <-s.background.Done(): // nothing compacts any more
			return s.background.err()
		}
	}
	return nil
}

// writeSpill writes a spill and the store's own record, in the order of keys.
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
