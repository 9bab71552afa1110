package importer

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// Rejects is a CSV file of the lines that did not become events in Kafka: line,reason,original. It is made with its
// first line, so that an import without rejects leaves none behind.
type Rejects struct {
	path string

	mu struct {
		sync.Mutex
		file *os.File
		csv  *csv.Writer
	}
}

// NewRejects names the file; it replaces what is there.
func NewRejects(path string) *Rejects { return &Rejects{path: path} }

// Add writes a line. Safe for several goroutines.
func (r *Rejects) Add(number int64, reason string, original []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var head error
	if r.mu.file == nil {
		f, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) // it holds who liked what
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

// Written returns the path if there is anything in the file, and "" if not.
func (r *Rejects) Written() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.file == nil {
		return ""
	}
	return r.path
}

// Close completes the file, if there is one.
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
