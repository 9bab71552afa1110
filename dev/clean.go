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
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

// cleaner bounds the logs of the embedded broker: it trims event topics and compacts table topics.
type cleaner struct {
	broker *Broker
	log    *slog.Logger
	cl     *kgo.Client

	trims map[string]trimRule // by topic; other topics are not trimmed
	// tables are compacted, by topic. They are written in transactions only. Rewritten records also stay at their old
	// offset for this long, for readers that are behind.
	tables map[string]time.Duration
	// minBytes is the minimum size of a log to compact. It must also be four times what the last compaction rewrote.
	minBytes    int64
	holdTimeout time.Duration // how long a compaction may block a partition's writer

	compacted map[topicPartition]compaction // the last one
}

type topicPartition struct {
	topic     string
	id        [16]byte
	partition int32
}

// trimRule says which records of a topic are deleted: those that meet all conditions.
type trimRule struct {
	readBy []string      // consumer groups that must have read a record
	keep   time.Duration // minimum age, for readers that commit no offsets
	// keepRecords of each partition stay: a killed broker takes the end of a log from them; an empty log restarts at 0.
	keepRecords int64
}

const cleanInterval = 10 * time.Second

func newCleaner(b *Broker) (*cleaner, error) {
	c := &cleaner{
		broker: b, log: b.log,
		trims: map[string]trimRule{
			schema.TopicLikes:         {[]string{schema.GroupFold}, time.Minute, 1000},
			schema.TopicUpdates:       {[]string{schema.GroupApply, schema.GroupTrendingLocal}, 5 * time.Minute, 1000},
			schema.TopicTrendingLocal: {[]string{schema.GroupTrending}, time.Minute, 100},

			schema.TopicMilestonesLocal: {[]string{schema.GroupMilestones}, time.Minute, 100},
		},
		tables: map[string]time.Duration{
			// Readers further behind read the whole table again.
			schema.TopicState:              2 * time.Minute,
			schema.TopicCounts:             2 * time.Minute,
			schema.TopicTrendingTable:      2 * time.Minute,
			schema.TopicTrendingLocalTable: 2 * time.Minute,
			schema.TopicMilestonesTable:    2 * time.Minute,
			schema.TopicTrending:           10 * time.Minute,
		},
		minBytes: 1 << 20, holdTimeout: 2 * time.Second,
		compacted: map[topicPartition]compaction{},
	}
	return c, c.connect()
}

// connect opens the client. It never retries: a late duplicate could end up behind newer records of the writer.
func (c *cleaner) connect() (err error) {
	c.cl, err = c.broker.kafka().NewClient(c.log, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1), kgo.RecordRetries(0))
	return err
}

// run cleans at every interval until ctx ends. Failures are logged and retried at the next interval.
func (c *cleaner) run(ctx context.Context, interval time.Duration) {
	defer func() { c.cl.Close() }() // connect may have replaced it
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if err := c.trim(ctx, now); err != nil && ctx.Err() == nil {
				c.log.Info("old records of the embedded broker were not deleted; retrying", "error", err)
			}
			if err := c.compactTables(ctx); err != nil && ctx.Err() == nil {
				c.log.Info("a table of the embedded broker was not compacted; retrying", "error", err)
			}
		}
	}
}

// trim deletes records that are old and that all their readers have read. Retention by time or size, as in a real
// broker, would also delete what a stopped processor (or a laptop that slept) has still to count.
func (c *cleaner) trim(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, cleanInterval)
	defer cancel()
	var errs []error
	for topic, rule := range c.trims {
		young, err := kadm.NewClient(c.cl).ListOffsetsAfterMilli(ctx, now.Add(-rule.keep).UnixMilli(), topic)
		if err != nil {
			return fmt.Errorf("topic %s: finding offsets by time: %w", topic, err)
		}
		for partition, first := range young.Offsets()[topic] { // missing if the topic does not exist yet
			errs = append(errs, c.trimPartition(topic, partition, rule, first.At))
		}
	}
	return errors.Join(errs...)
}

