package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Addresses are where the parts listen, host:port.
type Addresses struct {
	Kafka  string `json:"kafka"`
	MySQL  string `json:"mysql"`
	HTTP   string `json:"http"` // the producer
	Reader string `json:"reader"`
	Admin  string `json:"admin"`
}

// WriteReady tells, by a file at path, that all is up and where. The file appears with
// all that it says, or not at all.
func WriteReady(path string, a Addresses) error {
	if err := writeReady(path, a); err != nil {
		return fmt.Errorf("writing the ready file %s: %w", path, err)
	}
	return nil
}

func writeReady(path string, a Addresses) (err error) {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	// Renaming is atomic only within a file system.
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(append(text, '\n'))
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// RemoveReady takes the ready file away: before the start, in case an earlier run died,
// and at the end. It need not be there.
func RemoveReady(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the ready file %s: %w", path, err)
	}
	return nil
}
