package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
)

const (
	firstProbe        = 1 << 50              // the post of the first probe, above all posts of the shapes
	sendEvery         = time.Millisecond     // the interval at which due events are sent
	sendLinger        = 2 * time.Millisecond // the linger of the producer role
	sendBuffer        = 1 << 21              // events buffered before sending blocks; blocked time counts as latency
	seenTimeout       = 2 * time.Minute      // bounds the wait for the last probes
	leastEventsAProbe = 10                   // probes are at most one in this many events
)

// openLoop sends events at a fixed rate, regardless of their completion: a sender that waits for answers sends less
// while the system is slow. An event's latency starts when it was due to be sent, so it includes stalls of the sender.
type openLoop struct {
	*latencyRun
	rate         float64 // events per second
	events       int     // to send
	eventsAProbe int
	client       *kgo.Client
	records      records
	sent         chan probe // the measured probes; closed after the last

	mu    sync.Mutex
	acked []time.Duration // how long Kafka took to acknowledge each probe
}

// hold sends events at a rate for the planned time and watches the probes until all have been seen.
func (m *latencyRun) hold(ctx context.Context, rate float64, where string, ask ask) (level LatencyLevel, err error) {
	plan := m.plan.Latency
	l := &openLoop{latencyRun: m, rate: rate, records: records{partitions: m.load.Shape.Partitions}}
	l.events = int(rate * (plan.Warmup + plan.Measure).Seconds())
	l.eventsAProbe = max(leastEventsAProbe, int(rate)/plan.Probes)
	l.sent = make(chan probe, l.events/l.eventsAProbe+1) // capacity for all probes: sending never blocks
	if l.client, err = m.servers.writer(sendLinger, sendBuffer); err != nil {
		return level, err
	}
	defer l.client.Close()
	limit := plan.Warmup + plan.Measure + seenTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the last probes were not visible in time"))
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		took, err := watch(ctx, where, ask, l.sent)
		level.seen = quantiles(took)
		return err
	})
	g.Go(func() (err error) {
		defer close(l.sent)
		level.EventsPerSecond, err = l.send(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return level, err
	}
	level.Events, level.Kafka = l.events, quantiles(l.acked)
	return level, nil
}

// send sends events as they become due, and returns the rate that it reached.
func (l *openLoop) send(ctx context.Context) (rate float64, err error) {
	ctx, fail := context.WithCancelCause(ctx) // with the first failure as cause
	defer fail(nil)
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	begin := time.Now()
	for sent := 0; ; {
		due := min(l.events, int(time.Since(begin).Seconds()*l.rate)+1)
		for ; sent < due; sent++ {
			planned := time.Duration(float64(sent) / l.rate * float64(time.Second))
			if err := l.sendOne(ctx, sent, begin.Add(planned), planned >= l.plan.Latency.Warmup, fail); err != nil {
				return 0, err
			}
		}
		if sent == l.events {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	rate = float64(l.events) / time.Since(begin).Seconds()
	_ = l.client.Flush(ctx) // fails if ctx ends
	return rate, context.Cause(ctx)
}

// sendOne sends the nth event: the next of the stream, or a probe.
func (l *openLoop) sendOne(ctx context.Context, n int, at time.Time, warm bool, fail func(error)) (err error) {
	var e schema.Event
	measured := false
	if n%l.eventsAProbe == 0 {
		e = schema.Event{PostID: firstProbe + uint64(l.probes), UserID: 1, Action: schema.Like, Region: regions[0]}
		l.probes++
		if measured = warm; measured {
			l.sent <- probe{e.PostID, at}
		}
	} else if e, err = l.stream.Next(); err != nil {
		return err
	}
	e.TimeMs = at.UnixMilli()
	l.client.Produce(ctx, l.records.of(&e), func(_ *kgo.Record, err error) {
		if err != nil {
			fail(fmt.Errorf("sending to %s: %w", schema.TopicLikes, err))
		} else if measured {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acked = append(l.acked, time.Since(at))
		}
	})
	return nil
}

const (
	lookForProbes = 2 * time.Millisecond // the interval between a watcher's queries
	askedProbes   = 100                  // how many probes one query asks for, oldest first
	askTimeout    = 30 * time.Second     // bounds one query; after it the query is repeated, and its time counts
)

// probe is a post that gets one like, and when that like was due to be sent.
type probe struct {
	post uint64
	sent time.Time
}

// ask returns which of the posts have their like.
type ask func(ctx context.Context, posts []uint64) (seen map[uint64]bool, err error)

// watch queries until it has seen every probe from the channel, and returns how long each took.
func watch(ctx context.Context, where string, ask ask, probes <-chan probe) (took []time.Duration, err error) {
	tick := time.NewTicker(lookForProbes)
	defer tick.Stop()
	var waiting []probe
	for more := true; ; {
		waiting, more = receive(waiting, probes)
		if len(waiting) == 0 && !more {
			return took, nil
		}
		var posts []uint64
		for _, p := range waiting[:min(len(waiting), askedProbes)] {
			posts = append(posts, p.post)
		}
		if len(posts) > 0 {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			seen, err := ask(asking, posts)
			cancel()
			if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				return nil, fmt.Errorf("querying probes in %s: %w", where, err)
			}
			now := time.Now()
			waiting = slices.DeleteFunc(waiting, func(p probe) bool {
				if seen[p.post] {
					took = append(took, now.Sub(p.sent))
				}
				return seen[p.post]
			})
			if len(seen) == len(posts) {
				continue // more probes may be waiting than one query asks for
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("querying probes in %s, %d of them not visible yet: %w",
				where, len(posts), context.Cause(ctx))
		}
	}
}

// receive adds all probes that are in the channel, without blocking. more is false once the channel is closed.
func receive(waiting []probe, probes <-chan probe) (_ []probe, more bool) {
	for {
		select {
		case p, ok := <-probes:
			if !ok {
				return waiting, false
			}
			waiting = append(waiting, p)
		default:
			return waiting, true
		}
	}
}

func askMySQL(db *sqlx.DB) ask {
	return func(ctx context.Context, posts []uint64) (map[uint64]bool, error) {
		var liked []uint64
		query := "SELECT post_id FROM like_count WHERE `count` = 1 AND post_id IN (" + joined(posts) + ")"
		if err := db.SelectContext(ctx, &liked, query); err != nil {
			return nil, err
		}
		seen := map[uint64]bool{}
		for _, post := range liked {
			seen[post] = true
		}
		return seen, nil
	}
}

func joined(posts []uint64) string {
	text := make([]string, len(posts))
	for i, p := range posts {
		text[i] = strconv.FormatUint(p, 10)
	}
	return strings.Join(text, ",")
}
