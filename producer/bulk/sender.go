// Package bulk publishes many events to likes, in order, for `kudos import`, `kudos forget` and `kudos void`.
//
// Sending stops at the first event that Kafka does not accept: what follows would overtake it.
package bulk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

const (
	// maxBuffered bounds events that await Kafka: 5 batches of 64 KiB for 8 partitions; 200 MB if all have 4 KiB.
	maxBuffered = 50_000
	// maxBatchBytes keeps a batch, with its overhead, below the topic's limit.
	maxBatchBytes = schema.LikesMaxMessageBytes - 1<<10
)

// Sender publishes events to Kafka and stops for good at the first that Kafka does not accept. Flush is not concurrent.
type Sender struct {
	client  *kgo.Client
	layout  schema.Layout
	timeout time.Duration
	// records is the context of every record, and its cause is the first failure. Once it has one, kgo fails every
	// record that is not in flight yet. kgo runs a failed record's promise before it frees the record's slot in the
	// buffer, so no later event takes that slot.
	records context.Context
	fail    context.CancelCauseFunc
	// answers waits for every promise: that of a record that failed waiting for a slot may run after kgo's Flush.
	answers sync.WaitGroup
}

// Answer is called once for each event, from any goroutine: with its record, which has its position in likes, or with
// why it may not be there. The first failure that it returns is the reason why nothing more is sent.
type Answer func(rec *kgo.Record, err error) (failure error)

// Connect returns a sender to likes for a partition layout. It fails if the topic does not exist. The caller closes it.
func Connect(ctx context.Context, cluster kafka.Options, layout schema.Layout, log *slog.Logger) (*Sender, error) {
	client, err := cluster.NewClient(log,
		kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.RequiredAcks(kgo.AllISRAcks()), // never lose an acknowledged event
		kgo.RecordPartitioner(partitioner{kgo.StickyKeyPartitioner(nil)}),
		kgo.MaxBufferedRecords(maxBuffered),               // Produce blocks beyond this: bounds memory
		kgo.ProducerBatchMaxBytes(maxBatchBytes),          // or the broker rejects the batch
		kgo.ProducerLinger(5*time.Millisecond),            // fills batches; nobody waits for one event
		kgo.RecordDeliveryTimeout(cluster.RequestTimeout), // do not wait forever for an unavailable broker
		kgo.AllowIdempotentProduceCancellation(),          // even if the broker took a batch and never answered
	)
	if err != nil {
		return nil, err
	}
	s := &Sender{client: client, layout: layout, timeout: cluster.RequestTimeout}
	s.records, s.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	looking, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err = kafka.LookUpTopics(looking, client, schema.TopicLikes)
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		err = fmt.Errorf(`topic %q does not exist on %v; create the topics with "kudos topics apply"`,
			schema.TopicLikes, cluster.Brokers)
	default:
		err = fmt.Errorf("asking Kafka at %v for topic %q: %w", cluster.Brokers, schema.TopicLikes, err)
	}
	s.Close()
	return nil, err
}

// Send enqueues an event. It blocks while too many are not acknowledged.
func (s *Sender) Send(e *schema.Event, answer Answer) {
	key := s.layout.AppendKey(make([]byte, 0, 64), e.PostID, e.UserID)
	s.send(&kgo.Record{Key: key[:len(key):len(key)], Value: schema.AppendEvent(key[len(key):], e)}, answer)
}

// SendTo is Send for an event of a partition (schema.Action.OfUser), which has no key.
func (s *Sender) SendTo(partition int32, e *schema.Event, answer Answer) {
	s.send(&kgo.Record{Partition: partition, Value: schema.AppendEvent(nil, e)}, answer)
}

// partitioner is Kafka's default, murmur2 of the key; records without a key go where they say.
type partitioner struct{ kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{p.Partitioner.ForTopic(topic)}
}

type topicPartitioner struct{ kgo.TopicPartitioner }

func (topicPartitioner) RequiresConsistency(*kgo.Record) bool { return true }

func (p topicPartitioner) Partition(rec *kgo.Record, n int) int {
	if rec.Key == nil {
		return int(rec.Partition)
	}
	return p.TopicPartitioner.Partition(rec, n)
}

func (s *Sender) send(record *kgo.Record, answer Answer) {
	s.answers.Add(1)
	s.client.Produce(s.records, record, func(rec *kgo.Record, err error) {
		defer s.answers.Done()
		if failure := answer(rec, err); err != nil {
			s.fail(failure) // only the first one counts
		}
	})
}

// Failure returns why nothing more is sent, or nil.
func (s *Sender) Failure() error { return context.Cause(s.records) }

// Flush waits for every answer and returns the first failure. Records time out; its own timeout is for a hung client.
func (s *Sender) Flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.timeout)
	defer cancel()
	if err := s.client.Flush(ctx); err != nil {
		s.fail(fmt.Errorf("no answer from Kafka within %s", 2*s.timeout))
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		if err := s.client.AbortBufferedRecords(ctx); err != nil {
			return errors.Join(s.Failure(), fmt.Errorf("dropping unsent events: %w", err))
		}
	}
	s.answers.Wait() // nothing is buffered: only promises are left to run
	return s.Failure()
}

// Close closes the connections. Call Flush first if anything was sent.
func (s *Sender) Close() {
	s.client.Close()
	s.fail(nil)
}
