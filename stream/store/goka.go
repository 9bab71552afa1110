package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lovoo/goka/storage"
)

// The rest of goka's storage.Storage. Of these, kudos itself uses GetOffset and
// SetOffset (recovery) and the iterators and getters (views); data comes in by Write.

var _ storage.Storage = (*Store)(nil)

// Has tells whether the key is there.
func (s *Store) Has(key string) (bool, error) {
	return s.Find([]byte(key), func([]byte) error { return nil })
}

// Get returns a copy of the value, or nil if the key is not there.
func (s *Store) Get(key string) (value []byte, err error) {
	_, err = s.Find([]byte(key), func(v []byte) error {
		value = append(make([]byte, 0, len(v)), v...)
		return nil
	})
	return value, err
}

// Set writes one key without moving the offset: the record is then read again after
// a crash, which is harmless for a table.
func (s *Store) Set(key string, value []byte) error {
	if value == nil {
		return fmt.Errorf("writing local state in %s: a key needs a value", s.dir)
	}
	return s.setAlone(key, value)
}

// setAlone leaves the offset where it is.
func (s *Store) setAlone(key string, value []byte) error {
	w := s.NewWrite()
	if err := w.Set([]byte(key), value); err != nil {
		w.Discard()
		return err
	}
	return w.Commit(s.position())
}

// Delete deletes one key, like Set.
func (s *Store) Delete(key string) error {
	return s.setAlone(key, nil)
}

// GetOffset returns the offset of the last log record that the store covers.
func (s *Store) GetOffset(def int64) (int64, error) {
	if offset, ok := s.Offset(); ok {
		return offset, nil
	}
	return def, nil
}

// SetOffset moves the offset, unless a Write did already.
func (s *Store) SetOffset(offset int64) error {
	if have, ok := s.Offset(); ok && have == offset {
		return nil
	}
	return s.NewWrite().Commit(offset)
}

// MarkRecovered has nothing to do: the store is the same before and after.
func (s *Store) MarkRecovered() error { return nil }

// Iterator walks over all keys.
func (s *Store) Iterator() (storage.Iterator, error) { return s.IteratorWithRange(nil, nil) }

// IteratorWithRange walks over [start, limit). As with goka's own storages, a nil
// limit means all keys that begin with start.
func (s *Store) IteratorWithRange(start, limit []byte) (storage.Iterator, error) {
	if limit == nil {
		limit = prefixEnd(start)
	}
	if err := s.spillAll(); err != nil {
		return nil, err
	}
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: limit})
	if err != nil {
		return nil, fmt.Errorf("reading local state in %s: %w", s.dir, err)
	}
	return &storeIterator{iter: iter}, nil
}

// prefixEnd returns the first key behind all that begin with prefix, or nil.
func prefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append(make([]byte, 0, i+1), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

// storeIterator leaves the store's own record out.
type storeIterator struct {
	iter    *pebble.Iterator
	started bool
}

func (i *storeIterator) Next() bool {
	if i.started {
		return i.visible(i.iter.Next())
	}
	i.started = true
	return i.visible(i.iter.First())
}

// Seek stands at the first key at or behind key, as goka's own storages do and its
// merging of iterators needs (its documentation says that Next leads there).
func (i *storeIterator) Seek(key []byte) bool {
	i.started = true
	if len(key) == 0 {
		return i.visible(i.iter.First())
	}
	return i.visible(i.iter.SeekGE(key))
}

// visible steps over the store's own record.
func (i *storeIterator) visible(ok bool) bool {
	if ok && string(i.iter.Key()) == localKey {
		return i.iter.Next()
	}
	return ok
}

// Key returns nil where there is none, as goka's own storages do.
func (i *storeIterator) Key() []byte {
	if !i.iter.Valid() {
		return nil
	}
	return i.iter.Key()
}

func (i *storeIterator) Value() ([]byte, error) { return i.iter.ValueAndErr() }
func (i *storeIterator) Err() error             { return i.iter.Error() }

// Release may be called again, which Pebble would not stand.
func (i *storeIterator) Release() {
	if i.iter != nil {
		_ = i.iter.Close()
		i.iter = nil
	}
}
