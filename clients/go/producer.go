package kudos

import (
	"context"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topicLikes    = "likes"
	maxBatchBytes = 63 << 10 // below max.message.bytes of likes
)

// Producer publishes events to Kafka: idempotent, acknowledged by all in-sync replicas, in the partition of their post.
type Producer struct {
	cl      *kgo.Client
	buckets map[uint64]int32
}

// NewProducer returns a producer, which connects on first use. buckets are Layout.UserBuckets. More options set TLS and
// authentication, for example; they override the producer's own.
func NewProducer(brokers []string, buckets map[uint64]int32, more ...kgo.Opt) (*Producer, error) {
	partitioner := kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return func(r *kgo.Record, partitions int) int { return int(PartitionOf(string(r.Key), int32(partitions))) }
	})
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.DefaultProduceTopic(topicLikes),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(partitioner),
		kgo.ProducerBatchMaxBytes(maxBatchBytes),
		kgo.AllowIdempotentProduceCancellation(), // a context ends the wait; events have their time, so may be repeated
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("kudos producer: %w", err)
	}
	return &Producer{cl, maps.Clone(buckets)}, nil
}

// Send publishes an event and waits until Kafka has it, or ctx ends. After an error, Kafka may have it: repeat the call
// with the same Time, or leave it.
func (p *Producer) Send(ctx context.Context, e Event) (at Position, err error) {
	done := make(chan struct{})
	p.SendAsync(ctx, e, func(position Position, sendErr error) {
		at, err = position, sendErr
		close(done)
	})
	<-done
	return at, err
}

// SendAsync publishes an event, and calls done with its position or an error. Events about a post keep their order.
func (p *Producer) SendAsync(ctx context.Context, e Event, done func(Position, error)) {
	key, value, err := Record(e, Layout{UserBuckets: p.buckets})
	if err != nil {
		done(Position{}, err)
		return
	}
	p.cl.Produce(ctx, &kgo.Record{Key: []byte(key), Value: value}, func(r *kgo.Record, err error) {
		if err != nil {
			err = fmt.Errorf("publishing an event for post %s: %w", key, err)
		}
		done(Position{r.Partition, r.Offset}, err)
	})
}

// Close publishes what is buffered, until ctx ends, and closes the connections.
func (p *Producer) Close(ctx context.Context) error {
	defer p.cl.Close()
	return p.cl.Flush(ctx)
}
