// Package bulk brings many events to likes, in the order in which they come: what `kudos import` and `kudos forget`
// have in common. In come events; out go records, and an answer for each.
//
// After the first event that Kafka does not take nothing more is sent: what follows it would overtake it.
package bulk

import (
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
	"kudos/stream/kafka"
)

const (
	// maxBuffered bounds the events that await Kafka. Some 8 partitions with 5 batches
	// of 64 KiB in flight each; at most 200 MB, and that only with events of 4 KiB.
	maxBuffered = 50_000
	// maxBatchBytes leaves a batch of likes room below the topic's limit.
	maxBatchBytes = schema.LikesMaxMessageBytes - 1<<10
)

// Sender brings events to Kafka, and stops for good at the first that Kafka does not take. One goroutine uses it.
type Sender struct {
	client  *kgo.Client
	layout  schema.Layout
	timeout time.Duration
	// records is the context of every record. Its cause is the first failure: kgo fails with it whatever is not on its
	// way yet, and runs the promise before it makes room, so that no later event takes the room of a failed one.
	records context.Context
	fail    context.CancelCauseFunc
	// answers awaits every promise. kgo's own flush does not know of a record that
	// failed while it waited for room: its promise may run after the flush.
	answers sync.WaitGroup
}

// Place is where in likes an event is.
type Place struct {
	Partition int32
	Offset    int64
}

// Answer is called once for each event, from any goroutine: with its place, or with why it may not be there. What it
// returns in the latter case is why nothing more is sent, if it is the first.
type Answer func(at Place, err error) (failure error)

// Connect makes a sender to likes with a layout, and refuses where there is no topic to send to. Close it.
func Connect(ctx context.Context, kafka kafka.Options, layout schema.Layout, log *slog.Logger) (*Sender, error) {
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
	s := &Sender{client: client, layout: layout, timeout: kafka.RequestTimeout}
	s.records, s.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := s.checkTopic(ctx, kafka); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sender) checkTopic(ctx context.Context, kafka kafka.Options) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	topics, err := kadm.NewClient(s.client).ListTopics(ctx, schema.TopicLikes)
	if err == nil {
		err = topics[schema.TopicLikes].Err
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf(`topic %q does not exist on %v; create the topics with "kudos topics apply"`,
			schema.TopicLikes, kafka.Brokers)
	case err != nil:
		return fmt.Errorf("ask Kafka at %v for topic %q: %w", kafka.Brokers, schema.TopicLikes, err)
	}
	return nil
}

// Send hands an event to Kafka. It blocks while too many await their answer.
func (s *Sender) Send(e *schema.Event, answer Answer) {
	key := s.layout.AppendKey(make([]byte, 0, 64), e.PostID, e.UserID)
	value := schema.AppendEvent(key[len(key):], e)
	record := &kgo.Record{Key: key[:len(key):len(key)], Value: value}
	s.answers.Add(1)
	s.client.Produce(s.records, record, func(rec *kgo.Record, err error) {
		defer s.answers.Done()
		if err == nil {
			_ = answer(Place{rec.Partition, rec.Offset}, nil)
			return
		}
		s.fail(answer(Place{}, err)) // the first one stays
	})
}

// Failure is why nothing more is sent, or nil.
func (s *Sender) Failure() error { return context.Cause(s.records) }

// Flush waits for every answer, and returns the first failure. Each record has its own
// time limit; the one here is for a client that does not keep it.
func (s *Sender) Flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.timeout)
	defer cancel()
	if err := s.client.Flush(ctx); err != nil {
		s.fail(fmt.Errorf("no answer from Kafka within %s", 2*s.timeout))
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		if err := s.client.AbortBufferedRecords(ctx); err != nil {
			return errors.Join(s.Failure(), fmt.Errorf("give up what was not sent: %w", err))
		}
	}
	s.answers.Wait() // nothing is buffered: what is left are promises that only have to be run
	return s.Failure()
}

// Close ends the connections; Flush comes before, if anything was sent.
func (s *Sender) Close() {
	s.client.Close()
	s.fail(nil)
}
