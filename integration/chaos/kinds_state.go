package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

func hasDisks(s *system) bool {
	return !slices.ContainsFunc(s.processors, func(u *unit) bool { return u.disk == nil })
}

// fillDisk fills a processor's disk. A guest starts and dies meanwhile, so that stores are closed (a write) and opened.
func fillDisk(ctx context.Context, f *fault, u *unit) error {
	d := f.between(2*time.Second, 6*time.Second)
	f.on("%v for %v", u, d.Round(time.Millisecond))
	size := u.logSize()
	defer f.away()()
	ballast := filepath.Join(u.disk.path(), "ballast")
	written, err := fill(ballast)
	if err != nil {
		return fmt.Errorf("fill the state disk of %v: %w", u, err)
	}
	guest := f.sys.guests[f.random.IntN(len(f.sys.guests))]
	errs := []error{guest.Start(ctx), wait(ctx, d/2), guest.Kill(), wait(ctx, d/2)}
	noticed := u.tells(ctx, size, noticeTimeout, "no space left")
	errs = append(errs, os.Remove(ballast))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if noticed != nil {
		return missed("%v", noticed)
	}
	f.show("MiB written to fill state disks", written>>20)
	f.show("processors that found their state disk full", 1)
	return nil
}

const noticeTimeout = 6 * time.Second

func fill(path string) (written int64, err error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		n, err := file.Write(block)
		written += int64(n)
		if err != nil {
			block = block[:len(block)/2] // down to the last byte
		}
	}
	if written == 0 {
		return 0, errors.New("nothing could be written")
	}
	return written, nil
}

// stateFiles lists the files of a process's local state; with tables only the tables, which contain the data.
func (u *unit) stateFiles(tables bool) (files []string) {
	_ = filepath.WalkDir(u.state, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && e.Name() != "LOCK" && (!tables || filepath.Ext(path) == ".sst") {
			files = append(files, path)
		}
		return nil // ignore what disappeared meanwhile
	})
	return files
}

// corruptState overwrites or truncates files of a processor that runs, or of a process that was shut down gracefully
// (complete files).
func corruptState(ctx context.Context, f *fault, u *unit) error {
	running := u.role == "processor" && f.random.IntN(3) == 0
	if !running {
		if err := u.Stop(); err != nil {
			return missed("%v", err)
		}
	}
	files := u.stateFiles(running || f.random.IntN(2) == 0)
	f.on("%v, running: %v, %d files to choose from", u, running, len(files))
	size := u.logSize()
	var struck int64
	for _, path := range files {
		if f.random.IntN(2) == 0 {
			continue
		}
		if err := f.damage(path); err == nil { // otherwise it is gone, or empty
			struck++
		}
	}
	f.show("files of local state corrupted", struck)
	return f.noticed(ctx, u, running, size)
}

// noticed waits until a process logs the damage. A running one may not read the files; then it is restarted.
func (f *fault) noticed(ctx context.Context, u *unit, running bool, size int64) error {
	texts := []string{"local state is not usable", "local state is corrupted", "corrupted local state", "local state: ",
		"local state is opened again", "local state in"}
	if err := wait(ctx, f.between(0, 2*time.Second)); err != nil {
		return err
	}
	if !running || u.tells(ctx, size, 2*time.Second, texts...) != nil {
		if running {
			if err := u.Stop(); err != nil {
				return missed("%v", err)
			}
		}
		if err := u.Start(ctx); err != nil {
			return err
		}
		if err := u.awaitWork(ctx, atWorkTimeout); err != nil {
			return missed("%v", err)
		}
		if err := u.tells(ctx, size, noticeTimeout, texts...); err != nil { // its partitions may have changed
			return missed("%v", err)
		}
	}
	f.show(u.role+"s that detected damaged state", 1)
	return nil
}

func (f *fault) damage(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size == 0 {
		return errors.New("empty")
	}
	if f.random.IntN(4) == 0 {
		return file.Truncate(f.random.Int64N(size))
	}
	for range 1 + f.random.IntN(20) {
		noise := make([]byte, 1+f.random.IntN(64))
		for i := range noise {
			noise[i] = byte(f.random.Uint32())
		}
		at := f.random.Int64N(size)
		if _, err := file.WriteAt(noise[:min(int64(len(noise)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

func deleteState(ctx context.Context, f *fault, u *unit) error {
	return f.deleteFiles(ctx, u, f.random.IntN(3) == 0, f.random.IntN(2) == 0)
}

// deleteSome deletes some of the state of a reader that is down, loseDisk all of it.
func deleteSome(ctx context.Context, f *fault, u *unit) error {
	return f.deleteFiles(ctx, u, false, false)
}

func loseDisk(ctx context.Context, f *fault, u *unit) error {
	return f.deleteFiles(ctx, u, false, true)
}

func (f *fault) deleteFiles(ctx context.Context, u *unit, running, all bool) error {
	f.on("%v, running: %v, all: %v", u, running, all)
	if !running {
		end := u.Kill
		if f.random.IntN(2) == 0 {
			end = u.Stop
		}
		if err := end(); err != nil {
			return missed("%v", err)
		}
	}
	size := u.logSize()
	var struck int64
	for _, path := range u.stateFiles(false) {
		if (all || f.random.IntN(3) == 0) && os.Remove(path) == nil {
			struck++
		}
	}
	if all { // files that a running processor has just created may stay
		if err := os.RemoveAll(u.state); err != nil && !running {
			return err
		}
	}
	f.show("files of local state deleted", struck)
	switch {
	case struck == 0:
		return errors.Join(u.restore(ctx), missed("there were no files"))
	case all && !running: // nothing is left to notice
		return errors.Join(wait(ctx, f.between(0, 2*time.Second)), u.Start(ctx))
	}
	return f.noticed(ctx, u, running, size)
}
