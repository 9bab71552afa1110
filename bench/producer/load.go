package producer

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// giveUpAfter, in latency limits, is how late a request may be before its step ends: the rate is not sustainable.
const giveUpAfter = 4

type load struct {
	options     *Options
	likes       *likes
	lines       int // per batch; 0: single likes
	connections int
}

func (l *load) likesPerRequest() int { return max(1, l.lines) }

// plan is one rate over some time: requests 0 to n-1, each with its due time.
type plan struct {
	began     time.Time
	interval  time.Duration
	n         int64
	firstUser uint64
	next      atomic.Int64 // the next request that no connection has taken
}

// tally counts the results of the requests of one connection.
type tally struct {
	Step
	times []time.Duration
	took  time.Duration // from the beginning to the end of the last response
}

// hold sends likes at a rate for a while and waits for all responses. It returns an error only if measuring fails.
func (l *load) hold(ctx context.Context, likesPerSecond float64, d time.Duration) (Step, error) {
	interval := max(1, time.Duration(float64(l.likesPerRequest())/likesPerSecond*float64(time.Second)))
	p := &plan{interval: interval, n: max(1, int64(d/interval))}
	p.firstUser = l.likes.next
	l.likes.next += uint64(p.n) * uint64(l.likesPerRequest()) // reserve these users; loads run one after another
	g, ctx := errgroup.WithContext(ctx)
	// Connect before measuring: real clients keep connections open.
	connections := make([]*connection, min(int64(l.connections), p.n))
	for i := range connections {
		connections[i] = &connection{load: l}
		defer connections[i].close()
		if err := connections[i].dial(ctx); err != nil {
			return Step{}, err
		}
	}
	tallies := make([]tally, len(connections))
	p.began = time.Now()
	for i, c := range connections {
		g.Go(func() error { return c.work(ctx, p, &tallies[i]) })
	}
	if err := g.Wait(); err != nil {
		return Step{}, err
	}
	s := Step{PlannedLikesPerSecond: likesPerSecond}
	var times []time.Duration
	var took time.Duration
	for _, t := range tallies {
		times, took = append(times, t.times...), max(took, t.took)
		s.Accepted, s.Refused, s.Failed = s.Accepted+t.Accepted, s.Refused+t.Refused, s.Failed+t.Failed
		s.FirstFailure = cmp.Or(s.FirstFailure, t.FirstFailure)
	}
	s.P50Ms, s.P99Ms, s.P999Ms, s.MaxMs = Percentiles(times)
	s.Requests = len(times)
	s.Unsent = int(p.n) - s.Requests
	if took > 0 {
		s.LikesPerSecond = float64(s.Accepted) / took.Seconds()
	}
	return s, nil
}

func (t *tally) note(a answer, err error, due, took time.Duration) {
	t.took = took
	t.times = append(t.times, took-due)
	t.Accepted += a.accepted
	if err != nil {
		a.failure = err.Error()
	}
	if a.refused {
		t.Refused++
	} else if a.failure != "" {
		t.Failed++
	}
	t.FirstFailure = cmp.Or(t.FirstFailure, a.failure)
}

// connection is one HTTP connection, reused for all requests and reopened after an error.
type connection struct {
	*load
	out, body []byte

	conn net.Conn // nil: not connected
	in   *bufio.Reader
	stop func() bool // stops watching the context
}

// work takes the next request, waits until it is due, sends it and reads the response.
func (c *connection) work(ctx context.Context, p *plan, t *tally) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		i := p.next.Add(1) - 1
		due := time.Duration(i) * p.interval
		late := time.Since(p.began) - due
		if i >= p.n || late > giveUpAfter*c.options.LatencyLimit { // later requests are as late
			return nil
		}
		timer.Reset(-late)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		a, err := c.ask(ctx, p.firstUser+uint64(i)*uint64(c.likesPerRequest()))
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		t.note(a, err, due, time.Since(p.began))
	}
}

// ask sends the request whose first like is by user, and reads the response. Ending ctx aborts it.
func (c *connection) ask(ctx context.Context, user uint64) (a answer, err error) {
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return a, err
		}
	}
	defer func() {
		if err != nil || a.closed {
			c.close()
		}
	}()
	if err := c.conn.SetDeadline(time.Now().Add(c.options.RequestTimeout)); err != nil {
		return a, fmt.Errorf("setting a deadline: %w", err)
	}
	c.writeRequest(user)
	if _, err := c.conn.Write(c.out); err != nil {
		return a, fmt.Errorf("sending a request: %w", err)
	}
	return c.readAnswer()
}

func (c *connection) dial(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: c.options.RequestTimeout}).DialContext(ctx, "tcp", c.options.Addr)
	if err != nil {
		return fmt.Errorf("connecting to the producer: %w", err)
	}
	c.conn, c.in = conn, bufio.NewReader(conn)
	c.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return nil
}

func (c *connection) close() {
	if c.conn == nil {
		return
	}
	c.stop()
	_ = c.conn.Close()
	c.conn = nil
}

// likes generates distinct likes: each user likes one post.
type likes struct {
	posts uint64
	next  uint64 // the next user
}

// post returns the post that a user likes. Consecutive users like distant posts.
func (l *likes) post(user uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // 2^64 / φ, odd
	return 1 + user*golden>>32%l.posts
}

// writeRequest encodes into out the request whose first like is by user.
func (c *connection) writeRequest(user uint64) {
	if c.lines == 0 {
		c.out = fmt.Appendf(c.out[:0], "PUT /v1/posts/%d/likes/%d HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n",
			c.likes.post(user), user, c.options.Addr)
		return
	}
	c.body = c.body[:0]
	for i := range uint64(c.lines) {
		c.body = append(c.body, `{"post_id":`...)
		c.body = strconv.AppendUint(c.body, c.likes.post(user+i), 10)
		c.body = append(c.body, `,"user_id":"`...)
		c.body = strconv.AppendUint(c.body, user+i, 10)
		c.body = append(c.body, `","action":"LIKE"}`+"\n"...)
	}
	// A bulk writer needs the failed lines only.
	c.out = fmt.Appendf(c.out[:0], "POST /v1/likes:batch?lines=errors HTTP/1.1\r\nHost: %s\r\n"+
		"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", c.options.Addr, len(c.body), c.body)
}

const maxAnswerBytes = 4 << 20 // bounds the response body; the errors of a whole batch fit

type answer struct {
	accepted int64 // number of likes
	refused  bool  // 429
	failure  string
	closed   bool // the connection takes no further request
}

func (c *connection) readAnswer() (answer, error) {
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return answer{}, fmt.Errorf("reading a response: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return answer{}, fmt.Errorf("reading a response: %w", err)
	}
	accepted := response.StatusCode == http.StatusAccepted
	if accepted && c.lines == 0 { // the status says it all
		return answer{accepted: 1, closed: response.Close}, nil
	}
	// The fields of a batch response and of a problem document.
	var told struct {
		Accepted         int64
		Rejected, Failed int
		Detail           string
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return answer{}, fmt.Errorf("a response with status %d is not from a producer: %w", response.StatusCode, err)
	}
	a := answer{accepted: told.Accepted, closed: response.Close,
		refused: response.StatusCode == http.StatusTooManyRequests}
	switch {
	case !accepted:
		a.failure = fmt.Sprintf("%s: %.200s", response.Status, told.Detail)
	case told.Accepted != int64(c.lines):
		a.failure = fmt.Sprintf("%d of %d lines were accepted, %d rejected, %d failed",
			told.Accepted, c.lines, told.Rejected, told.Failed)
	}
	return a, nil
}
