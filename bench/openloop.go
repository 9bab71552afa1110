package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
)

const (
	// firstProbe is the post of the first probe: above all posts of shapes.
	firstProbe = 1 << 50
	// sendEvery is how often the events that are due are sent.
	sendEvery = time.Millisecond
	// sendLinger is how long an event waits for others of its batch, as in the producer role.
	sendLinger = 2 * time.Millisecond
	// sendBuffer is how many events may wait for Kafka before sending waits, too. (Its time counts, then.)
	sendBuffer = 1 << 21
	// seenTimeout is how long the last probes may take.
	seenTimeout = 2 * time.Minute
	// leastEventsAProbe: of so many events one is a probe at most.
	leastEventsAProbe = 10
)

// openLoop sends events at a rate, whatever becomes of them: a sender that waited for answers would send less while the
// system is slow, and measure less of that. An event's latency begins when it was to be sent, so a stall of the sender
// itself is in it.
type openLoop struct {
	servers    *Servers
	stream     *Stream
	partitions int32
	rate       float64 // events a second
	plan       *LatencyPlan
	watcher    *watcher
	firstProbe uint64

	probes int // sent
	acked  ackTimes
}

// ackTimes is how long probes took until Kafka had them.
type ackTimes struct {
	mu   sync.Mutex
	took []time.Duration
}

func (a *ackTimes) add(took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, took)
}

// run sends for as long as planned and returns what the watcher saw.
func (l *openLoop) run(ctx context.Context) (*LatencyLevel, error) {
	cl, err := l.servers.client(
		kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)),
		kgo.ProducerLinger(sendLinger),
		kgo.MaxBufferedRecords(sendBuffer),
	)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, l.plan.Warmup+l.plan.Measure+seenTimeout, errors.New("the last probes were not seen in time"))
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	l.watcher.begin()
	g.Go(func() error { return l.watcher.watch(ctx) })
	level := &LatencyLevel{}
	g.Go(func() error {
		defer l.watcher.end()
		return l.send(ctx, cl, level)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	level.Kafka, level.seen = quantiles(l.acked.took), quantiles(l.watcher.took)
	return level, nil
}

// send sends what is due, again and again.
func (l *openLoop) send(ctx context.Context, cl *kgo.Client, level *LatencyLevel) error {
	var failure firstError
	promise := func(_ *kgo.Record, err error) { failure.set(err) }
	records := newRecords(l.partitions)
	total := int(l.rate * (l.plan.Warmup + l.plan.Measure).Seconds())
	eventsAProbe := max(leastEventsAProbe, int(l.rate)/l.plan.Probes)
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	begin := time.Now()
	for sent := 0; sent < total; {
		due := min(total, int(time.Since(begin).Seconds()*l.rate)+1)
		for ; sent < due; sent++ {
			planned := begin.Add(time.Duration(float64(sent) / l.rate * float64(time.Second)))
			if sent%eventsAProbe == 0 {
				l.sendProbe(ctx, cl, records, planned, planned.Sub(begin) >= l.plan.Warmup, failure.set)
				continue
			}
			e, err := l.stream.Next()
			if err != nil {
				return err
			}
			e.TimeMs = planned.UnixMilli()
			cl.Produce(ctx, records.of(&e), promise)
		}
		if err := failure.get(); err != nil {
			break
		}
		if sent == total {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	level.Events, level.EventsPerSecond = total, float64(total)/time.Since(begin).Seconds()
	if err := cl.Flush(ctx); err != nil {
		failure.set(err)
	}
	if err := failure.get(); err != nil {
		return fmt.Errorf("sending to %s: %w", schema.TopicLikes, err)
	}
	return nil
}

// sendProbe sends a like of a post of its own, and has the watcher look for it if it is to be measured.
func (l *openLoop) sendProbe(ctx context.Context, cl *kgo.Client, records *records, planned time.Time, measured bool, failed func(error)) {
	e := schema.Event{PostID: l.firstProbe + uint64(l.probes), UserID: 1, Action: schema.Like, Region: regions[0], TimeMs: planned.UnixMilli()}
	l.probes++
	if measured {
		l.watcher.expect(probe{e.PostID, planned})
	}
	cl.Produce(ctx, records.of(&e), func(_ *kgo.Record, err error) {
		if measured && err == nil {
			l.acked.add(time.Since(planned))
		}
		failed(err)
	})
}
