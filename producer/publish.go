package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
)

// publisher writes events to the likes topic and says what became of each.
type publisher struct {
	options Options
	kafka   kafka.Options
	log     *slog.Logger
	metrics *metrics
	layout  schema.Layout // names buckets in keys
	health  health

	client atomic.Pointer[kgo.Client] // nil unless running
	room   *semaphore.Weighted        // of MaxBufferedRecords
}

func newPublisher(o Options, layout schema.Layout, kafka kafka.Options, log *slog.Logger, m *metrics) *publisher {
	return &publisher{
		options: o, layout: layout, kafka: kafka, log: log, metrics: m,
		room: semaphore.NewWeighted(int64(o.MaxBufferedRecords)),
	}
}

// open makes the client, which connects on first use.
func (p *publisher) open() error {
	client, err := p.kafka.NewClient(p.log,
		// Kafka's own partitioning, spelled out: murmur2 of the key. Every writer of a
		// post must choose the same partition (schema.Layout).
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// An acknowledged event is on every in-sync replica, and the client's own
		// retries write it once (idempotence is kgo's default).
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Below the topic's limit, which holds for the batch with its overhead.
		kgo.ProducerBatchMaxBytes(schema.LikesMaxMessageBytes-1024),
		// p.room refuses before kgo would. One more, since kgo counts a record out only
		// after it has called the record's promise, which gives the place back.
		kgo.MaxBufferedRecords(p.options.MaxBufferedRecords+1),
		kgo.ProducerLinger(p.options.Linger),
		// A leader that moved is looked for at once: kgo's 5 s would be half of a
		// request's wait.
		kgo.MetadataMinAge(250*time.Millisecond),
		// Below AckTimeout, so that the request mostly hears the reason. A record that
		// is on its way is never cancelled: it may come late, and keeps its place by
		// its time. At least kgo's minimum.
		kgo.RecordDeliveryTimeout(max(time.Second, p.options.AckTimeout*3/4)),
		kgo.ProduceRequestTimeout(max(100*time.Millisecond, p.options.AckTimeout/2)),
		kgo.WithHooks(tracing.Hooks()...),
	)
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	p.client.Store(client)
	return nil
}

// close delivers what the client holds until ctx ends, and gives up the rest.
func (p *publisher) close(ctx context.Context) (left int64) {
	client := p.client.Swap(nil)
	if err := client.Flush(ctx); err != nil {
		left = client.BufferedProduceRecords()
	}
	client.Close()
	return left
}

func (p *publisher) bufferedRecords() float64 {
	if client := p.client.Load(); client != nil {
		return float64(client.BufferedProduceRecords())
	}
	return 0
}

var (
	// errBufferFull and errNotRunning: nothing of the request was written.
	errBufferFull = errors.New("the buffer for Kafka is full")
	errNotRunning = errors.New("the producer is not running")
)

// ack is what became of one event. Unless accepted, Kafka has not acknowledged it:
// it may be there or not.
type ack struct {
	accepted bool
	position
	err error // why not; nil while the client has not said
}

// position is an accepted event's place in the likes topic.
type position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// publish writes the events in their order and waits, AckTimeout at most, until
// Kafka has answered for all of them. An error means that none was written.
func (p *publisher) publish(ctx context.Context, events []schema.Event) ([]ack, error) {
	client := p.client.Load()
	if client == nil {
		return nil, errNotRunning
	}
	// All or none, and before the first: were a single line of a batch refused, a
	// later one of the same post could overtake it.
	if !p.room.TryAcquire(int64(len(events))) {
		return nil, errBufferFull
	}
	began := time.Now()
	traced := tracing.Detach(ctx)
	f := newFlight(len(events))
	buf := make([]byte, 0, len(events)*maxRecordBytes)
	records := make([]kgo.Record, len(events))
	for i := range events {
		r := &records[i]
		r.Topic = schema.TopicLikes
		r.Key, r.Value, buf = appendRecord(buf, p.layout, &events[i])
		// Not the request's context: kgo fails a partition's whole buffer, the events
		// of others too, when the context of a record in it ends.
		client.TryProduce(traced, r, func(r *kgo.Record, err error) {
			f.land(i, position{r.Partition, r.Offset}, err)
			p.room.Release(1)
		})
	}
	acks := f.wait(ctx, p.options.AckTimeout)
	p.observe(acks, time.Since(began))
	return acks, nil
}

// maxRecordBytes is the most that a record's key (20 digits, and 5 of a bucket) and value
// take.
const maxRecordBytes = 25 + 11 + 11 + 3 + 11 + 8

// appendRecord appends the record's key and value to buf, and returns both with it.
func appendRecord(buf []byte, layout schema.Layout, e *schema.Event) (key, value, rest []byte) {
	start := len(buf)
	buf = layout.AppendKey(buf, e.PostID, e.UserID)
	mid := len(buf)
	buf = schema.AppendEvent(buf, e)
	return buf[start:mid:mid], buf[mid:len(buf):len(buf)], buf
}

func (p *publisher) observe(acks []ack, took time.Duration) {
	accepted := 0
	for i := range acks {
		if acks[i].accepted {
			accepted++
		}
	}
	p.metrics.publishSeconds.Observe(took.Seconds())
	p.metrics.accepted.Add(float64(accepted))
	p.metrics.unacknowledged.Add(float64(len(acks) - accepted))
}

// flight is one request's events on their way. Promises land in it until the request
// stops waiting; what lands later changes nothing any more.
type flight struct {
	mu struct {
		sync.Mutex
		acks []ack
		left int
		over bool
	}
	landed chan struct{} // closed when none is left
}

func newFlight(n int) *flight {
	f := &flight{landed: make(chan struct{})}
	f.mu.acks, f.mu.left = make([]ack, n), n
	return f
}

// land is called once for each event, by the client.
func (f *flight) land(i int, at position, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.over {
		f.mu.acks[i] = ack{accepted: err == nil, position: at, err: err}
	}
	if f.mu.left--; f.mu.left == 0 {
		close(f.landed)
	}
}

func (f *flight) wait(ctx context.Context, timeout time.Duration) []ack {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-f.landed:
	case <-timer.C:
	case <-ctx.Done(): // the client is gone: nobody reads the answer
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.over = true
	return f.mu.acks
}
