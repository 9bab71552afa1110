package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
)

const (
	firstProbe        = 1 << 50              // probe posts are above all posts of the shapes
	sendEvery         = time.Millisecond     // the interval at which due events are sent
	sendLinger        = 2 * time.Millisecond // the linger of the producer role
	sendBuffer        = 1 << 21              // events buffered before sending blocks; blocked time counts as latency
	giveUpAfter       = 5 * time.Second      // a contender with an older probe to count is behind: the pass ends
	seenTimeout       = 2 * time.Minute      // bounds the wait for the last probes
	streamPosts       = 100                  // in a live stream, at most
	leastEventsAProbe = 10                   // probes are at most one in this many events
)

// probePosts returns a post for each partition, up to what a live stream may have. Probes are likes of these posts, in
// turn, each by another user. Events of a partition stay in order, so a probe is visible when its post has at least as
// many likes as were sent until it.
func probePosts(partitions int32) []uint64 {
	posts := make([]uint64, partitions)
	for post, missing := uint64(firstProbe), partitions; missing > 0; post++ {
		if p := schema.PartitionFor(post, partitions); posts[p] == 0 {
			posts[p] = post
			missing--
		}
	}
	return posts[:min(partitions, streamPosts)]
}

// openLoop sends events at a fixed rate, regardless of their completion: a sender that waits for answers sends less
// while the system is slow. An event's latency starts when it was due to be sent, so it includes stalls of the sender.
type openLoop struct {
	*latencyRun
	rate         float64 // events per second
	events       int     // to send
	eventsAProbe int
	client       *kgo.Client
	records      records
	begin        time.Time
	before       map[uint64]int64 // likes of each probe post in earlier passes

	mu    sync.Mutex
	due   [][]time.Duration // of the probes of each post, since begin
	acked []delay           // when Kafka acknowledged a probe
}

// delay is how long after it was due something happened to a probe.
type delay struct{ due, took time.Duration }

// place is where probes become visible: watch calls see with counts, again and again until ctx ends.
type place struct {
	name  string
	watch func(ctx context.Context, posts []uint64, see func([]likesOf)) error
	next  []int // by post: the first probe that is not visible yet
	seen  []delay
	Quantiles
}

// hold sends events at the level's rate for the warm-up and d, until all probes are visible in all places, or one of
// them is behind; then it waits until the contender has counted everything.
func (m *latencyRun) hold(ctx context.Context, level *LatencyLevel, d time.Duration, places ...*place) (err error) {
	l := &openLoop{latencyRun: m, rate: level.planned, records: records{partitions: m.load.Shape.Partitions}}
	l.events = int(l.rate * (m.plan.Warmup + d).Seconds())
	l.eventsAProbe = max(leastEventsAProbe, int(l.rate)/m.plan.Probes)
	l.before, l.due = maps.Clone(m.probes), make([][]time.Duration, len(m.posts))
	l.stream.Grow(l.events) // growing while sending would delay events
	if l.client, err = m.servers.writer(sendLinger, sendBuffer); err != nil {
		return err
	}
	defer l.client.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, m.plan.Warmup+d+seenTimeout,
		errors.New("the last probes were not visible and counted in time"))
	defer cancel()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	g, watched := errgroup.WithContext(watching)
	l.begin = time.Now()
	for _, p := range places {
		p.next, p.seen = make([]int, len(m.posts)), nil
		g.Go(func() error {
			err := p.watch(watched, m.posts, func(counts []likesOf) { l.see(p, counts) })
			if watching.Err() != nil {
				return nil
			}
			return fmt.Errorf("watching probes in %s: %w", p.name, err)
		})
	}
	behind, err := l.sendAll(watched, level, places)
	for err == nil && l.oldest(places) >= 0 {
		select {
		case <-time.After(lookForProbes):
		case <-watched.Done():
			err = context.Cause(watched)
		}
	}
	stop()
	if err := cmp.Or(g.Wait(), err); err != nil {
		return err
	}
	for _, p := range places {
		p.Quantiles = between(p.seen, m.plan.Warmup, m.plan.Warmup+d)
		p.Behind = behind
	}
	level.Kafka = between(l.acked, m.plan.Warmup, m.plan.Warmup+d)
	level.RiseMs = rise(places[0].seen, m.plan.Warmup, d)
	m.sent += int64(level.Events)
	_, err = m.process.Counted(ctx, m.sent)
	return err
}

