package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"kudos/stream"
)

// directory is a Store on disk. _lock is held by the one process that writes.
type directory struct {
	root string
	lock *flock.Flock
	// The steps that make writes durable. Tests make them fail.
	syncFile func(*os.File) error
	rename   func(from, to string) error
	syncDir  func(dir string) error
}

// openDirectory creates the directory if it does not exist, and locks it for this process.
func openDirectory(root string) (*directory, error) {
	d := &directory{root: root, syncFile: (*os.File).Sync, rename: os.Rename, syncDir: syncDir}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, inDir(err)
	}
	d.lock = flock.New(d.path("_lock"))
	switch held, err := d.lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("archive.dir: locking %s: %w", d.lock.Path(), err)
	case !held:
		return nil, fmt.Errorf("archive.dir: another process writes to %s; stop it, or use another directory", root)
	}
	return d, nil
}

func (d *directory) String() string { return d.root }
func (d *directory) Close() error   { return d.lock.Close() }

func (d *directory) path(name string) string { return filepath.Join(d.root, name) }

// inDir adds the name of the setting to a file-system error.
func inDir(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("archive.dir: %w", err)
}

// checkLock rejects a directory that was replaced since it was opened: another process may be writing to the new one.
func (d *directory) checkLock() error {
	ours, err := d.lock.Stat()
	if err != nil {
		return inDir(err)
	}
	switch there, err := os.Stat(d.lock.Path()); {
	case err == nil && os.SameFile(ours, there):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return inDir(err)
	}
	return stream.Park(stream.CauseState, "restart the archive", "%s was deleted or replaced while in use", d.root)
}

// Read also makes the file durable: its writer may have crashed before it synced the directory.
func (d *directory) Read(name string) (text []byte, found bool, err error) {
	if err := d.checkLock(); err != nil {
		return nil, false, err
	}
	text, err = os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, inDir(err)
	}
	return text, true, d.syncDir(d.root)
}

// Write implements Store.
func (d *directory) Write(name string, text []byte) error {
	if err := d.checkLock(); err != nil {
		return err
	}
	file, err := d.create(name + ".next")
	if err != nil {
		return err
	}
	if _, err = file.Write(text); err == nil {
		err = d.syncFile(file)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = d.rename(file.Name(), d.path(name))
	}
	if err != nil {
		return inDir(err)
	}
	return d.syncDir(d.root)
}

func (d *directory) create(name string) (*os.File, error) {
	file, err := os.OpenFile(d.path(name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	return file, inDir(err)
}

// Create implements Store.
func (d *directory) Create(name string) (File, string, error) {
	file, err := d.create(name)
	return diskFile{file, d}, name, err
}

type diskFile struct {
	*os.File
	directory *directory
}

func (f diskFile) Finish() (bytes int64, err error) {
	if err = f.directory.syncFile(f.File); err == nil {
		bytes, err = f.Seek(0, io.SeekEnd)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	return bytes, f.directory.syncDir(f.directory.root) // its name must be on disk before what refers to it
}

// syncDir makes files that were created or renamed in a directory survive a crash of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return inDir(err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("archive.dir: syncing %s: %w", dir, err)
	}
	return nil
}

// Publish implements Store.
func (d *directory) Publish(from, to string) error {
	if _, err := os.Stat(d.path(from)); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return inDir(err)
	}
	hour := filepath.Dir(d.path(to))
	if err := os.Mkdir(hour, 0o755); err == nil { // not MkdirAll, which would silently recreate a deleted archive
		if err := d.syncDir(d.root); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return inDir(err)
	}
	if err := d.rename(d.path(from), d.path(to)); err != nil {
		return inDir(err)
	}
	return errors.Join(d.syncDir(hour), d.syncDir(d.root))
}

// List implements Store.
func (d *directory) List(directory, prefix string) (names []string, err error) {
	entries, err := os.ReadDir(d.path(directory))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, inDir(err)
}

// Remove implements Store.
func (d *directory) Remove(name string) error { return inDir(os.Remove(d.path(name))) }
