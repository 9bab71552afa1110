package kudos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Client sends likes to a producer and reads from a reader. It repeats requests that were not answered, and those
// answered with 429 or 503 after Retry-After, until the context ends: give contexts a deadline.
type Client struct {
	ProducerURL, ReaderURL string       // base URLs; a Client that only sends, or only reads, needs one
	HTTP                   *http.Client // nil: http.DefaultClient
	Header                 http.Header  // sent with each request, such as Authorization
}

// Problem is an error response (RFC 9457).
type Problem struct {
	Type   string `json:"type"` // urn:kudos:problem:…; empty if it is not from kudos
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }

// Counts are the current likes and dislikes of a post.
type Counts struct {
	PostID   uint64   `json:"post_id,string"`
	Likes    int64    `json:"likes"`
	Dislikes int64    `json:"dislikes"`
	AsOf     Position `json:"as_of"` // they include the events before it; not set by Client.Counts
}

// Reaction is the state of a user on a post.
type Reaction struct {
	PostID   uint64 `json:"post_id,string"`
	Reaction Action `json:"reaction"` // Like, Dislike or None
	Since    string `json:"since"`    // RFC 3339; empty with None, like Region
	Region   string `json:"region"`
}

// Like sets the user's reaction to a like, now.
func (c *Client) Like(ctx context.Context, post, user uint64) (Position, error) {
	return c.React(ctx, Event{PostID: post, UserID: user, Action: Like})
}

// Dislike sets the user's reaction to a dislike, now.
func (c *Client) Dislike(ctx context.Context, post, user uint64) (Position, error) {
	return c.React(ctx, Event{PostID: post, UserID: user, Action: Dislike})
}

// Unlike withdraws the user's reaction, now.
func (c *Client) Unlike(ctx context.Context, post, user uint64) (Position, error) {
	return c.React(ctx, Event{PostID: post, UserID: user, Action: Unlike})
}

// React sends an event. Kafka has it once React returns its position. After an error other than a *Problem, Kafka may
// have it: repeat the call with the same Time, or leave it.
func (c *Client) React(ctx context.Context, e Event) (at Position, err error) {
	if err := e.check(); err != nil {
		return at, err
	}
	method, kind := http.MethodPut, "likes"
	switch e.Action {
	case Unlike:
		method = http.MethodDelete
	case Dislike:
		kind = "dislikes"
	}
	query := url.Values{"time_ms": {strconv.FormatInt(e.Time.UnixMilli(), 10)}}
	if e.Region != "" {
		query.Set("region", e.Region)
	}
	err = c.do(ctx, method, fmt.Sprintf("%s/v1/posts/%d/%s/%d?%s", c.ProducerURL, e.PostID, kind, e.UserID,
		query.Encode()), nil, &at)
	return at, err
}

// Count returns the counts of a post, including the events at the given positions.
func (c *Client) Count(ctx context.Context, post uint64, after ...Position) (counts Counts, err error) {
	target := fmt.Sprintf("%s/v1/posts/%d/likes", c.ReaderURL, post)
	switch after = known(after); len(after) {
	case 0:
	case 1:
		target += "?min_offset=" + after[0].String()
	default:
		all, err := c.Counts(ctx, []uint64{post}, after...)
		return append(all, counts)[0], err
	}
	err = c.do(ctx, http.MethodGet, target, nil, &counts)
	return counts, err
}

// Counts returns the counts of up to 1,000 posts, in their order, including the events at the given positions.
func (c *Client) Counts(ctx context.Context, posts []uint64, after ...Position) ([]Counts, error) {
	var answer struct{ Posts []Counts }
	err := c.do(ctx, http.MethodPost, c.ReaderURL+"/v1/likes:get",
		map[string]any{"post_ids": texts(posts), "min_offset": known(after)}, &answer)
	return answer.Posts, err
}

// Reaction returns the reaction of a user to a post, including the events at the given positions.
func (c *Client) Reaction(ctx context.Context, post, user uint64, after ...Position) (Reaction, error) {
	var answer struct{ Reactions []Reaction }
	err := c.do(ctx, http.MethodPost, c.ReaderURL+"/v1/reactions:get", map[string]any{"post_ids": texts([]uint64{post}),
		"user_id": strconv.FormatUint(user, 10), "min_offset": known(after)}, &answer)
	return append(answer.Reactions, Reaction{})[0], err
}

func known(positions []Position) []Position {
	return slices.DeleteFunc(append([]Position{}, positions...), func(p Position) bool { return p.Offset < 0 })
}

func texts(ids []uint64) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = strconv.FormatUint(id, 10)
	}
	return list
}

const (
	attemptTimeout = 30 * time.Second // of a request, so that a silent server is asked again
	minBackoff     = 100 * time.Millisecond
	maxBackoff     = 5 * time.Second
	maxBodyBytes   = 8 << 20
)

// failure is a failed attempt. Unless it is final, there may be another one after some time.
type failure struct {
	error
	final bool
	after time.Duration
}

func (f failure) Unwrap() error { return f.error }

// do sends a request until it gets a response that is not to be retried, and decodes that into answer.
func (c *Client) do(ctx context.Context, method, target string, question, answer any) (err error) {
	var body []byte
	if question != nil {
		if body, err = json.Marshal(question); err != nil {
			return err
		}
	}
	for failures := 0; ; failures++ {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		resp, err := c.send(attempt, method, target, body, nil)
		if err == nil {
			err = json.NewDecoder(resp.Body).Decode(answer)
			resp.Body.Close()
		}
		cancel()
		if err == nil {
			return nil
		}
		if err := pause(ctx, err, failures, 0); err != nil {
			return fmt.Errorf("%s %s: %w", method, target, err)
		}
	}
}

// send sends a request once. It returns only responses that succeeded; close their bodies.
func (c *Client) send(ctx context.Context, method, target string, body []byte, header http.Header) (*http.Response,
	error,
) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, failure{err, true, 0}
	}
	maps.Copy(req.Header, c.Header)
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := cmp.Or(c.HTTP, http.DefaultClient).Do(req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes))
	p := &Problem{}
	if json.Unmarshal(text, p) != nil || p.Status == 0 {
		p = &Problem{Title: resp.Status, Status: resp.StatusCode, Detail: fmt.Sprintf("%.200q", text)}
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, failure{p, false, time.Duration(seconds) * time.Second}
	case http.StatusBadGateway, http.StatusGatewayTimeout: // from a proxy: kudos did not answer it
		return nil, failure{p, false, 0}
	}
	return nil, failure{p, true, 0}
}

// pause waits before another attempt, at least as long as given. It returns an error if there is to be none.
func pause(ctx context.Context, err error, failures int, atLeast time.Duration) error {
	f, ok := errors.AsType[failure](err)
	if ok {
		err = f.error
	}
	if f.final {
		return err
	}
	wait := min(minBackoff<<min(failures, 10), maxBackoff)
	wait = max(wait/2+rand.N(wait/2), atLeast, f.after)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return fmt.Errorf("no time for a retry: %w", err)
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
}
