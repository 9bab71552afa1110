package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
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
	firstProbe        = 1 << 50              // probe posts are above all posts of the shapes
	sendEvery         = time.Millisecond     // the interval at which due events are sent
	sendLinger        = 2 * time.Millisecond // the linger of the producer role
	sendBuffer        = 1 << 21              // events buffered before sending blocks; blocked time counts as latency
	giveUpAfter       = 5 * time.Second      // a contender with an older probe to count is behind: the pass ends
	seenTimeout       = 2 * time.Minute      // bounds the wait for the last probes
	leastEventsAProbe = 10                   // probes are at most one in this many events
)

// probePosts returns a post for each partition. Probes are likes of these posts, in turn, each by another user. Events
// of a partition stay in order, so a probe is visible when its post has at least as many likes as were sent until it.
func probePosts(partitions int32) []uint64 {
	posts := make([]uint64, partitions)
	for post, missing := uint64(firstProbe), partitions; missing > 0; post++ {
		if p := schema.PartitionFor(post, partitions); posts[p] == 0 {
			posts[p] = post
			missing--
		}
	}
	return posts
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
	before       []int64 // likes of each probe post in earlier passes

	mu     sync.Mutex
	due    [][]time.Duration // of the probes of each post, since begin
	acked  []delay           // when Kafka acknowledged a probe
	behind bool
}

// delay is how long after it was due something happened to a probe.
type delay struct{ due, took time.Duration }

// place is where probes become visible.
type place struct {
	name  string
	watch watch
	next  []int // by post: the first probe that is not visible yet
	seen  []delay
}

// watch calls see with counts of the posts, again and again until ctx ends.
type watch func(ctx context.Context, posts []uint64, see func(counts map[uint64]int64)) error

// pass is the result of holding a rate.
type pass struct {
	rate    float64 // reached
	events  int
	seconds float64 // of sending
	used    map[string]Usage
	kafka   Quantiles
	at      []Quantiles // by place
	rise    time.Duration
}

// hold sends events at a rate for the warm-up and d, until all probes are visible in all places or one place is behind.
func (m *latencyRun) hold(ctx context.Context, rate float64, d time.Duration, places ...*place) (_ *pass, err error) {
	l := &openLoop{latencyRun: m, rate: rate, records: records{partitions: m.load.Shape.Partitions}}
	l.events = int(rate * (m.plan.Warmup + d).Seconds())
	l.eventsAProbe = max(leastEventsAProbe, int(rate)/m.plan.Probes)
	l.before, l.due = append(l.before, m.probes...), make([][]time.Duration, len(m.posts))
	l.stream.Grow(l.events) // growing while sending would delay events
	if l.client, err = m.servers.writer(sendLinger, sendBuffer); err != nil {
		return nil, err
	}
	defer l.client.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, m.plan.Warmup+d+seenTimeout,
		errors.New("the last probes were not visible in time"))
	defer cancel()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	g, watched := errgroup.WithContext(watching)
	l.begin = time.Now()
	for _, p := range places {
		p.next, p.seen = make([]int, len(m.posts)), nil
		g.Go(func() error {
			err := p.watch(watched, m.posts, func(counts map[uint64]int64) { l.see(p, counts) })
			if watching.Err() != nil {
				return nil
			}
			return fmt.Errorf("watching probes in %s: %w", p.name, err)
		})
	}
	done, err := l.sendAll(watched, places)
	for err == nil && l.oldest(places) >= 0 {
		select {
		case <-time.After(lookForProbes):
		case <-watched.Done():
			err = context.Cause(watched)
		}
	}
	stop()
	if err := cmp.Or(g.Wait(), err); err != nil {
		return nil, err
	}
	for _, p := range places {
		done.at = append(done.at, l.quantiles(p.seen))
	}
	done.kafka, done.rise = l.quantiles(l.acked), rise(places[0].seen, m.plan.Warmup, d)
	done.kafka.Behind = false
	return done, nil
}

// quantiles summarizes the delays after the warm-up.
func (l *openLoop) quantiles(delays []delay) Quantiles {
	var took []time.Duration
	for _, d := range delays {
		if d.due >= l.plan.Warmup {
			took = append(took, d.took)
		}
	}
	q := quantiles(took)
	q.Behind = l.behind
	return q
}

