package store

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Find calls found with the value of key, if there is one. The value is valid during the call only.
func (s *Store) Find(key []byte, found func(value []byte) error) (ok bool, err error) {
	if s.buffer != nil {
		switch value, known := s.buffer.Find(key); {
		case value != nil:
			return true, found(value)
		case known:
			return false, nil
		}
	}
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, s.failed("reading", err)
	}
	err = found(value)
	return true, errors.Join(err, closer.Close())
}

// Lookup reads many keys like Reader.Lookup; with a buffer, keys may be in any order, and found is called in any order.
func (s *Store) Lookup(n int, key func(i int) []byte, found func(i int, value []byte) error) error {
	if s.buffer != nil {
		missing, err := s.buffer.Lookup(n, key, found)
		if err != nil || missing == 0 {
			return err
		}
		return s.lookup(missing,
			func(i int) []byte { key, _ := s.buffer.Missing(i); return key },
			func(i int, value []byte) error { _, place := s.buffer.Missing(i); return found(place, value) })
	}
	return s.lookup(n, key, found)
}

// lookup reads from Pebble only.
func (s *Store) lookup(n int, key func(i int) []byte, found func(i int, value []byte) error) error {
	r, err := s.pebbleReader()
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Lookup(n, key, found)
}

// Reader reads a Store as of NewReader. Close it.
type Reader struct {
	s    *Store
	iter *pebble.Iterator
}

// NewReader returns a reader for one goroutine. It spills the buffer first.
func (s *Store) NewReader() (*Reader, error) {
	if err := s.spillAll(); err != nil {
		return nil, err
	}
	return s.pebbleReader()
}

func (s *Store) pebbleReader() (*Reader, error) {
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return nil, s.failed("reading", err)
	}
	return &Reader{s: s, iter: iter}, nil
}

// Close releases the reader.
func (r *Reader) Close() { _ = r.iter.Close() } // a read has returned its error

// Lookup reads many keys, sorted and distinct. It calls found with the index and the value of each key that exists, in
// order. The value is valid during the call only. One iterator in key order is several times as fast as single lookups.
func (r *Reader) Lookup(n int, key func(i int) []byte, found func(i int, value []byte) error) error {
	for i := range n {
		// The whole key is its prefix, so this asks the Bloom filters first.
		if !r.iter.SeekPrefixGE(key(i)) {
			if err := r.iter.Error(); err != nil {
				return r.s.failed("reading", err)
			}
			continue
		}
		value, err := r.iter.ValueAndErr()
		if err != nil {
			return r.s.failed("reading", err)
		}
		if err := found(i, value); err != nil {
			return err
		}
	}
	return nil
}

// Scan reads the keys in [from, to) in order (to nil: the end) until each returns false or an error. Key and value are
// valid during the call only.
func (r *Reader) Scan(from, to []byte, each func(key, value []byte) (more bool, err error)) error {
	r.iter.SetBounds(from, to)
	for ok := r.iter.First(); ok; ok = r.iter.Next() {
		value, err := r.iter.ValueAndErr()
		if err != nil {
			return r.s.failed("reading", err)
		}
		if string(r.iter.Key()) == localKey {
			continue
		}
		if more, err := each(r.iter.Key(), value); err != nil || !more {
			return err
		}
	}
	return r.s.failed("reading", r.iter.Error())
}

// Scan is Reader.Scan of the store's current content.
func Scan(s *Store, from, to []byte, each func(key, value []byte) (more bool, err error)) error {
	r, err := s.NewReader()
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Scan(from, to, each)
}

// PrefixEnd returns the first key after all that start with prefix; nil: there is none.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append(make([]byte, 0, i+1), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}
