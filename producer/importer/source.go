package importer

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// Source is the file to import, or standard input.
type Source struct {
	// Name is for messages.
	Name string
	// size in bytes as stored, or -1 where it is not known; read is how far it got.
	size   int64
	read   atomic.Int64
	reader io.Reader
	file   *os.File
}

// Open opens a file; "-" is stdin. Gzip is recognised by its first two bytes,
// whatever the name. When ctx ends, reading ends.
func Open(ctx context.Context, path string, stdin io.Reader) (*Source, error) {
	s := &Source{Name: path, size: -1}
	var raw io.Reader
	if path == "-" {
		s.Name = "standard input"
		raw = interruptible(ctx, stdin)
	} else {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			s.size = info.Size()
		}
		s.file, raw = f, f
	}
	if err := s.openReader(raw); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// interruptible makes the end of ctx end a read of r. Nothing can interrupt a read of
// standard input itself: that one goroutine ends with the input or with the process.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err) // nil is io.EOF
	}()
	return out
}

func (s *Source) openReader(r io.Reader) error {
	buffered := bufio.NewReaderSize(&countingReader{r, &s.read}, 64<<10)
	s.reader = buffered
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", s.Name, err)
	}
	if string(magic) != "\x1f\x8b" {
		return nil
	}
	if s.reader, err = gzip.NewReader(buffered); err != nil {
		return fmt.Errorf("%s begins like gzip but is none: %w", s.Name, err)
	}
	return nil
}

// Close closes the file. Standard input stays open.
func (s *Source) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
