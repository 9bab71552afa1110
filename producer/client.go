package producer

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka/tracing"
)

// open creates the client, which connects on first use.
func (p *Producer) open() error {
	client, err := p.kafka.NewClient(p.log,
		// Kafka's default, spelled out: murmur2 of the key. A post's writers must share its partition (schema.Layout).
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// An acknowledged event is on every in-sync replica. Retries write it once (idempotence is kgo's default).
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Below the topic's limit, which includes the overhead of a batch.
		kgo.ProducerBatchMaxBytes(schema.LikesMaxMessageBytes-1024),
		// p.buffer rejects first. One more: kgo counts a record until its promise, which frees a slot, has returned.
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
