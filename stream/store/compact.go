package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// CompactStopped compacts the store of one partition that no process has open, and returns the bytes of its files after
// that. It calls each with every key, which each must not keep. For measurements: a store in use compacts itself.
func CompactStopped(dir string, log *slog.Logger, each func(key []byte)) (bytes int64, err error) {
	s := &Store{fs: vfs.Default, dir: dir, cache: pebble.NewCache(8 << 20), log: log, memtableBytes: memtableBytes}
	defer s.cache.Unref()
	if err := s.compact(each); err != nil {
		return 0, fmt.Errorf("compacting local state in %s: %w", dir, err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measuring local state in %s: %w", dir, err)
	}
	return bytes, nil
}

func (s *Store) compact(each func(key []byte)) (err error) {
	if _, err := s.fs.Stat(s.dir); err != nil {
		return err
	}
	if err := s.lockDir(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.background, s.pace = newBackground(), &pace{FS: s.fs}
	s.pace.hurry.Store(true)
	opts := s.pebbleOptions()
	opts.ErrorIfNotExists = true
	if s.db, err = pebble.Open(s.dir, opts); err != nil {
		return err
	}
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	var last []byte
	for ok := iter.First(); ok; ok = iter.Next() {
		each(iter.Key())
		last = append(last[:0], iter.Key()...)
	}
	if err := iter.Close(); err != nil || last == nil {
		return err
	}
	return s.db.Compact(context.Background(), []byte{}, append(last, 0), true)
}
