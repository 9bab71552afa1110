package importer

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// Rejects is a CSV file (line,reason,original) of what did not become events in Kafka, created with its first line.
type Rejects struct {
	path string

	mu struct {
		sync.Mutex
		file *os.File
		csv  *csv.Writer
	}
}

// NewRejects sets the path. An existing file is replaced.
func NewRejects(path string) *Rejects { return &Rejects{path: path} }

// Add writes a line. It is safe for concurrent use.
func (r *Rejects) Add(number int64, reason string, original []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var head error
	if r.mu.file == nil {
		f, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) // it says who liked what
		if err != nil {
			return fmt.Errorf("rejects file (choose another with --rejects): %w", err)
		}
		r.mu.file, r.mu.csv = f, csv.NewWriter(f)
		head = r.mu.csv.Write([]string{"line", "reason", "original"})
	}
	row := r.mu.csv.Write([]string{strconv.FormatInt(number, 10), reason, string(original)})
	if err := errors.Join(head, row); err != nil {
		return fmt.Errorf("rejects file: %w", err)
	}
	return nil
}

// Written returns the path if the file has lines, and "" if not.
func (r *Rejects) Written() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.file == nil {
		return ""
	}
	return r.path
}

// Close flushes and closes the file, if there is one.
func (r *Rejects) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.file == nil {
		return nil
	}
	r.mu.csv.Flush()
	if err := errors.Join(r.mu.csv.Error(), r.mu.file.Close()); err != nil {
		return fmt.Errorf("rejects file %s: %w", r.path, err)
	}
	return nil
}
