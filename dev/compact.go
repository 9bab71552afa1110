//go:build !nodev

package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// CompactorOptions say which tables the Compactor keeps small, and when.
type CompactorOptions struct {
	// Topics are compacted. They are written in transactions only. What was written again also
	// stays where it was, for so long: for readers that are behind.
	Topics map[string]time.Duration `mapstructure:"-"`
	// Interval between two looks at all partitions.
	Interval time.Duration `mapstructure:"interval"`
	// MinBytes is how large a partition's log must be, at least, to be compacted. It must
	// also be four times as large as what the last compaction wrote again.
	MinBytes int64 `mapstructure:"min_bytes"`
	// HoldTimeout bounds how long a partition's writer waits for a compaction.
	HoldTimeout time.Duration `mapstructure:"hold_timeout"`
}

// DefaultCompactorOptions compact the tables of the processor and of the ranker, and the
// rankings.
func DefaultCompactorOptions() CompactorOptions {
	return CompactorOptions{
		Topics: map[string]time.Duration{
			// Readers that are further behind copy the table anew.
			schema.TopicState:              2 * time.Minute,
			schema.TopicTrendingTable:      2 * time.Minute,
			schema.TopicTrendingLocalTable: 2 * time.Minute,
			schema.TopicTrending:           10 * time.Minute,
		},
		Interval:    10 * time.Second,
		MinBytes:    1 << 20,
		HoldTimeout: 2 * time.Second,
	}
}

// Validate says what is wrong with the options, all of it.
func (o CompactorOptions) Validate() error {
	if o.Interval <= 0 || o.HoldTimeout <= 0 || o.MinBytes < 1 {
		return errors.New("interval, hold_timeout and min_bytes must be above 0")
	}
	return nil
}

// Compactor takes the place of the log cleaner, which the embedded broker lacks. A real
// cleaner rewrites segments; this one works from outside. It writes the last record of
// each key again, at the end of the log, and then deletes what is before:
//
//	before   a1 b1 a2 c1 b2 │ a3 …            │: where it began to read
//	then     a1 b1 a2 c1 b2 │ a3 … c1 b2      while no transaction may begin
//	after                     a3 … c1 b2      once the readers have got past │
//
// Whoever reads the log, from any position, comes to the same table. It ends with the
// record that it ended with, since some readers know the end of a transaction by it.
type Compactor struct {
	options CompactorOptions
	broker  *Broker
	kafka   kafka.Options
	log     *slog.Logger

	cl    *kgo.Client
	admin *kadm.Client
	logs  map[topicPartition]*compacted
}

type topicPartition struct {
	topic     string
	partition int32
}

// compacted is what the Compactor knows of a partition.
type compacted struct {
	left    int64     // bytes that the last compaction wrote again
	until   int64     // what is before is to be deleted; 0: nothing
	written time.Time // when until was set
}

// NewCompactor makes a compactor of broker, which kafka must name.
func NewCompactor(o CompactorOptions, broker *Broker, kafka kafka.Options, log *slog.Logger) *Compactor {
	return &Compactor{options: o, broker: broker, kafka: kafka, log: log, logs: map[topicPartition]*compacted{}}
}

// Run compacts until ctx ends. A partition that could not be compacted is tried again.
func (c *Compactor) Run(ctx context.Context) error {
	if err := c.options.Validate(); err != nil {
		return fmt.Errorf("compactor: %w", err)
	}
	if err := c.connect(); err != nil {
		return err
	}
	defer c.cl.Close()
	ticker := time.NewTicker(c.options.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := c.round(ctx); err != nil && ctx.Err() == nil {
				c.log.Info("a table of the embedded broker was not compacted; trying again", "error", err)
			}
		}
	}
}

// connect makes the client. It sends nothing twice: what is late must not come after
// what the partition's writer has written since.
func (c *Compactor) connect() (err error) {
	c.cl, err = c.kafka.NewClient(c.log,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite(),
		kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.RecordRetries(0),
	)
	if err == nil {
		c.admin = kadm.NewClient(c.cl)
	}
	return err
}

// round looks at all partitions.
func (c *Compactor) round(ctx context.Context) error {
	topics, err := c.admin.ListTopics(ctx, slices.Collect(maps.Keys(c.options.Topics))...)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	var errs []error
	for _, topic := range topics.Sorted() {
		for _, p := range topic.Partitions.Sorted() {
			if err := c.look(ctx, topic, p.Partition); err != nil {
				errs = append(errs, fmt.Errorf("%s/%d: %w", topic.Topic, p.Partition, err))
			}
		}
	}
	return errors.Join(errs...)
}

