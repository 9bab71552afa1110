package main

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"kudos/integration/peers/peer"
)

// pairKeySize tells pairs from goka's own record.
const pairKeySize = 16

// state prints what the table of pairs takes on disk, compacted, and how many pairs are in it. The processors have ended.
func state(dir string, lines *peer.Lines) error {
	stores, err := tables(dir, groupPairs)
	if err != nil {
		return err
	}
	var bytes, pairs int64
	for _, store := range stores {
		n, err := compact(store)
		if err != nil {
			return fmt.Errorf("compact %s: %w", store, err)
		}
		pairs += n
		err = filepath.WalkDir(store, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				bytes += info.Size()
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("measure %s: %w", store, err)
		}
	}
	return lines.State(bytes, pairs)
}

// compact compacts a store and counts its pairs.
func compact(store string) (pairs int64, err error) {
	db, err := leveldb.OpenFile(store, nil)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if err := db.CompactRange(util.Range{}); err != nil {
		return 0, err
	}
	all := db.NewIterator(nil, nil)
	defer all.Release()
	for all.Next() {
		if len(all.Key()) == pairKeySize {
			pairs++
		}
	}
	return pairs, all.Error()
}
