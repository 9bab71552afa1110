package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/storage"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// tableWait is how long one fetch waits for news at the end of a table topic. goka
// closes a reader and waits for it, so this is part of how long that takes.
const tableWait = 250 * time.Millisecond

type topicPartition struct {
	topic     string
	partition int32
}

// tableConsumer is goka's sarama.Consumer: table recovery and views. It hands goka
// one message per fetch, whose offset is the fetch's position and not a record's, so
// that recovery ends where nothing deliverable is left (sarama's consumer would wait
// there for ever). The records wait here until goka's update callback comes for them.
type tableConsumer struct {
	cl     *kgo.Client
	stores *store.Set

	mu struct {
		sync.Mutex
		readers map[topicPartition]*tableReader
	}
}

func newTableConsumer(cl *kgo.Client, stores *store.Set) *tableConsumer {
	c := &tableConsumer{cl: cl, stores: stores}
	c.mu.readers = map[topicPartition]*tableReader{}
	return c
}

// ConsumePartition starts reading; the reader ends with its AsyncClose.
func (c *tableConsumer) ConsumePartition(topic string, partition int32, offset int64) (sarama.PartitionConsumer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &tableReader{
		topicPartition: topicPartition{topic, partition},
		log:            kafka.NewLogReader(c.cl, topic, partition, tableWait),
		cancel:         cancel,
		messages:       make(chan *sarama.ConsumerMessage),
		errors:         make(chan *sarama.ConsumerError, 1),
		done:           make(chan struct{}),
	}
	r.mu.fetched = map[int64][]*kgo.Record{}
	c.mu.Lock()
	c.mu.readers[topicPartition{topic, partition}] = r
	c.mu.Unlock()
	go r.run(ctx, offset)
	return r, nil
}

// update is goka's update callback: it applies a whole fetch to the store in one
// write, instead of the one key that goka speaks of.
func (c *tableConsumer) update(ctx goka.UpdateContext, _ storage.Storage, _ string, _ []byte) error {
	tp := topicPartition{string(ctx.Topic()), ctx.Partition()}
	c.mu.Lock()
	r := c.mu.readers[tp]
	c.mu.Unlock()
	store := c.stores.Get(tp.topic, tp.partition)
	if r == nil || store == nil {
		return fmt.Errorf("no reader or no local state for %s/%d", tp.topic, tp.partition)
	}
	records, ok := r.take(ctx.Offset())
	if !ok {
		return fmt.Errorf("%s/%d: nothing was kafka.LogChunk up to offset %d", tp.topic, tp.partition, ctx.Offset())
	}
	return store.Replay(records, ctx.Offset())
}

func (c *tableConsumer) HighWaterMarks() map[string]map[int32]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	marks := map[string]map[int32]int64{}
	for tp, r := range c.mu.readers {
		if marks[tp.topic] == nil {
			marks[tp.topic] = map[int32]int64{}
		}
		marks[tp.topic][tp.partition] = r.HighWaterMarkOffset()
	}
	return marks
}

// Close has nothing to close: goka closes the readers, the client is the owner's.
func (c *tableConsumer) Close() error { return nil }

var errNotUsed = errors.New("stream: goka is not known to call this")

// What goka 1.1.17 never calls.
func (c *tableConsumer) Topics() ([]string, error)          { return nil, errNotUsed }
func (c *tableConsumer) Partitions(string) ([]int32, error) { return nil, errNotUsed }
func (c *tableConsumer) Pause(map[string][]int32)           {}
func (c *tableConsumer) Resume(map[string][]int32)          {}
func (c *tableConsumer) PauseAll()                          {}
func (c *tableConsumer) ResumeAll()                         {}

// tableReader is goka's sarama.PartitionConsumer. Its goroutine ends, and closes both
// channels, after AsyncClose.
type tableReader struct {
	topicPartition
	log      *kafka.LogReader
	cancel   context.CancelFunc
	messages chan *sarama.ConsumerMessage
	errors   chan *sarama.ConsumerError
	done     chan struct{}

	mu struct {
		sync.Mutex
		// fetched holds the records of the messages that goka has not applied yet,
		// by the message's offset: at most the one it works on and the one after.
		fetched map[int64][]*kgo.Record
		lso     int64
	}
}

func (r *tableReader) run(ctx context.Context, offset int64) {
	defer close(r.done)
	defer close(r.messages)
	defer close(r.errors)
	for {
		f, err := r.log.Fetch(ctx, offset)
		if err != nil {
			if ctx.Err() == nil {
				r.errors <- &sarama.ConsumerError{Topic: r.topic, Partition: r.partition, Err: err}
				<-ctx.Done()
			}
			return
		}
		r.mu.Lock()
		r.mu.lso = f.End
		if f.Next > offset {
			r.mu.fetched[f.Next-1] = f.Records
		}
		r.mu.Unlock()
		if f.Next == offset {
			continue
		}
		offset = f.Next
		select {
		case r.messages <- &sarama.ConsumerMessage{Topic: r.topic, Partition: r.partition, Offset: f.Next - 1}:
		case <-ctx.Done():
			return
		}
	}
}

// take hands the records of the message with this offset over.
func (r *tableReader) take(offset int64) (records []*kgo.Record, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	records, ok = r.mu.fetched[offset]
	delete(r.mu.fetched, offset)
	return records, ok
}

func (r *tableReader) Messages() <-chan *sarama.ConsumerMessage { return r.messages }
func (r *tableReader) Errors() <-chan *sarama.ConsumerError     { return r.errors }
func (r *tableReader) AsyncClose()                              { r.cancel() }

func (r *tableReader) Close() error {
	r.cancel()
	<-r.done
	return nil
}

func (r *tableReader) HighWaterMarkOffset() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.lso
}

func (r *tableReader) Pause()         {}
func (r *tableReader) Resume()        {}
func (r *tableReader) IsPaused() bool { return false }
