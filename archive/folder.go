package archive

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// folder is an archive on disk. Beside the folders of the hours it has files of its own; their
// names begin with _, so that programs that read whole folders pass them over:
//
//	_lock                   held by the one process that writes
//	_log.json               which like-updates it is the archive of
//	_p3.json                how far partition 3 has come (position)
//	_p3-123.unfinished      rows from offset 123 on, not finished yet
type folder struct {
	dir  string
	lock *flock.Flock
	// The steps by which what was written comes to be there, and stays. Tests have them fail.
	syncFile func(*os.File) error
	rename   func(from, to string) error
	sync     func(dir string) error
}

const (
	lockName     = "_lock"
	identityName = "_log.json"
)

// openFolder makes the folder where there is none, and takes it for this process alone.
func openFolder(dir string) (*folder, error) {
	f := &folder{dir: dir, syncFile: (*os.File).Sync, rename: os.Rename, sync: syncDir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("archive.dir: %w", err)
	}
	f.lock = flock.New(f.path(lockName))
	switch held, err := f.lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("archive.dir: locking %s: %w", f.path(lockName), err)
	case !held:
		return nil, fmt.Errorf("archive.dir: another process writes to %s; stop it, or take another folder", dir)
	}
	return f, nil
}

// Close lets others have the folder.
func (f *folder) Close() error { return f.lock.Close() }

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// checkLock refuses a folder that was replaced since it was opened: in the one that is there now
// somebody else may be writing.
func (f *folder) checkLock() error {
	ours, err := f.lock.Stat()
	if err != nil {
		return fmt.Errorf("archive.dir: %w", err)
	}
	switch there, err := os.Stat(f.path(lockName)); {
	case err == nil && os.SameFile(ours, there):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("archive.dir: %w", err)
	}
	return stream.Park(stream.CauseState, "start it again", "%s was deleted or replaced while it was written to", f.dir)
}

// identity is which log an archive is of.
type identity struct {
	ClusterID  string `json:"cluster_id"`
	TopicID    string `json:"topic_id"` // as Kafka's own tools print it
	Partitions int32  `json:"partitions"`
}

func identityOf(topics kafka.Topics) identity {
	t := topics.ByName[schema.TopicUpdates]
	return identity{topics.ClusterID, base64.RawURLEncoding.EncodeToString(t.ID[:]), t.Partitions}
}

// belongTo has a new folder be the archive of a log, and refuses one that is of another.
func (f *folder) belongTo(id identity) error {
	var have identity
	switch found, err := f.read(identityName, &have); {
	case err != nil:
		return err
	case !found:
		return f.write(identityName, id)
	case have.ClusterID == id.ClusterID && have.TopicID == id.TopicID && have.Partitions < id.Partitions:
		return f.write(identityName, id) // partitions were added
	case have != id:
		return anotherLog(f.dir, have, id)
	}
	return nil
}

// elsewhere is what helps where an archive cannot be gone on with.
const elsewhere = "set archive.dir to a new folder: its rows begin where like-updates is whole; the old one stays as it is"

func anotherLog(dir string, have, is identity) error {
	return stream.Park(stream.CauseTopics, elsewhere, "%s is the archive of another like-updates (it was deleted and made anew, has other partitions, or this is another cluster): cluster %s, topic id %s, %d partitions; here are cluster %s, topic id %s, %d partitions",
		dir, have.ClusterID, have.TopicID, have.Partitions, is.ClusterID, is.TopicID, is.Partitions)
}

// read reads one of the folder's own files.
func (f *folder) read(name string, into any) (found bool, err error) {
	text, err := os.ReadFile(f.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("archive.dir: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, stream.Park(stream.CauseState, "restore it from a backup, or "+elsewhere, "%s: %w", f.path(name), err)
	}
	return true, nil
}

// write has one of the folder's own files be there with this content, or as it was before. After
// an error it is not known which.
func (f *folder) write(name string, content any) error {
	if err := f.checkLock(); err != nil {
		return err
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	next := f.path(name + ".next")
	if err := f.writeSynced(next, append(text, '\n')); err != nil {
		return fmt.Errorf("archive.dir: %w", err)
	}
	if err := f.rename(next, f.path(name)); err != nil {
		return fmt.Errorf("archive.dir: %w", err)
	}
	return f.sync(f.dir)
}

func (f *folder) writeSynced(path string, content []byte) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(content); err != nil {
		return err
	}
	return f.syncFile(file)
}

// syncDir has what was made and renamed in a folder outlive a crash of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("archive.dir: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("archive.dir: syncing %s: %w", dir, err)
	}
	return nil
}