// trimPartition trims one partition. Records at offset young and above are too young to delete.
func (c *cleaner) trimPartition(topic string, partition int32, rule trimRule, young int64) error {
	log := c.broker.cluster.PartitionInfo(topic, partition)
	if log == nil { // deleted meanwhile
		return nil
	}
	limit := min(young, log.HighWatermark-rule.keepRecords)
	for _, name := range rule.readBy {
		group := c.broker.cluster.GroupInfo(name)
		if group == nil { // it has never committed
			return nil
		}
		limit = min(limit, group.Commits[topic][partition].Offset)
	}
	if limit <= log.LogStartOffset {
		return nil
	}
	if err := c.broker.cluster.DeleteRecords(topic, partition, limit); err != nil {
		return fmt.Errorf("topic %s: deleting old records: %w", topic, err)
	}
	return nil
}

type compaction struct {
	rewritten int64     // bytes that were rewritten
	until     int64     // delete the records below this offset later; 0: nothing to delete
	at        time.Time // when until was set
}

// compactTables does the log cleaner's work for the tables. A real cleaner rewrites segments; this one is a client. It
// appends the last record of each key to the log, and later deletes the head:
//
//	before   a1 b1 a2 c1 b2 │ a3 …            │: where it began to read
//	then     a1 b1 a2 c1 b2 │ a3 … c1 b2      no transaction may begin meanwhile
//	after                     a3 … c1 b2      once the readers have passed │
//
// Readers build the same table from any position. The log still ends with the same record, because some readers detect
// the end of a transaction by it.
func (c *cleaner) compactTables(ctx context.Context) error {
	var errs []error
	for topic := range c.tables {
		info := c.broker.cluster.TopicInfo(topic)
		if info == nil { // not created yet
			continue
		}
		for _, p := range c.broker.cluster.PartitionInfos(topic) {
			if err := c.compactIfDue(ctx, topicPartition{topic, info.TopicID, p.Partition}); err != nil {
				errs = append(errs, fmt.Errorf("%s/%d: %w", topic, p.Partition, err))
			}
		}
	}
	return errors.Join(errs...)
}

// compactIfDue first deletes the records that the last compaction rewrote.
func (c *cleaner) compactIfDue(ctx context.Context, tp topicPartition) error {
	last := c.compacted[tp]
	if last.until > 0 {
		if time.Since(last.at) < c.tables[tp.topic] {
			return nil
		}
		if err := c.broker.cluster.DeleteRecords(tp.topic, tp.partition, last.until); err != nil {
			return fmt.Errorf("deleting rewritten records: %w", err)
		}
		last.until = 0
		c.compacted[tp] = last
	}
	log := c.broker.cluster.PartitionInfo(tp.topic, tp.partition)
	if log == nil || log.NumBytes < max(c.minBytes, 4*last.rewritten) {
		return nil
	}
	rewritten, err := c.compact(ctx, tp, log.LogStartOffset, log.LastStableOffset)
	if err == nil {
		c.compacted[tp] = compaction{rewritten, log.LastStableOffset, time.Now()}
	}
	return err
}

// compact appends the last record of each key in [start, end) that has no newer one, and returns their size.
func (c *cleaner) compact(ctx context.Context, tp topicPartition, start, end int64) (int64, error) {
	table := lastRecords{byKey: map[string]*kgo.Record{}}
	if err := c.read(ctx, tp, start, end, table.add); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.holdTimeout)
	defer cancel()
	release := c.broker.hold(tp)
	defer release()
	now, err := c.waitUntilStable(ctx, tp)
	if err != nil {
		return 0, err
	}
	if err := c.read(ctx, tp, end, now, table.remove); err != nil {
		return 0, err
	}
	again, size := table.records(tp)
	if err := c.cl.ProduceSync(ctx, again...).FirstErr(); err != nil {
		// A request still in flight must not arrive after release.
		c.cl.Close()
		return 0, errors.Join(fmt.Errorf("rewriting %d records: %w", len(again), err), c.connect())
	}
	return size, nil
}

