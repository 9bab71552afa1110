package producer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// lineResult is the answer for one line of a batch: its place in Kafka, or what is
// wrong with it.
type lineResult struct {
	Line        int `json:"line"` // from 1
	*position       // an accepted line's
	*fieldError     // any other's
}

// batch is a request of many events, as far as it is read.
type batch struct {
	lines  []lineResult
	events []schema.Event
	// lineOf is the index in lines of each event.
	lineOf []int
	// wait is the longest that a user in it has to wait whose likes came too fast.
	wait time.Duration
}

// errTooManyLines ends the reading of a batch.
var errTooManyLines = errors.New("too many lines")

// readBatch reads NDJSON: one event a line, in the JSON form of the likes topic.
// Empty lines count and are passed over. A bad line is noted and harms no other.
func readBatch(body io.Reader, maxLines int, fb *fallback) (*batch, error) {
	b := &batch{}
	in := bufio.NewReaderSize(body, schema.MaxEventBytes+len("\r\n"))
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		tooLong := false
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of the line is dropped
			tooLong = true
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if line = bytes.TrimSpace(line); tooLong || len(line) > 0 {
			if len(b.lines) == maxLines {
				return nil, errTooManyLines
			}
			if tooLong {
				line = nil
			}
			b.add(number, line, fb)
		}
		if err != nil {
			return b, nil
		}
	}
}

// add takes a line in; nil stands for one that is too long.
func (b *batch) add(number int, line []byte, fb *fallback) {
	var e schema.Event
	wrong := parseLine(line, &e)
	b.lines = append(b.lines, lineResult{Line: number, fieldError: wrong})
	if wrong != nil {
		return
	}
	fb.complete(&e)
	b.lineOf = append(b.lineOf, len(b.lines)-1)
	b.events = append(b.events, e)
}

func parseLine(line []byte, e *schema.Event) *fieldError {
	if line == nil {
		return &fieldError{Field: "line", Reason: string(schema.OverSize), Detail: fmt.Sprintf("has more than %d bytes", schema.MaxEventBytes)}
	}
	if schema.DecodePlainEvent(line, e) { // nearly always
		return nil
	}
	// DecodeEvent takes Protobuf too, which has no place in a line: this lets only a
	// JSON object through.
	if _, wrong := problem.ParseFields(line, "line", "post_id", "postId", "user_id", "userId", "action", "time_ms", "timeMs", "region"); wrong != nil {
		return wrong
	}
	if err := schema.DecodeEvent(nil, line, e); err != nil {
		wrong := problem.FieldErrorOf(err, "line")
		return &wrong
	}
	return nil
}
