package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka/tracing"
)

// open makes the client, which connects on first use.
func (p *Producer) open() error {
	client, err := p.kafka.NewClient(p.log,
		// Kafka's own partitioning, spelled out: murmur2 of the key. Every writer of a
		// post must choose the same partition (schema.Layout).
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// An acknowledged event is on every in-sync replica, and the client's own
		// retries write it once (idempotence is kgo's default).
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Below the topic's limit, which holds for the batch with its overhead.
		kgo.ProducerBatchMaxBytes(schema.LikesMaxMessageBytes-1024),
		// p.buffer refuses before kgo would. One more, since kgo counts a record out only
		// after it has called the record's promise, which gives the slot back.
		kgo.MaxBufferedRecords(p.options.MaxBufferedRecords+1),
		kgo.ProducerLinger(p.options.Linger),
		// A leader that moved is looked for at once: kgo's 5 s would be half of a request's wait.
		kgo.MetadataMinAge(250*time.Millisecond),
		// Below AckTimeout, so that the request mostly hears the reason. A record that is in flight is never cancelled:
		// it may come late, and keeps its place by its time. At least kgo's minimum.
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

func (p *Producer) bufferedRecords() float64 {
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

// ack is what became of one event. Unless accepted, Kafka has not acknowledged it: it may be there or not.
type ack struct {
	accepted bool
	position
	err error // why not; nil while the client has not said
}

// position is an accepted event's offset in the likes topic.
type position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// publish writes the events in their order and waits, AckTimeout at most, until
// Kafka has answered for all of them. An error means that none was written.
func (p *Producer) publish(ctx context.Context, events []schema.Event) ([]ack, error) {
	client := p.client.Load()
	if client == nil {
		return nil, errNotRunning
	}
	// All or none, and before the first: were a single line of a batch refused, a
	// later one of the same post could overtake it.
	if !p.buffer.TryAcquire(int64(len(events))) {
		return nil, errBufferFull
	}
	began := time.Now()
	// Acks come in until the request stops waiting; one that comes later changes nothing any more.
	waiting, stop := context.WithTimeout(ctx, p.options.AckTimeout)
	defer stop()
	var mu sync.Mutex
	acks, missing, accepted := make([]ack, len(events)), len(events), 0

	traced := tracing.Detach(ctx)
	buf := make([]byte, 0, len(events)*maxRecordBytes)
	records := make([]kgo.Record, len(events))
	for i := range events {
		r := &records[i]
		r.Topic = schema.TopicLikes
		r.Key, r.Value, buf = appendRecord(buf, p.layout, &events[i])
		// Not the request's context: kgo fails a partition's whole buffer, the events
		// of others too, when the context of a record in it ends.
		client.TryProduce(traced, r, func(r *kgo.Record, err error) {
			defer p.buffer.Release(1)
			mu.Lock()
			defer mu.Unlock()
			if waiting.Err() == nil {
				acks[i] = ack{err == nil, position{r.Partition, r.Offset}, err}
			}
			if acks[i].accepted {
				accepted++
			}
			if missing--; missing == 0 {
				stop()
			}
		})
	}
	<-waiting.Done() // also if the client left: nobody reads the answer
	mu.Lock()
	defer mu.Unlock()
	p.metrics.publishSeconds.Observe(time.Since(began).Seconds())
	p.metrics.accepted.Add(float64(accepted))
	p.metrics.unacknowledged.Add(float64(len(events) - accepted))
	return acks, nil
}

// maxRecordBytes is the most that a record's key (20 digits, and 5 of a bucket) and value take.
const maxRecordBytes = 25 + 11 + 11 + 3 + 11 + 8

// appendRecord appends the record's key and value to buf, and returns both with it.
func appendRecord(buf []byte, layout schema.Layout, e *schema.Event) (key, value, rest []byte) {
	start := len(buf)
	buf = layout.AppendKey(buf, e.PostID, e.UserID)
	mid := len(buf)
	buf = schema.AppendEvent(buf, e)
	return buf[start:mid:mid], buf[mid:len(buf):len(buf)], buf
}
