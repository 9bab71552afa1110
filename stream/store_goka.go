package stream

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lovoo/goka/storage"
)

// The rest of goka's storage.Storage. Of these, kudos itself uses GetOffset and
// SetOffset (recovery) and the iterators and getters (views); data comes in by Write.

var _ storage.Storage = (*Store)(nil)

// Has tells whether the key is there.
func (s *Store) Has(key string) (bool, error) {
	v, err := s.Get(key)
	return v != nil, err
}

// Get returns a copy of the value, or nil if the key is not there.
func (s *Store) Get(key string) ([]byte, error) {
	value, closer, err := s.db.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading local state in %s: %w", s.dir, err)
	}
	defer closer.Close()
	return append(make([]byte, 0, len(value)), value...), nil
}

// Set writes one key without moving the offset: the record is then read again after
// a crash, which is harmless for a table.
func (s *Store) Set(key string, value []byte) error {
	return s.db.Set([]byte(key), value, pebble.NoSync)
}

// Delete deletes one key, like Set.
func (s *Store) Delete(key string) error { return s.db.Delete([]byte(key), pebble.NoSync) }

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
	var ok bool
	if i.started {
		ok = i.iter.Next()
	} else {
		ok = i.iter.First()
	}
	i.started = true
	if ok && string(i.iter.Key()) == localKey {
		ok = i.iter.Next()
	}
	return ok
}

// Seek stands before the first key at or behind key: Next leads to it.
func (i *storeIterator) Seek(key []byte) bool {
	ok := i.iter.SeekGE(key)
	if ok {
		i.iter.Prev()
		i.started = i.iter.Valid()
		if !i.started {
			return true // before the first key, where Next begins
		}
	}
	return ok
}

func (i *storeIterator) Key() []byte            { return i.iter.Key() }
func (i *storeIterator) Value() ([]byte, error) { return i.iter.ValueAndErr() }
func (i *storeIterator) Err() error             { return i.iter.Error() }
func (i *storeIterator) Release()               { _ = i.iter.Close() }
