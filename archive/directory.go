package archive

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gofrs/flock"

	"kudos/stream"
)

// directory is an archive on disk. Next to the directories of the hours it has its own files, whose names begin with _
// so that programs which read all files skip them:
//
//	_lock                   held by the one process that writes
//	_log.json               which like-updates the archive was made from
//	_p3.json                how far partition 3 is archived (position)
//	_p3-123.unfinished      rows from offset 123 on, in a file that is not finished
type directory struct {
	root      string
	lock      *flock.Flock
	belonging sync.Mutex
	// The steps that make writes durable. Tests make them fail.
	syncFile func(*os.File) error
	rename   func(from, to string) error
	syncDir  func(dir string) error
}

const identityName = "_log.json"

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

func (d *directory) Close() error { return d.lock.Close() }

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

// identity identifies the topic that an archive was made from.
type identity struct {
	ClusterID  string `json:"cluster_id"`
	TopicID    string `json:"topic_id"` // as Kafka's tools print it
	Partitions int32  `json:"partitions"`
}

func identityOf(clusterID string, topicID [16]byte, partitions int32) identity {
	return identity{clusterID, base64.RawURLEncoding.EncodeToString(topicID[:]), partitions}
}

func (have identity) grewTo(id identity) bool {
	return have.ClusterID == id.ClusterID && have.TopicID == id.TopicID && have.Partitions < id.Partitions
}

// belongTo assigns a new directory to a topic, and rejects one that belongs to another topic.
func (d *directory) belongTo(id identity) error {
	d.belonging.Lock()
	defer d.belonging.Unlock()
	var have identity
	switch found, err := d.read(identityName, &have); {
	case err != nil:
		return err
	case !found || have.grewTo(id):
		return d.write(identityName, id)
	case have != id:
		return anotherLog(d.root, have, id)
	}
	return nil
}

// elsewhere is the action when an archive cannot be continued.
const elsewhere = "set archive.dir to a new directory: it starts where like-updates is complete; " +
	"the old one remains unchanged"

// restore is the action when one of the archive's own files is missing or damaged.
const restore = "restore it from a backup, or " + elsewhere

func anotherLog(dir string, have, is identity) error {
	return stream.Park(stream.CauseTopics, elsewhere, "%s is the archive of another like-updates "+
		"(it was recreated, has other partitions, or this is another cluster): "+
		"cluster %s, topic id %s, %d partitions; found cluster %s, topic id %s, %d partitions",
		dir, have.ClusterID, have.TopicID, have.Partitions, is.ClusterID, is.TopicID, is.Partitions)
}

func (d *directory) read(name string, into any) (found bool, err error) {
	text, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, inDir(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, stream.Park(stream.CauseState, restore, "%s: %w", d.path(name), err)
	}
	return true, nil
}

// write atomically replaces one of the directory's own files. After an error the file may have been replaced.
func (d *directory) write(name string, content any) error {
	if err := d.checkLock(); err != nil {
		return err
	}
	text, _ := json.Marshal(content) // cannot fail: an identity or a position
	file, err := d.create(name + ".next")
	if err != nil {
		return err
	}
	if _, err = file.Write(append(text, '\n')); err == nil {
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

// position is how far a partition is archived; nothing else decides that. A file with rows is put in place in three
// steps. After a crash, the next process continues from the last one that succeeded:
//
//	the file is finished, under a temporary name
//	the position is written, which names the file: from here on its rows are archived
//	the file is moved to its final name, where others see it
//
// Before the second step the file does not count: its rows are written again. After it the idempotent third is left.
type position struct {
	NextOffset int64  `json:"next_offset"`
	NextSeq    uint64 `json:"next_seq"` // of the update at NextOffset
	// File is the last file with rows, and Unfinished its temporary name.
	File       string `json:"file,omitempty"`
	Unfinished string `json:"unfinished,omitempty"`
}

func positionName(partition int32) string { return fmt.Sprintf("_p%d.json", partition) }

func unfinishedName(partition int32, from int64) string {
	return fmt.Sprintf("_p%d-%d.unfinished", partition, from)
}

// load reads a partition's position and completes what a crash interrupted.
func (d *directory) load(partition int32) (p position, found bool, err error) {
	if err := d.checkLock(); err != nil {
		return p, false, err
	}
	if found, err = d.read(positionName(partition), &p); err != nil {
		return p, false, err
	}
	if !found {
		err = d.requireNone(partition)
	} else if err = d.syncDir(d.root); err == nil { // its writer may have crashed before it synced the directory
		err = d.settle(p)
	}
	if err == nil {
		err = d.clean(partition)
	}
	return p, found, err
}

// requireNone rejects a partition that has files but no position: their rows would be archived twice.
func (d *directory) requireNone(partition int32) error {
	hours, err := d.list(".", hourPrefix)
	if err != nil {
		return err
	}
	for _, hour := range hours {
		files, err := d.list(hour, fmt.Sprintf("p%d-", partition))
		if err != nil {
			return err
		}
		if len(files) > 0 {
			return stream.Park(stream.CauseState, restore,
				"%s is missing: it records how far the partition is archived, and the partition has files (%s)",
				d.path(positionName(partition)), filepath.Join(hour, files[0]))
		}
	}
	return nil
}

// settle moves the file that a position names to its final name, unless that was done before.
func (d *directory) settle(p position) error {
	if p.Unfinished == "" {
		return nil
	}
	if _, err := os.Stat(d.path(p.Unfinished)); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return inDir(err)
	}
	to := d.path(p.File)
	hour := filepath.Dir(to)
	if err := os.Mkdir(hour, 0o755); err == nil { // not MkdirAll, which would silently recreate a deleted archive
		if err := d.syncDir(d.root); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return inDir(err)
	}
	if err := d.rename(d.path(p.Unfinished), to); err != nil {
		return inDir(err)
	}
	return errors.Join(d.syncDir(hour), d.syncDir(d.root))
}

// clean removes the files that a crash left unfinished.
func (d *directory) clean(partition int32) error {
	left, err := d.list(".", fmt.Sprintf("_p%d-", partition))
	for _, name := range left {
		err = errors.Join(err, inDir(os.Remove(d.path(name))))
	}
	return err
}

func (d *directory) list(directory, prefix string) (names []string, err error) {
	entries, err := os.ReadDir(d.path(directory))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, inDir(err)
}
