package importer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"kudos/schema"
)

// Source is the file to import, or standard input.
type Source struct {
	Name   string // for messages
	size   int64  // in bytes as stored, or -1 if unknown
	read   atomic.Int64
	reader io.Reader
	file   *os.File // nil: standard input
}

// Open opens a file; "-" is stdin. Gzip is detected by its first two bytes. When ctx ends, reading stdin fails.
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
	buffered := bufio.NewReaderSize(&countingReader{raw, &s.read}, bufferBytes)
	s.reader = buffered
	magic, err := buffered.Peek(2)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		err = fmt.Errorf("reading %s: %w", s.Name, err)
	case string(magic) != "\x1f\x8b":
		return s, nil
	default:
		if s.reader, err = gzip.NewReader(buffered); err == nil {
			return s, nil
		}
		err = fmt.Errorf("%s starts like gzip but is not gzip: %w", s.Name, err)
	}
	return nil, errors.Join(err, s.Close())
}

// interruptible returns a reader of r that fails when ctx ends; a blocked read of r stays, until the process exits.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err) // nil becomes io.EOF
	}()
	return out
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

const (
	maxLineBytes = schema.MaxEventBytes // a longer line cannot be an event
	bufferBytes  = 64 << 10
)

// lines splits a source into lines. One line is one record, in CSV too, so an unclosed quote spoils only its own line.
type lines struct {
	r      *bufio.Reader
	number int64 // of the last line read, from 1
}

// line is a line without its line ending. It is valid until the next one is read.
type line struct {
	text []byte
	cut  bool // text has only the beginning of a line that is too long
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, bufferBytes)} }

var byteOrderMark = []byte("\xef\xbb\xbf")

// next returns the next line, or io.EOF after the last, which may lack its line ending.
func (l *lines) next() (line, error) {
	text, err := l.r.ReadSlice('\n')
	cut := errors.Is(err, bufio.ErrBufferFull)
	if cut { // skip the rest of the line
		text = bytes.Clone(text[:maxLineBytes])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.r.ReadSlice('\n')
		}
	}
	if err != nil && (len(text) == 0 || !errors.Is(err, io.EOF)) {
		return line{}, err
	}
	l.number++
	if cut {
		return line{text, true}, nil
	}
	if l.number == 1 {
		text = bytes.TrimPrefix(text, byteOrderMark)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(bytes.TrimSpace(text)) == 0 {
		text = nil
	}
	return line{text[:min(len(text), maxLineBytes)], len(text) > maxLineBytes}, nil
}

// peek returns the first byte that is not white space, or 0, and waits for no more: the source may be a terminal.
func (l *lines) peek() (byte, error) {
	for n := 1; n <= maxLineBytes; n++ {
		head, err := l.r.Peek(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if c := head[n-1]; c > ' ' && bytes.IndexByte(byteOrderMark, c) < 0 {
			return c, nil
		}
	}
	return 0, nil
}

func (l line) decode(decode decoder, e *schema.Event) error {
	if l.cut {
		return fmt.Errorf("is longer than %d bytes; only its start is kept", maxLineBytes)
	}
	return decode(l.text, e)
}
