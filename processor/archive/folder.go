package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kudos/schema"
	"kudos/stream"
)

// This file is the folder of an archive: whose it is, and that what is in it stays.

// identity is which log an archive is of.
type identity struct {
	ClusterID  string   `json:"cluster_id"`
	TopicID    [16]byte `json:"topic_id"`
	Partitions int32    `json:"partitions"`
}

func identityOf(topics stream.Topics) identity {
	t := topics.ByName[schema.TopicUpdates]
	return identity{topics.ClusterID, t.ID, t.Partitions}
}

func lockPath(dir string) string     { return filepath.Join(dir, "lock") }
func identityPath(dir string) string { return filepath.Join(dir, "archive.json") }

// prepare makes the folder, or checks that it is an archive of this log.
func prepare(dir string, of identity) error {
	if err := makeDir(dir); err != nil {
		return fmt.Errorf("archive.dir: %w", err)
	}
	err := checkIdentity(dir, of)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := json.Marshal(of)
	if err != nil {
		return err
	}
	tmp := identityPath(dir) + ".unfinished"
	if err := os.WriteFile(tmp, append(text, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.Rename(tmp, identityPath(dir)); err != nil {
		return err
	}
	return syncDir(dir)
}

func checkIdentity(dir string, of identity) error {
	text, err := os.ReadFile(identityPath(dir))
	if err != nil {
		return err
	}
	var have identity
	if err := json.Unmarshal(text, &have); err != nil {
		return &lostError{fmt.Errorf("%s: %w", identityPath(dir), err)}
	}
	if have != of {
		return &lostError{fmt.Errorf("%s is the archive of another like-updates (it was deleted and made anew, has other partitions, or this is another cluster): begin a new folder (archive.dir)", dir)}
	}
	return nil
}

// makeDir makes a folder that outlives a crash of the machine.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