// look deletes or compacts, if it is time to.
func (c *Compactor) look(ctx context.Context, topic kadm.TopicDetail, partition int32) error {
	tp := topicPartition{topic.Topic, partition}
	known := c.logs[tp]
	if known == nil {
		known = &compacted{}
		c.logs[tp] = known
	}
	if known.until > 0 {
		if time.Since(known.written) < c.options.Topics[tp.topic] {
			return nil
		}
		if err := c.deleteBefore(ctx, tp, known.until); err != nil {
			return err
		}
		known.until = 0
	}
	size := c.broker.size(tp.topic, partition)
	if size < max(c.options.MinBytes, 4*known.left) {
		return nil
	}
	start, end, err := kafka.Bounds(ctx, c.cl, tp.topic, partition)
	if err != nil {
		return err
	}
	left, err := c.compact(ctx, tp, [16]byte(topic.ID), start, end)
	if err == nil {
		known.left, known.until, known.written = left, end, time.Now()
	}
	return err
}

// compact writes the last records of all keys in [start, end) again, unless there is a
// newer one behind. It returns how many bytes.
func (c *Compactor) compact(ctx context.Context, tp topicPartition, id [16]byte, start, end int64) (int64, error) {
	table := keep{last: map[string]*kgo.Record{}}
	if err := c.read(ctx, tp, start, end, table.add); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.HoldTimeout)
	defer cancel()
	release := c.broker.hold(tp.topic, id, tp.partition)
	defer release()
	now, err := c.quiet(ctx, tp)
	if err != nil {
		return 0, err
	}
	if err := c.read(ctx, tp, end, now, table.drop); err != nil {
		return 0, err
	}
	again := table.records(tp)
	if err := c.cl.ProduceSync(ctx, again...).FirstErr(); err != nil {
		// A request that is still on its way must not arrive after release.
		c.cl.Close()
		return 0, errors.Join(fmt.Errorf("writing %d records again: %w", len(again), err), c.connect())
	}
	size := int64(0)
	for _, r := range again {
		size += int64(len(r.Key) + len(r.Value))
	}
	return size, nil
}

// quiet waits until no transaction is open in the partition, and returns the end of its log.
func (c *Compactor) quiet(ctx context.Context, tp topicPartition) (int64, error) {
	for {
		stable, err := c.admin.ListCommittedOffsets(ctx, tp.topic)
		if err != nil && ctx.Err() == nil {
			return 0, fmt.Errorf("finding the last stable offset: %w", err)
		}
		ends, err := c.admin.ListEndOffsets(ctx, tp.topic)
		if err != nil && ctx.Err() == nil {
			return 0, fmt.Errorf("finding the end of the log: %w", err)
		}
		lso, listed := stable.Lookup(tp.topic, tp.partition)
		end, known := ends.Lookup(tp.topic, tp.partition)
		if listed && known && lso.Err == nil && end.Err == nil && lso.Offset == end.Offset {
			return end.Offset, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("its transaction did not end within %s", c.options.HoldTimeout)
		case <-time.After(time.Millisecond):
		}
	}
}

// read hands the committed records of [from, to) to each.
func (c *Compactor) read(ctx context.Context, tp topicPartition, from, to int64, each func(*kgo.Record)) error {
	if from >= to {
		return nil
	}
	return kafka.ReadLog(ctx, c.cl, tp.topic, tp.partition, from, func(chunk kafka.LogChunk) (bool, error) {
		for _, r := range chunk.Records {
			if r.Offset < to {
				each(r)
			}
		}
		return chunk.Next < to, nil
	})
}

func (c *Compactor) deleteBefore(ctx context.Context, tp topicPartition, offset int64) error {
	offsets := kadm.Offsets{}
	offsets.AddOffset(tp.topic, tp.partition, offset, -1)
	deleted, err := c.admin.DeleteRecords(ctx, offsets)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return fmt.Errorf("deleting what was written again: %w", err)
	}
	return nil
}

// keep is the table that the head of a log makes, without what its tail has newer.
type keep struct {
	last map[string]*kgo.Record // by key
	end  *kgo.Record            // of all that was read, the last one
}

func (k *keep) add(r *kgo.Record) {
	k.last[string(r.Key)], k.end = r, r
}

func (k *keep) drop(r *kgo.Record) {
	delete(k.last, string(r.Key))
	k.end = r
}

// records are those to be written again, in the order in which they were written.
func (k *keep) records(tp topicPartition) []*kgo.Record {
	if k.end != nil {
		k.last[string(k.end.Key)] = k.end
	}
	var again []*kgo.Record
	byOffset := func(a, b *kgo.Record) int { return cmp.Compare(a.Offset, b.Offset) }
	for _, r := range slices.SortedFunc(maps.Values(k.last), byOffset) {
		if r.Value == nil {
			continue // a tombstone, and nothing is before it
		}
		again = append(again, &kgo.Record{
			Topic: tp.topic, Partition: tp.partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp,
		})
	}
	return again
}
