package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"kudos/schema"
)

const (
	// maxLineBytes bounds a line: a longer one cannot be an event.
	maxLineBytes = schema.MaxEventBytes
	bufferBytes  = 64 << 10
)

// lines splits a source. One line is one record, in CSV too: a quote that is never
// closed then spoils its line and not the rest of the file.
type lines struct {
	r *bufio.Reader
	// number of the last line, from 1.
	number int64
}

// line is one line without its end. It is valid until the next one is read.
type line struct {
	text []byte
	// cut says that text is only the beginning of a line that is too long.
	cut bool
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, bufferBytes)} }

var byteOrderMark = []byte("\xef\xbb\xbf")

// next returns the next line, or io.EOF behind the last.
func (l *lines) next() (line, error) {
	text, err := l.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return l.tooLong(text)
	case errors.Is(err, io.EOF) && len(text) > 0: // a last line without its end
	case err != nil:
		return line{}, err
	}
	l.number++
	if l.number == 1 {
		text = bytes.TrimPrefix(text, byteOrderMark)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(bytes.TrimSpace(text)) == 0 {
		text = nil
	}
	if len(text) > maxLineBytes {
		return line{text: text[:maxLineBytes], cut: true}, nil
	}
	return line{text: text}, nil
}

// tooLong returns the beginning of a line that is larger than the buffer, and skips
// what is left of it.
func (l *lines) tooLong(text []byte) (line, error) {
	head := bytes.Clone(text[:maxLineBytes])
	for {
		_, err := l.r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return line{}, err
		}
		l.number++
		return line{text: head, cut: true}, nil
	}
}

// peek returns the first byte that is no white space, or 0 where there is none. It
// waits for no more bytes than that: the source may be a terminal.
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

// decode reads the line into an event.
func (l line) decode(decode decoder, e *schema.Event) error {
	if l.cut {
		return fmt.Errorf("is longer than %d bytes; only its beginning stands here", maxLineBytes)
	}
	return decode(l.text, e)
}
