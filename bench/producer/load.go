package producer

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// giveUpAfter is how late a request may be in limits of latency: a step that is so far
// behind its plan will not be carried, and goes on no longer.
const giveUpAfter = 4

// load holds rates at one endpoint.
type load struct {
	options *Options
	likes   *likes
	lines   int // of a batch; 0: single likes

	connections int
}

func (l *load) likesPerRequest() int { return max(1, l.lines) }

// plan is one rate over some time: requests 0 to n-1, each due at its time.
type plan struct {
	began     time.Time
	interval  time.Duration
	n         int64
	firstUser uint64
	next      atomic.Int64 // request that no connection has taken
}

func (p *plan) due(i int64) time.Time { return p.began.Add(time.Duration(i) * p.interval) }

// tally is what came of a plan.
type tally struct {
	sync.Mutex
	step  Step
	times []time.Duration
	last  time.Time // end of the last answer
}

// hold sends likes at a rate for a while and returns once all are answered. An error
// says that the measurement itself failed.
func (l *load) hold(ctx context.Context, likesPerSecond float64, d time.Duration) (Step, error) {
	interval := max(1, time.Duration(float64(l.likesPerRequest())/likesPerSecond*float64(time.Second)))
	p := &plan{interval: interval, n: max(1, int64(d/interval))}
	p.firstUser = l.likes.reserve(int(p.n) * l.likesPerRequest())
	sum := &tally{step: Step{PlannedLikesPerSecond: likesPerSecond}}
	g, ctx := errgroup.WithContext(ctx)
	// All connections first: whoever sends many likes has them.
	connections := make([]*connection, min(int64(l.connections), p.n))
	for i := range connections {
		connections[i] = &connection{options: l.options, request: request{likes: l.likes, addr: l.options.Addr, lines: l.lines}}
		defer connections[i].close()
		if err := connections[i].dial(ctx); err != nil {
			return Step{}, err
		}
	}
	p.began = time.Now()
	for _, c := range connections {
		g.Go(func() error { return l.work(ctx, c, p, sum) })
	}
	if err := g.Wait(); err != nil {
		return Step{}, err
	}
	s := sum.step
	s.setTimes(sum.times)
	s.Requests = len(sum.times)
	s.Unsent = int(p.n) - s.Requests
	if took := sum.last.Sub(p.began); took > 0 {
		s.LikesPerSecond = float64(s.Accepted) / took.Seconds()
	}
	return s, nil
}

// work is one connection: it takes the next request that is due, waits for its time,
// sends it and reads the answer.
func (l *load) work(ctx context.Context, c *connection, p *plan, sum *tally) error {
	var own tally
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		i := p.next.Add(1) - 1
		if i >= p.n {
			break
		}
		due := p.due(i)
		if time.Since(due) > giveUpAfter*l.options.LatencyLimit {
			break // what comes after is as late
		}
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		a, err := c.ask(ctx, p.firstUser+uint64(i)*uint64(l.likesPerRequest()))
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		own.note(a, err, due)
	}
	sum.add(&own)
	return nil
}

// note takes in what became of a request.
func (t *tally) note(a answer, err error, due time.Time) {
	t.last = time.Now()
	t.times = append(t.times, t.last.Sub(due))
	t.step.Accepted += a.accepted
	if err != nil {
		a.failure = err.Error()
	}
	if a.failure == "" {
		return
	}
	if a.refused {
		t.step.Refused++
	} else {
		t.step.Failed++
	}
	if t.step.FirstFailure == "" {
		t.step.FirstFailure = a.failure
	}
}

// add takes in the tally of one connection.
func (t *tally) add(own *tally) {
	t.Lock()
	defer t.Unlock()
	t.times = append(t.times, own.times...)
	if own.last.After(t.last) {
		t.last = own.last
	}
	t.step.Accepted += own.step.Accepted
	t.step.Refused += own.step.Refused
	t.step.Failed += own.step.Failed
	if t.step.FirstFailure == "" {
		t.step.FirstFailure = own.step.FirstFailure
	}
}

// connection is kept from one request to the next, and made anew after an error.
type connection struct {
	options *Options
	request request
	out     []byte

	conn net.Conn // nil: none
	in   *bufio.Reader
	stop func() bool // ends the watch over the context
}

// ask sends the request whose first like is of the user, and reads the answer. Ending
// ctx ends it.
func (c *connection) ask(ctx context.Context, user uint64) (answer, error) {
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return answer{}, err
		}
	}
	a, err := c.exchange(user)
	if err != nil || a.closed {
		c.close()
	}
	return a, err
}

func (c *connection) dial(ctx context.Context) error {
	dialer := net.Dialer{Timeout: c.options.RequestTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", c.options.Addr)
	if err != nil {
		return fmt.Errorf("connecting to the producer: %w", err)
	}
	c.conn, c.in = conn, bufio.NewReader(conn)
	c.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return nil
}

func (c *connection) exchange(user uint64) (answer, error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.options.RequestTimeout)); err != nil {
		return answer{}, fmt.Errorf("setting a deadline: %w", err)
	}
	c.out = c.request.append(c.out[:0], user)
	if _, err := c.conn.Write(c.out); err != nil {
		return answer{}, fmt.Errorf("sending a request: %w", err)
	}
	return c.request.read(c.in)
}

func (c *connection) close() {
	if c.conn == nil {
		return
	}
	c.stop()
	_ = c.conn.Close()
	c.conn = nil
}
