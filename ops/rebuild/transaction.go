package rebuild

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

// transaction writes one partition anew: all of it becomes visible at commit, or
// nothing does. It is under the partition's transactional id, so that a processor that
// is still writing is fenced, and one that starts fences it.
//
// Unlike kafka.Txn it streams: a partition does not fit in memory.
type transaction struct {
	cl        *kgo.Client
	id        string
	partition int32

	mu struct {
		sync.Mutex
		err  error            // the first record that was not taken
		last map[string]int64 // offset of the last record, by topic
	}
}

// buffered is how many records are on their way at a time.
const buffered = 50_000

// begin fences, and begins. After any error, close is all there is to do: aborting
// would initialise behind our back. The next fence aborts.
func begin(ctx context.Context, kafka kafka.Options, partition int32, timeout time.Duration, log *slog.Logger) (_ *transaction, err error) {
	t := &transaction{id: schema.FoldTransactionalID(partition), partition: partition}
	t.mu.last = map[string]int64{}
	t.cl, err = kafka.NewClient(log,
		kgo.TransactionalID(t.id),
		kgo.TransactionTimeout(timeout),
		kgo.RecordDeliveryTimeout(kafka.RequestTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(buffered),
		kgo.ProducerBatchCompression(kgo.SnappyCompression(), kgo.NoCompression()),
	)
	if err != nil {
		return nil, err
	}
	fenceCtx, cancel := context.WithTimeout(ctx, kafka.RequestTimeout)
	defer cancel()
	if _, _, err = t.cl.ProducerID(fenceCtx); err == nil {
		err = t.cl.BeginTransaction()
	}
	if err != nil {
		t.close()
		if errors.Is(err, kerr.InvalidTransactionTimeout) {
			return nil, fmt.Errorf("transactional id %s: the brokers' transaction.max.timeout.ms is below %s; give a shorter --transaction-timeout, in which a partition can be written: %w", t.id, timeout, err)
		}
		return nil, fmt.Errorf("initialising transactional id %s: %w", t.id, err)
	}
	return t, nil
}

// add sends a record of the partition; it waits while many are on their way.
func (t *transaction) add(ctx context.Context, topic string, key, value []byte) error {
	t.cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: t.partition, Key: key, Value: value}, t.sent)
	return t.failure()
}

func (t *transaction) sent(rec *kgo.Record, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.mu.last[rec.Topic] = max(t.mu.last[rec.Topic], rec.Offset)
	case t.mu.err == nil:
		t.mu.err = err
	}
}

func (t *transaction) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.err == nil {
		return nil
	}
	if errors.Is(t.mu.err, kerr.ProducerFenced) || errors.Is(t.mu.err, kerr.InvalidProducerEpoch) {
		return fmt.Errorf("writing partition %d anew: a processor was started and has taken the partition over, nothing was changed; stop it and run this again: %w", t.partition, t.mu.err)
	}
	return fmt.Errorf("writing partition %d anew: %w", t.partition, t.mu.err)
}

// addOffset has the fold's committed offset agree with the progress record.
func (t *transaction) addOffset(ctx context.Context, likes kafka.TopicInfo, next kafka.Position) error {
	source := kafka.LogPartition{Topic: schema.TopicLikes, TopicID: likes.ID, Partition: t.partition}
	if err := kafka.AddOffset(ctx, t.cl, t.id, kafka.NoMember(schema.GroupFold), source, next); err != nil {
		return fmt.Errorf("committing the offset of partition %d: %w", t.partition, err)
	}
	return nil
}

// flush waits until Kafka has all records.
func (t *transaction) flush(ctx context.Context) error {
	if err := t.cl.Flush(ctx); err != nil {
		return fmt.Errorf("writing partition %d anew: %w", t.partition, err)
	}
	return t.failure()
}

func (t *transaction) commit(ctx context.Context) error {
	if err := kafka.CommitTransaction(ctx, t.cl, schema.TopicState, t.partition); err != nil {
		return fmt.Errorf("committing partition %d, which may have been done or not; run this again, which finds out: %w", t.partition, err)
	}
	return nil
}

// visible waits until what was committed can be read: Kafka answers a commit before its
// markers are in the logs, and a reader of committed data ends before them.
func (t *transaction) visible(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic, last := range t.mu.last {
		for {
			_, end, err := kafka.Bounds(ctx, t.cl, topic, t.partition)
			if err != nil {
				return err
			}
			if end > last {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("what was committed to %s/%d cannot be read after %s; run this again: %w", topic, t.partition, visibleTimeout, ctx.Err())
			case <-time.After(visiblePause):
			}
		}
	}
	return nil
}

const (
	visibleTimeout = time.Minute
	visiblePause   = 20 * time.Millisecond
)

// close ends what was not committed, and may be called after commit.
func (t *transaction) close() { t.cl.Close() }
