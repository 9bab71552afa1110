package archive

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"

	"kudos/stream"
)

// Store has the files of an archive: a directory, or a bucket (cli/full/s3). One process at a time writes to it. Others
// skip the archive's own files, whose names begin with _:
//
//	_log.json               which like-updates the archive was made from
//	_p3.json                how far partition 3 is archived (position)
//	_p3-123.unfinished      rows from offset 123 on, in a file that is not finished
type Store interface {
	fmt.Stringer // its address
	// Read returns one of the archive's own files. From then on no other process can write what it read before.
	Read(name string) (text []byte, found bool, err error)
	// Write replaces one with a JSON object, atomically and durably. After an error it may have been replaced.
	Write(name string, text []byte) error
	// Create begins a file with rows; temporary is its name until it is published.
	Create(name string) (f File, temporary string, err error)
	// Publish moves a finished file to its final name, if that was not done before.
	Publish(temporary, to string) error
	List(directory, prefix string) (names []string, err error)
	Remove(name string) error
	Close() error
}

// File is a file with rows. Close drops what is not finished.
type File interface {
	io.WriteCloser
	// Finish makes the file durable. It returns the file's size.
	Finish() (bytes int64, err error)
}

// contents are the files of an archive, and what they mean.
type contents struct {
	Store
	table     Table
	columns   string // of the files with rows
	belonging sync.Mutex
}

const identityName = "_log.json"

// identity identifies the topic that an archive was made from.
type identity struct {
	ClusterID  string `json:"cluster_id"`
	TopicID    string `json:"topic_id"` // as Kafka's tools print it
	Partitions int32  `json:"partitions"`
	Columns    string `json:"columns,omitempty"` // the types of those in the files
}

func identityOf(clusterID string, topicID [16]byte, partitions int32) identity {
	return identity{ClusterID: clusterID, TopicID: base64.RawURLEncoding.EncodeToString(topicID[:]),
		Partitions: partitions}
}

func (have identity) grewTo(id identity) bool {
	return have.ClusterID == id.ClusterID && have.TopicID == id.TopicID && have.Partitions < id.Partitions
}

// belongTo assigns a new archive to a topic, and rejects one that belongs to another topic.
func (f *contents) belongTo(id identity) error {
	f.belonging.Lock()
	defer f.belonging.Unlock()
	var have identity
	found, err := f.read(identityName, &have)
	switch {
	case err != nil:
		return err
	case found && have.Columns != f.columns:
		return stream.Park(stream.CauseState, "set archive.dir to a new directory, or archive.iceberg.catalog back",
			"%s was begun with archive.iceberg.catalog, or without: its columns have other types", f)
	}
	id.Columns = f.columns
	switch {
	case !found || have.grewTo(id):
		return f.write(identityName, id)
	case have != id:
		return anotherLog(f.String(), have, id)
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

func (f *contents) read(name string, into any) (found bool, err error) {
	text, found, err := f.Read(name)
	if !found || err != nil {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, stream.Park(stream.CauseState, restore, "%s: %w", f.at(name), err)
	}
	return true, nil
}

func (f *contents) at(name string) string { return f.String() + "/" + name }

func (f *contents) write(name string, content any) error {
	text, _ := json.Marshal(content) // cannot fail: an identity or a position
	return f.Write(name, append(text, '\n'))
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
	// NotInTable are the files that may not be in the Table yet.
	NotInTable []string `json:"not_in_table,omitempty"`
}

func positionName(partition int32) string { return fmt.Sprintf("_p%d.json", partition) }

func unfinishedName(partition int32, from int64) string {
	return fmt.Sprintf("_p%d-%d.unfinished", partition, from)
}

// load reads a partition's position and completes what a crash interrupted.
func (f *contents) load(partition int32) (p position, found bool, err error) {
	if found, err = f.read(positionName(partition), &p); err != nil {
		return p, false, err
	}
	if !found {
		err = f.requireNone(partition)
	} else {
		err = f.settle(p)
	}
	if err == nil {
		err = f.clean(partition)
	}
	return p, found, err
}

// settle moves the file that a position names to its final name.
func (f *contents) settle(p position) error {
	if p.Unfinished == "" {
		return nil
	}
	return f.Publish(p.Unfinished, p.File)
}

// requireNone rejects a partition that has files but no position: their rows would be archived twice.
func (f *contents) requireNone(partition int32) error {
	hours, err := f.List(".", HourPrefix)
	if err != nil {
		return err
	}
	for _, hour := range hours {
		names, err := f.List(hour, fmt.Sprintf("p%d-", partition))
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return stream.Park(stream.CauseState, restore,
				"%s is missing: it records how far the partition is archived, and the partition has files (%s)",
				f.at(positionName(partition)), path.Join(hour, names[0]))
		}
	}
	return nil
}

// clean removes the files that a crash left unfinished.
func (f *contents) clean(partition int32) error {
	left, err := f.List(".", fmt.Sprintf("_p%d-", partition))
	for _, name := range left {
		err = errors.Join(err, f.Remove(name))
	}
	return err
}