// waitUntilStable waits until no transaction is open in a held partition, and returns the end of its log.
func (c *cleaner) waitUntilStable(ctx context.Context, tp topicPartition) (int64, error) {
	// A request that passed waitWhileHeld just before is handled before the next request.
	if err := c.cl.Ping(ctx); err != nil {
		return 0, err
	}
	for {
		log := c.broker.cluster.PartitionInfo(tp.topic, tp.partition)
		if log != nil && log.LastStableOffset == log.HighWatermark {
			return log.HighWatermark, nil
		}
		if !kafka.Sleep(ctx, time.Millisecond) {
			return 0, fmt.Errorf("its transaction did not end within %s", c.holdTimeout)
		}
	}
}

// read calls each with the committed records of [from, to).
func (c *cleaner) read(ctx context.Context, tp topicPartition, from, to int64, each func(*kgo.Record)) error {
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

// lastRecords is the table at the end of a log's head, without the keys that have newer records in the tail.
type lastRecords struct {
	byKey map[string]*kgo.Record
	end   *kgo.Record // the last record read
}

func (l *lastRecords) add(r *kgo.Record) { l.byKey[string(r.Key)], l.end = r, r }

func (l *lastRecords) remove(r *kgo.Record) {
	delete(l.byKey, string(r.Key))
	l.end = r
}

// records returns the records to append, in log order, and their size in bytes.
func (l *lastRecords) records(tp topicPartition) (again []*kgo.Record, size int64) {
	if l.end != nil {
		l.byKey[string(l.end.Key)] = l.end
	}
	byOffset := func(a, b *kgo.Record) int { return cmp.Compare(a.Offset, b.Offset) }
	for _, r := range slices.SortedFunc(maps.Values(l.byKey), byOffset) {
		if r.Value == nil {
			continue // a tombstone, with nothing before it to delete
		}
		size += int64(len(r.Key) + len(r.Value))
		again = append(again, &kgo.Record{Topic: tp.topic, Partition: tp.partition, Key: r.Key, Value: r.Value,
			Headers: r.Headers, Timestamp: r.Timestamp})
	}
	return again, size
}

// hold blocks new transactions in one partition.
type hold struct {
	topicPartition
	released chan struct{} // closed when transactions may begin again
}

// hold blocks transactions that would begin in the partition until release is called. Open ones can continue and end.
func (b *Broker) hold(tp topicPartition) (release func()) {
	h := &hold{tp, make(chan struct{})}
	b.held.Store(h)
	return func() {
		b.held.Store(nil)
		close(h.released)
	}
}

// waitWhileHeld is kfake's control function for produce requests. kfake handles no other request meanwhile, so the
// partition is still the same when the request is handled.
func (b *Broker) waitWhileHeld(request kmsg.Request) (kmsg.Response, error, bool) {
	produce := request.(*kmsg.ProduceRequest)
	for h := b.held.Load(); h != nil && produce.TransactionID != nil && h.isIn(produce); h = b.held.Load() {
		if p := b.cluster.PartitionInfo(h.topic, h.partition); p == nil || p.LastStableOffset < p.HighWatermark {
			break // closed, or part of an open transaction
		}
		b.cluster.SleepControl(func() { <-h.released }) // by then the partition may be held again
	}
	return nil, nil, false
}

func (tp topicPartition) isIn(produce *kmsg.ProduceRequest) bool {
	isIt := func(p kmsg.ProduceRequestTopicPartition) bool { return p.Partition == tp.partition }
	return slices.ContainsFunc(produce.Topics, func(t kmsg.ProduceRequestTopic) bool {
		return (t.Topic == tp.topic || t.TopicID == tp.id) && slices.ContainsFunc(t.Partitions, isIt)
	})
}
