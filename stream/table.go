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
	"github.com/twmb/franz-go/pkg/kmsg"
)

// tableWait is how long one fetch waits for news at the end of a table topic. goka
// closes a reader and waits for it, so this is part of how long that takes.
const tableWait = 250 * time.Millisecond

// tableConsumer is goka's sarama.Consumer: table recovery and views. It hands goka
// one message per fetch, whose offset is the fetch's position and not a record's, so
// that recovery ends where nothing deliverable is left (sarama's consumer would wait
// there for ever). The records wait here until goka's update callback comes for them.
type tableConsumer struct {
	cl     *kgo.Client
	stores *Stores

	mu struct {
		sync.Mutex
		readers map[topicPartition]*tableReader
	}
}

func newTableConsumer(cl *kgo.Client, stores *Stores) *tableConsumer {
	c := &tableConsumer{cl: cl, stores: stores}
	c.mu.readers = map[topicPartition]*tableReader{}
	return c
}

// ConsumePartition starts reading; the reader ends with its AsyncClose.
func (c *tableConsumer) ConsumePartition(topic string, partition int32, offset int64) (sarama.PartitionConsumer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &tableReader{
		log:      newLogReader(c.cl, topic, partition, tableWait),
		cancel:   cancel,
		messages: make(chan *sarama.ConsumerMessage),
		errors:   make(chan *sarama.ConsumerError, 1),
		done:     make(chan struct{}),
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
		return fmt.Errorf("%s/%d: nothing was fetched up to offset %d", tp.topic, tp.partition, ctx.Offset())
	}
	store.replayed.Add(int64(len(records)))
	return applyRecords(store, records, ctx.Offset())
}

// applyRecords writes records of a table topic, and that the store covers the log up
// to and including offset.
func applyRecords(store *Store, records []*kgo.Record, offset int64) error {
	if store.buffer != nil {
		if err := store.usable(); err != nil {
			return err
		}
		store.Stage(len(records), func(i int) (key, value []byte) { return records[i].Key, records[i].Value })
		return store.Seal(offset)
	}
	w := store.NewWrite()
	for _, rec := range records {
		if err := w.Set(rec.Key, rec.Value); err != nil {
			w.Discard()
			return fmt.Errorf("writing local state in %s: %w", store.dir, err)
		}
	}
	return w.Commit(offset)
}

// catchUpPatience is how long CatchUp goes on without an answer, before it says so.
const catchUpPatience = 30 * time.Second

// CatchUp brings the store to the last stable offset of its log; one that was found
// corrupted, or could not be written, is opened again before. Whoever calls it has fenced the writers of the partition
// before, so nothing comes after, and nobody else may be reading.
func (s *Store) CatchUp(ctx context.Context, cl kmsg.Requestor, topic string, partition int32) error {
	next, err := s.resume(ctx, cl, topic, partition, func() {})
	if err != nil {
		return err
	}
	return s.readOn(ctx, cl, topic, partition, next, func(f fetched) error {
		return applyRecords(s, f.records, f.next-1)
	})
}

// readOn hands what follows an offset, up to the last stable one, to apply, a fetch at a
// time.
func (s *Store) readOn(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, next int64, apply func(fetched) error) error {
	r := newLogReader(cl, topic, partition, 0)
	r.topicID = s.id.TopicID // one made anew meanwhile is another log
	for {
		fetchCtx, cancel := context.WithTimeout(ctx, catchUpPatience)
		f, err := r.fetch(fetchCtx, next)
		cancel()
		if err != nil {
			return err
		}
		if f.next > next {
			s.replayed.Add(int64(len(f.records)))
			if err := apply(f); err != nil {
				return err
			}
			next = f.next
		}
		if next >= f.lso {
			return nil
		}
		r.maxWait = tableWait // do not ask in a tight loop for what is not there yet
	}
}

// resume makes the store usable and returns the offset to read on from. A store that
// covers more than the log has, or goes back to before it, is a copy of something else,
// and starts over. alone is called before files are closed or emptied: nobody else may
// be reading from then on.
func (s *Store) resume(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, alone func()) (int64, error) {
	if s.trouble() != nil {
		alone()
	}
	if err := s.refresh(); err != nil {
		return 0, err
	}
	start, end, err := Bounds(ctx, cl, topic, partition)
	if err != nil {
		return 0, err
	}
	topics, err := LookUpTopics(ctx, cl, topic)
	if err != nil {
		return 0, err
	}
	last, ok := s.Offset()
	id := LogID{ClusterID: topics.ClusterID, TopicID: topics.ByName[topic].ID}
	switch {
	case id != s.id:
		s.log.Warn("local state is a copy of a log that was deleted and is built again", "dir", s.dir)
	case !ok:
		return start, nil
	case last+1 < start || last+1 > end:
		s.log.Warn("local state does not belong to the log and is built again", "dir", s.dir, "offset", last, "log_start", start, "log_end", end)
	default:
		return last + 1, nil
	}
	alone()
	s.id = id // not before: whoever reads may ask what it is a copy of
	if err := s.rebuild(); err != nil {
		return 0, fmt.Errorf("building local state in %s again: %w", s.dir, err)
	}
	return start, nil
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
	log      *logReader
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
		f, err := r.log.fetch(ctx, offset)
		if err != nil {
			if ctx.Err() == nil {
				r.errors <- &sarama.ConsumerError{Topic: r.log.topic, Partition: r.log.partition, Err: err}
				<-ctx.Done()
			}
			return
		}
		r.mu.Lock()
		r.mu.lso = f.lso
		if f.next > offset {
			r.mu.fetched[f.next-1] = f.records
		}
		r.mu.Unlock()
		if f.next == offset {
			continue
		}
		offset = f.next
		select {
		case r.messages <- &sarama.ConsumerMessage{Topic: r.log.topic, Partition: r.log.partition, Offset: f.next - 1}:
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
