package kudos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	streamRetry = time.Second      // between connections, unless the server gives a time
	maxRetry    = 30 * time.Second // the longest such time
	streamIdle  = time.Minute      // after which a connection without any data counts as lost
	maxLine     = 1 << 20          // bytes
)

// Stream yields the counts of up to 100 posts, and then each that changes. It resumes lost connections: no counts are
// older than those before. It ends with an error when ctx ends or a request is rejected.
func (c *Client) Stream(ctx context.Context, posts ...uint64) iter.Seq2[Counts, error] {
	target := c.ReaderURL + "/v1/stream?post_ids=" + strings.Join(texts(posts), ",")
	return func(yield func(Counts, error) bool) {
		header, retry, failures, stopped := http.Header{"Accept": {"text/event-stream"}}, streamRetry, 0, false
		for ; ; failures++ {
			err := c.connect(ctx, target, header, func(e sseEvent) (err error) {
				if e.id != "" {
					header.Set("Last-Event-ID", e.id)
				}
				if e.retry > 0 {
					retry = min(e.retry, maxRetry)
				}
				var counts Counts
				if e.name == "likes" && e.data != "" {
					failures = 0
					err = json.Unmarshal([]byte(e.data), &counts)
					stopped = err == nil && !yield(counts, nil)
				}
				if err != nil || stopped {
					return failure{err, true, 0}
				}
				return nil
			})
			if stopped {
				return
			}
			if err := pause(ctx, err, failures, retry); err != nil {
				yield(Counts{}, fmt.Errorf("GET %s: %w", target, err))
				return
			}
		}
	}
}

// connect passes the events of one connection on, until each returns an error. It always returns an error.
func (c *Client) connect(ctx context.Context, target string, header http.Header, each func(sseEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(streamIdle, cancel)
	defer idle.Stop()
	resp, err := c.send(ctx, http.MethodGet, target, nil, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body) // which end in LF or CR LF
	lines.Buffer(nil, maxLine)
	var e sseEvent
	for lines.Scan() {
		idle.Reset(streamIdle)
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data += value + "\n"
		case "retry":
			ms, _ := strconv.ParseInt(value, 10, 32)
			e.retry = time.Duration(ms) * time.Millisecond
		}
		if lines.Text() == "" {
			if err := each(e); err != nil {
				return err
			}
			e = sseEvent{}
		}
	}
	return errors.New("the stream ended") // without an event that was cut off
}

// sseEvent is one of Server-Sent Events.
type sseEvent struct {
	id, name, data string
	retry          time.Duration
}