// between summarizes the delays of probes that were due in a part of the pass.
func between(delays []delay, from, to time.Duration) Quantiles {
	var took []time.Duration
	for _, d := range delays {
		if d.due >= from && d.due < to {
			took = append(took, d.took)
		}
	}
	return quantiles(took)
}

// rise estimates how much latency grows in a pass of length d, in ms, from the medians of its first and last thirds: an
// overload makes it grow all the time, a stall does not.
func rise(delays []delay, from, d time.Duration) float64 {
	return (between(delays, from+d-d/3, from+d).P50 - between(delays, from, from+d/3).P50) * 3 / 2
}

// see notes which probes are visible in a place with these counts.
func (l *openLoop) see(p *place, counts []likesOf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.begin)
	for _, c := range counts {
		i := slices.Index(l.posts, c.PostID)
		for ; p.next[i] < len(l.due[i]) && l.before[c.PostID]+int64(p.next[i]) < c.Likes; p.next[i]++ {
			due := l.due[i][p.next[i]]
			p.seen = append(p.seen, delay{due, now - due})
		}
	}
}

// oldest is the age of the oldest probe that is not visible in all places; negative if there is none.
func (l *openLoop) oldest(places []*place) (age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	age = -1
	for _, p := range places {
		for i, due := range l.due {
			if p.next[i] < len(due) {
				age = max(age, time.Since(l.begin)-due[p.next[i]])
			}
		}
	}
	return age
}

// sendAll sends events as they become due, until all are sent or a place is behind, and measures the processes.
func (l *openLoop) sendAll(ctx context.Context, level *LatencyLevel, places []*place) (behind bool, err error) {
	processes := map[string]int{SenderProcess: os.Getpid()}
	maps.Copy(processes, l.servers.Processes)
	meter, err := startMeter(l.process.PID(), processes)
	if err != nil {
		return false, err
	}
	ctx, fail := context.WithCancelCause(ctx) // with the first failure as cause
	defer fail(nil)
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	sent := 0
	for sent < l.events && !behind {
		due := min(l.events, int(time.Since(l.begin).Seconds()*l.rate)+1)
		for ; sent < due; sent++ {
			planned := time.Duration(float64(sent) / l.rate * float64(time.Second))
			if err := l.sendOne(ctx, sent, planned, fail); err != nil {
				return false, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		behind = l.oldest(places) > giveUpAfter
	}
	level.Events, level.Seconds = sent, time.Since(l.begin).Seconds()
	level.EventsPerSecond = float64(sent) / level.Seconds
	if level.Used, err = meter.read(); err != nil {
		return false, err
	}
	_ = l.client.Flush(ctx) // fails if ctx ends
	return behind, context.Cause(ctx)
}

// sendOne sends the nth event: the next of the stream, or a probe.
func (l *openLoop) sendOne(ctx context.Context, n int, due time.Duration, fail func(error)) (err error) {
	var e schema.Event
	probe := n%l.eventsAProbe == 0
	if probe {
		i := n / l.eventsAProbe % len(l.posts)
		post := l.posts[i]
		l.probes[post]++
		e = schema.Event{PostID: post, UserID: uint64(l.probes[post]), Action: schema.Like, Region: regions[0]}
		l.mu.Lock()
		l.due[i] = append(l.due[i], due)
		l.mu.Unlock()
	} else if e, err = l.stream.Next(); err != nil {
		return err
	}
	e.TimeMs = l.begin.Add(due).UnixMilli()
	l.client.Produce(ctx, l.records.of(&e), func(_ *kgo.Record, err error) {
		if err != nil {
			fail(fmt.Errorf("sending to %s: %w", schema.TopicLikes, err))
		} else if probe {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acked = append(l.acked, delay{due, time.Since(l.begin) - due})
		}
	})
	return nil
}

const (
	lookForProbes = 2 * time.Millisecond // the interval between queries of a place
	askTimeout    = 30 * time.Second     // bounds one query; after it the query is repeated, and its time counts
)

// likesOf is a post's count, as the reader and MySQL return it.
type likesOf struct {
	PostID uint64 `json:"post_id,string" db:"post_id"`
	Likes  int64  `json:"likes" db:"count"`
}

// every watches a place by querying the counts of posts again and again.
func every(pause time.Duration, ask func(ctx context.Context, posts []uint64) ([]likesOf, error),
) func(context.Context, []uint64, func([]likesOf)) error {
	return func(ctx context.Context, posts []uint64, see func([]likesOf)) error {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			counts, err := ask(asking, posts)
			cancel()
			if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
				return err
			}
			see(counts)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func joined(posts []uint64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(posts), " ", ","), "[]")
}