// see notes which probes are visible in a place with these counts.
func (l *openLoop) see(p *place, counts map[uint64]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.begin)
	for i, post := range l.posts {
		likes := counts[post] - l.before[i]
		for ; p.next[i] < len(l.due[i]) && int64(p.next[i]) < likes; p.next[i]++ {
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
	now := time.Since(l.begin)
	for _, p := range places {
		for i, due := range l.due {
			if p.next[i] < len(due) {
				age = max(age, now-due[p.next[i]])
			}
		}
	}
	return age
}

// sendAll sends events as they become due, until all are sent or a place is behind, and measures the processes.
func (l *openLoop) sendAll(ctx context.Context, places []*place) (*pass, error) {
	processes := map[string]int{SenderProcess: os.Getpid()}
	maps.Copy(processes, l.servers.Processes)
	meter, err := startMeter(l.process.PID(), processes)
	if err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(ctx) // with the first failure as cause
	defer fail(nil)
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	begin, done := time.Now(), &pass{}
	offset := begin.Sub(l.begin)
	for done.events < l.events && !l.behind {
		due := min(l.events, int(time.Since(begin).Seconds()*l.rate)+1)
		for ; done.events < due; done.events++ {
			planned := time.Duration(float64(done.events) / l.rate * float64(time.Second))
			if err := l.sendOne(ctx, done.events, offset+planned, fail); err != nil {
				return nil, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		l.behind = l.oldest(places) > giveUpAfter
	}
	done.seconds = time.Since(begin).Seconds()
	done.rate = float64(done.events) / done.seconds
	if done.used, err = meter.read(); err != nil {
		return nil, err
	}
	_ = l.client.Flush(ctx) // fails if ctx ends
	return done, context.Cause(ctx)
}

// sendOne sends the nth event: the next of the stream, or a probe.
func (l *openLoop) sendOne(ctx context.Context, n int, due time.Duration, fail func(error)) (err error) {
	var e schema.Event
	acknowledged := func(_ *kgo.Record, err error) {
		if err != nil {
			fail(fmt.Errorf("sending to %s: %w", schema.TopicLikes, err))
		}
	}
	if n%l.eventsAProbe == 0 {
		i := n / l.eventsAProbe % len(l.posts)
		l.probes[i]++
		e = schema.Event{PostID: l.posts[i], UserID: uint64(l.probes[i]), Action: schema.Like, Region: regions[0]}
		l.mu.Lock()
		l.due[i] = append(l.due[i], due)
		l.mu.Unlock()
		failed := acknowledged
		acknowledged = func(r *kgo.Record, err error) {
			failed(r, err)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acked = append(l.acked, delay{due, time.Since(l.begin) - due})
		}
	} else if e, err = l.stream.Next(); err != nil {
		return err
	}
	e.TimeMs = l.begin.Add(due).UnixMilli()
	l.client.Produce(ctx, l.records.of(&e), acknowledged)
	return nil
}

const (
	lookForProbes = 2 * time.Millisecond // the interval between queries of a place
	askTimeout    = 30 * time.Second     // bounds one query; after it the query is repeated, and its time counts
)

// ask returns the counts of posts; a missing one is 0.
type ask func(ctx context.Context, posts []uint64) (counts map[uint64]int64, err error)

// every watches a place by querying it again and again.
func every(pause time.Duration, ask ask) watch {
	return func(ctx context.Context, posts []uint64, see func(map[uint64]int64)) error {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			counts, err := ask(asking, posts)
			cancel()
			if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
				return err
			}
			if err == nil {
				see(counts)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func askMySQL(db *sqlx.DB) ask {
	return func(ctx context.Context, posts []uint64) (map[uint64]int64, error) {
		rows, err := db.QueryContext(ctx, "SELECT post_id, `count` FROM like_count WHERE post_id IN ("+joined(posts)+")")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		counts := map[uint64]int64{}
		for rows.Next() {
			var post uint64
			var likes int64
			if err := rows.Scan(&post, &likes); err != nil {
				return nil, err
			}
			counts[post] = likes
		}
		return counts, rows.Err()
	}
}

func joined(posts []uint64) string {
	text := make([]string, len(posts))
	for i, p := range posts {
		text[i] = strconv.FormatUint(p, 10)
	}
	return strings.Join(text, ",")
}
