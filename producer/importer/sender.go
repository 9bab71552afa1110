package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

const (
	// maxBuffered bounds the events that await Kafka. Some 8 partitions with 5 batches
	// of 64 KiB in flight each; at most 200 MB, and that only with lines of 4 KiB.
	maxBuffered = 50_000
	// maxBatchBytes leaves a batch of likes room below the topic's limit.
	maxBatchBytes = schema.LikesMaxMessageBytes - 1<<10
)

// sender brings events to Kafka in order, and stops for good at the first that Kafka
// does not take.
type sender struct {
	client  *kgo.Client
	timeout time.Duration
	rejects *Rejects
	count   *counters
	log     *slog.Logger
	// records is the context of every record. Its cause is the first failure: kgo
	// fails with it whatever is not on its way yet, and runs the promise before it
	// makes room, so that no later event takes the room of a failed one.
	records context.Context
	fail    context.CancelCauseFunc
	// answers awaits every promise. kgo's own flush does not know of a record that
	// failed while it waited for room: its promise may run after the flush.
	answers sync.WaitGroup
}

// newSender connects, and refuses where there is no topic to send to.
func newSender(ctx context.Context, kafka stream.KafkaOptions, rejects *Rejects, count *counters, log *slog.Logger) (*sender, error) {
	client, err := kafka.NewClient(log,
		kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.RequiredAcks(kgo.AllISRAcks()),                   // acknowledged is never lost
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // Kafka's own: murmur2 of the key
		kgo.MaxBufferedRecords(maxBuffered),                  // Produce blocks beyond: memory is bounded
		kgo.ProducerBatchMaxBytes(maxBatchBytes),             // or the broker refuses the batch
		kgo.ProducerLinger(5*time.Millisecond),               // fills batches; nobody waits for one event
		kgo.RecordDeliveryTimeout(kafka.RequestTimeout),      // no wait without end for a broker that is gone
		kgo.AllowIdempotentProduceCancellation(),             // also if it took a batch and never answered
	)
	if err != nil {
		return nil, err
	}
	s := &sender{client: client, timeout: kafka.RequestTimeout, rejects: rejects, count: count, log: log}
	s.records, s.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := s.checkTopic(ctx, kafka); err != nil {
		client.Close()
		s.fail(nil)
		return nil, err
	}
	return s, nil
}

func (s *sender) checkTopic(ctx context.Context, kafka stream.KafkaOptions) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	topics, err := kadm.NewClient(s.client).ListTopics(ctx, schema.TopicLikes)
	if err == nil {
		err = topics[schema.TopicLikes].Err
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf(`topic %q does not exist on %v; create the topics with "kudos topics apply"`, schema.TopicLikes, kafka.Brokers)
	case err != nil:
		return fmt.Errorf("ask Kafka at %v for topic %q: %w", kafka.Brokers, schema.TopicLikes, err)
	}
	return nil
}

// send hands an event to Kafka. It blocks while too many await their answer.
func (s *sender) send(e *schema.Event, number int64, original []byte) {
	original = bytes.Clone(original) // for the rejects, should Kafka not take it
	key := schema.AppendPostKey(make([]byte, 0, 64), e.PostID)
	value := schema.AppendEvent(key[len(key):], e)
	record := &kgo.Record{Key: key[:len(key):len(key)], Value: value}
	s.answers.Add(1)
	s.client.Produce(s.records, record, func(_ *kgo.Record, err error) {
		defer s.answers.Done()
		if err == nil {
			s.count.acknowledged.Add(1)
			return
		}
		s.notAcknowledged(number, original, err)
	})
}

func (s *sender) notAcknowledged(number int64, original []byte, err error) {
	s.fail(fmt.Errorf("line %d was not acknowledged by Kafka: %w", number, err)) // the first one stays
	s.count.unacknowledged.Add(1)
	if err := s.rejects.Add(number, "not acknowledged by Kafka: "+err.Error(), original); err != nil {
		s.log.Error("lost a line that Kafka did not acknowledge", "line", number, "err", err)
	}
}

// failure is why nothing more is sent, or nil.
func (s *sender) failure() error { return context.Cause(s.records) }

// flush waits for every answer. Each record has its own time limit; the one here is
// for a client that does not keep it.
func (s *sender) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.timeout)
	defer cancel()
	if err := s.client.Flush(ctx); err != nil {
		s.fail(fmt.Errorf("no answer from Kafka within %s", 2*s.timeout))
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		if err := s.client.AbortBufferedRecords(ctx); err != nil {
			return errors.Join(s.failure(), fmt.Errorf("give up what was not sent: %w", err))
		}
	}
	s.answers.Wait() // nothing is buffered: what is left are promises that only have to be run
	return s.failure()
}

func (s *sender) close() {
	s.client.Close()
	s.fail(nil)
}
