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
)

// spillFile is what a spill is called until it is one of Pebble's files.
const spillFile = "spill"

// compactionPause is the time between two looks at how compactions go on.
const compactionPause = 20 * time.Millisecond

// writeOut brings a spill to disk, as one of Pebble's files. Of the buffer it touches only
// what the store's owner does not change meanwhile: the filter.
func (s *Store) writeOut(b *buffer, sp *spill) error {
	path := s.fs.PathJoin(s.dir, spillFile)
	if err := s.writeSpill(path, b, sp); err != nil {
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

// WaitForRoom waits as Pebble itself would in the middle of a write, before it comes to that.
func (s *Store) WaitForRoom() error {
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
		case <-s.background.failed: // nothing compacts any more
			return s.background.err()
		}
	}
	return nil
}

func (s *Store) writeSpill(path string, b *buffer, sp *spill) (err error) {
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
	local := []byte(localKey)
	noteLocal := func() error {
		key := local
		local = nil
		return w.Set(key, encodeLocal(sp.id, sp.offset))
	}
	sp.entries.eachHash(b.filter.add)
	b.budget.sorting.Lock()
	defer b.budget.sorting.Unlock()
	err = sp.entries.sorted(&b.budget.sorter, func(key, value []byte) error {
		if local != nil && bytes.Compare(key, local) > 0 {
			if err := noteLocal(); err != nil {
				return err
			}
		}
		if value == nil {
			return w.Delete(key)
		}
		return w.Set(key, value)
	})
	if err != nil {
		return err
	}
	if local != nil {
		return noteLocal()
	}
	return nil
}
