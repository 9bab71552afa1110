package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kudos/stream"
)

// position is how far a partition has been archived, and the only word on it. A file with rows
// comes to be there in three steps, after a crash between which the next process goes on:
//
//	the file is finished, under a name of the folder's own
//	the position is written, which names it: from here on its rows are archived
//	the file is moved to its place, where others see it
//
// Before the second step the file is nothing, and made anew; after it the third one is only to be
// done, and done again does nothing.
type position struct {
	NextOffset int64  `json:"next_offset"`
	NextSeq    uint64 `json:"next_seq"` // of the update there
	// File is the last file with rows, and Unfinished its name before.
	File       string `json:"file,omitempty"`
	Unfinished string `json:"unfinished,omitempty"`
}

func positionName(partition int32) string { return fmt.Sprintf("_p%d.json", partition) }

func unfinishedName(partition int32, from int64) string {
	return fmt.Sprintf("_p%d-%d.unfinished", partition, from)
}

// load reads a partition's position, and brings to its end what a crash left undone.
func (f *folder) load(partition int32) (p position, found bool, err error) {
	if err := f.checkLock(); err != nil {
		return p, false, err
	}
	if found, err = f.read(positionName(partition), &p); err != nil {
		return p, false, err
	}
	if !found {
		err = f.requireNone(partition)
	} else if err = f.sync(f.dir); err == nil { // whoever wrote it may not have come to that
		err = f.settle(p)
	}
	if err == nil {
		err = f.clean(partition)
	}
	return p, found, err
}

// requireNone refuses a partition that has files but no position: their rows would come again.
func (f *folder) requireNone(partition int32) error {
	hours, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("archive.dir: %w", err)
	}
	for _, hour := range hours {
		if !strings.HasPrefix(hour.Name(), hourPrefix) {
			continue
		}
		files, err := os.ReadDir(f.path(hour.Name()))
		if err != nil {
			return fmt.Errorf("archive.dir: %w", err)
		}
		for _, file := range files {
			if strings.HasPrefix(file.Name(), fmt.Sprintf("p%d-", partition)) {
				return stream.Park(stream.CauseState, "restore it from a backup, or "+elsewhere, "%s is missing, which says how far the partition has been archived, and there are files of it (%s)",
					f.path(positionName(partition)), filepath.Join(hour.Name(), file.Name()))
			}
		}
	}
	return nil
}

// settle moves the file that a position names to its place, unless it is or was there.
func (f *folder) settle(p position) error {
	if p.Unfinished == "" {
		return nil
	}
	if _, err := os.Stat(f.path(p.Unfinished)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("archive.dir: %w", err)
	}
	to := f.path(p.File)
	// Not MkdirAll: a folder that was deleted is not made anew in silence.
	if err := os.Mkdir(filepath.Dir(to), 0o755); err == nil {
		if err := f.sync(f.dir); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("archive.dir: %w", err)
	}
	if err := f.rename(f.path(p.Unfinished), to); err != nil {
		return fmt.Errorf("archive.dir: %w", err)
	}
	return errors.Join(f.sync(filepath.Dir(to)), f.sync(f.dir))
}

// clean takes away what a crash left of files that were not finished.
func (f *folder) clean(partition int32) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("archive.dir: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), fmt.Sprintf("_p%d-", partition)) {
			if err := os.Remove(f.path(e.Name())); err != nil {
				return fmt.Errorf("archive.dir: %w", err)
			}
		}
	}
	return nil
}
