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

// open creates the client, which connects on first use.
func (p *Producer) open() error {
	client, err := p.kafka.NewClient(p.log,
		// Kafka's default partitioner, spelled out: murmur2 of the key. Every writer of a post must choose the same
		// partition (schema.Layout).
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// An acknowledged event is on every in-sync replica, and the client's own
		// retries write it once (idempotence is kgo's default).
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Below the topic's limit, which includes the overhead of a batch.
		kgo.ProducerBatchMaxBytes(schema.LikesMaxMessageBytes-1024),
		// p.buffer rejects before kgo would. One more, because kgo counts a record until its promise has returned, and
		// the promise frees the slot in p.buffer.
		kgo.MaxBufferedRecords(p.options.MaxBufferedRecords+1),
		kgo.ProducerLinger(p.options.Linger),
		// Find a moved leader at once: kgo's default of 5 s would be half of a request's wait.
		kgo.MetadataMinAge(250*time.Millisecond),
		// Below AckTimeout, so that a response usually has the reason. A record in flight is never canceled: it may
		// arrive late, and its event time keeps its order. At least kgo's minimum.
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
	// errBufferFull and errNotRunning mean that nothing of the request was written.
	errBufferFull = errors.New("the buffer for Kafka is full")
	errNotRunning = errors.New("the producer is not running")
)

// ack is the result of one event. Unless accepted, Kafka has not acknowledged it: it may or may not be there.
type ack struct {
	accepted bool
	position
	err error // why not; nil while the client has not reported
}

// position is an accepted event's offset in the likes topic.
type position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// publish writes the events in order and waits, at most AckTimeout, until Kafka has answered for all of them. An error
// means that none was written.
func (p *Producer) publish(ctx context.Context, events []schema.Event) ([]ack, error) {
	client := p.client.Load()
	if client == nil {
		return nil, errNotRunning
	}
	// Reserve capacity for all of them before the first is sent: if one line of a batch were rejected, a later one of
	// the same post could overtake it.
	if !p.buffer.TryAcquire(int64(len(events))) {
		return nil, errBufferFull
	}
	began := time.Now()
	// Acks count until the request stops waiting; later ones change nothing.
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
		// Not the request's context: when a record's context ends, kgo fails the partition's whole buffer, with the
		// events of other requests.
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
	<-waiting.Done() // also if the client left: nobody reads the response
	mu.Lock()
	defer mu.Unlock()
	p.metrics.publishSeconds.Observe(time.Since(began).Seconds())
	p.metrics.accepted.Add(float64(accepted))
	p.metrics.unacknowledged.Add(float64(len(events) - accepted))
	return acks, nil
}

// maxRecordBytes is the maximum size of a record's key (20 digits, and 5 for a bucket) and value.
const maxRecordBytes = 25 + 11 + 11 + 3 + 11 + 8

// appendRecord appends the record's key and value to buf. It returns both, and the extended buf.
func appendRecord(buf []byte, layout schema.Layout, e *schema.Event) (key, value, rest []byte) {
	start := len(buf)
	buf = layout.AppendKey(buf, e.PostID, e.UserID)
	mid := len(buf)
	buf = schema.AppendEvent(buf, e)
	return buf[start:mid:mid], buf[mid:len(buf):len(buf)], buf
}
