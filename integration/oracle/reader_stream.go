package oracle

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// followEvery is the retry interval for a stream while the reader is unavailable.
const followEvery = 50 * time.Millisecond

// Follow follows a stream (Server-Sent Events) of posts until done returns true for the newest counts. When it breaks
// off, it resumes after the last event at the next address. Readers may restart; any other failure is an error, and so
// is the end of ctx, both with what it has recorded.
func Follow(
	ctx context.Context, bases []string, posts []uint64, done func(newest map[uint64]Count) bool,
) (*Watched, error) {
	path := "/v1/stream?post_ids=" + strings.Join(idsOf(posts), ",")
	f := &follower{done: done, newest: map[uint64]Count{}, path: path}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		ended, err := f.stream(ctx, bases[i%len(bases)])
		if ended {
			return &f.Watched, nil
		}
		if err != nil && !away(err) {
			return &f.Watched, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return &f.Watched, fmt.Errorf("following %s: %w; newest: %v", f.path, ctx.Err(), f.newest)
		}
	}
}

type follower struct {
	Watched
	path, lastID string
	newest       map[uint64]Count
	done         func(map[uint64]Count) bool
}

func (f *follower) stream(ctx context.Context, base string) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+f.path, nil)
	if err != nil {
		return false, fmt.Errorf("GET %s: %w", f.path, err)
	}
	if f.lastID != "" {
		req.Header.Set("Last-Event-ID", f.lastID)
	}
	transport := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: askTimeout}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		f.Unavailable++
		return false, fmt.Errorf("GET %s: %w", f.path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		f.Unavailable++
		var problem struct{ Type, Detail string }
		_ = json.NewDecoder(io.LimitReader(resp.Body, askBytes)).Decode(&problem)
		return false, fmt.Errorf("GET %s: %w", f.path, &refusal{resp.StatusCode, problem.Type, problem.Detail})
	}
	f.Streams++
	return f.events(resp.Body)
}

// events handles events one by one; https://html.spec.whatwg.org/multipage/server-sent-events.html.
func (f *follower) events(body io.Reader) (ended bool, err error) {
	var id, event, data string
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			data += value
		case "":
			if lines.Text() != "" || data == "" { // a comment, or an empty event
				continue
			}
			if err := f.take(id, event, data); err != nil {
				return false, err
			}
			event, data = "", ""
			if f.done(f.newest) {
				return true, nil
			}
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("GET %s: %w: %w", f.path, errCut, err)
	}
	return false, nil
}

func (f *follower) take(id, event, data string) error {
	var body countsAsOf
	if err := strictly([]byte(data), &body); err != nil || event != "likes" || id == "" {
		return fmt.Errorf("GET %s: event %q, id %q, data %.200q is not a likes event: %w", f.path, event, id, data, err)
	}
	if len(f.answers) == watchMost {
		return fmt.Errorf("GET %s: too many events to record", f.path)
	}
	f.lastID = id
	f.newest[body.Post] = *body.count()
	f.answers = append(f.answers, &answer{path: f.path, post: body.Post, asOf: body.AsOf, counts: body.count(),
		streamed: true})
	return nil
}
