package ranker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

const exclusionsPartition = 0 // there is no other

// exclusions are the excluded posts as read from trending-exclusions, a small topic: every worker reads all of it.
type exclusions struct {
	posts map[uint64]Excluded
	next  int64 // next offset to read
	read  time.Time
}

// Excluded is a post that moderation has excluded from rankings.
type Excluded struct {
	PostID uint64    `json:"post_id,string"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"excluded_at"`
}

func newExclusions() *exclusions { return &exclusions{posts: map[uint64]Excluded{}} }

func (e *exclusions) has(post uint64) bool {
	_, excluded := e.posts[post]
	return excluded
}

// poll reads new records at most once per interval, and calls changed for every post newly excluded or included.
func (e *exclusions) poll(
	ctx context.Context, cl kmsg.Requestor, now time.Time, log *slog.Logger, changed func(post uint64, excluded bool),
) error {
	const interval = time.Second
	if now.Sub(e.read) < interval {
		return nil
	}
	if err := e.readOn(ctx, cl, log, changed); err != nil {
		return fmt.Errorf("reading %s: %w", schema.TopicExclusions, err)
	}
	e.read = now
	return nil
}

// readOn reads the records after the last call, the first time from the start of the topic, which need not be offset 0.
func (e *exclusions) readOn(
	ctx context.Context, cl kmsg.Requestor, log *slog.Logger, changed func(post uint64, excluded bool),
) (err error) {
	if e.read.IsZero() {
		if e.next, _, err = kafka.Bounds(ctx, cl, schema.TopicExclusions, exclusionsPartition); err != nil {
			return err
		}
	}
	each := func(c kafka.LogChunk) (bool, error) {
		for _, rec := range c.Records {
			post, err := schema.ParsePostKey(rec.Key)
			var x schema.Exclusion
			if err == nil {
				x, err = schema.DecodeExclusion(rec.Value)
			}
			if err != nil {
				log.Warn("skipped an exclusion that cannot be decoded",
					"topic", schema.TopicExclusions, "offset", rec.Offset, "error", err)
				continue
			}
			before := e.has(post)
			if x.Excluded {
				e.posts[post] = Excluded{PostID: post, Reason: x.Reason, At: rec.Timestamp.UTC()}
			} else {
				delete(e.posts, post)
			}
			if x.Excluded != before {
				changed(post, x.Excluded)
			}
		}
		e.next = c.Next
		return c.Next < c.End, nil
	}
	return kafka.ReadLog(ctx, cl, schema.TopicExclusions, exclusionsPartition, e.next, each)
}

// Exclusions lists the currently excluded posts by id. It logs and skips invalid records.
func Exclusions(ctx context.Context, cluster kafka.Options, log *slog.Logger) ([]Excluded, error) {
	cl, err := cluster.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if _, err := lookUp(ctx, cl, cluster, schema.TopicExclusions); err != nil {
		return nil, err
	}
	e := newExclusions()
	err = e.readOn(ctx, cl, log, func(uint64, bool) {})
	byPost := func(a, b Excluded) int { return cmp.Compare(a.PostID, b.PostID) }
	return slices.SortedFunc(maps.Values(e.posts), byPost), err
}

// Exclude writes x for each post, and returns those that Kafka has acknowledged. Writing them again does no harm.
func Exclude(ctx context.Context, cluster kafka.Options, posts []uint64, x schema.Exclusion, log *slog.Logger,
) (done []uint64, err error) {
	value := schema.AppendExclusion(nil, x)
	cl, err := cluster.NewClient(log,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(cluster.RequestTimeout), // don't wait forever for a broker that is gone,
		kgo.AllowIdempotentProduceCancellation(),          // even if it accepted a batch and never answered
	)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if _, err := lookUp(ctx, cl, cluster, schema.TopicExclusions); err != nil {
		return nil, err
	}
	records := make([]*kgo.Record, len(posts))
	for i, post := range posts {
		records[i] = &kgo.Record{Topic: schema.TopicExclusions, Partition: exclusionsPartition,
			Key: schema.AppendPostKey(nil, post), Value: value}
	}
	results := cl.ProduceSync(ctx, records...)
	for _, r := range results { // those of one partition are in its order
		if r.Err == nil {
			done = append(done, posts[slices.Index(records, r.Record)])
		}
	}
	if err := results.FirstErr(); err != nil {
		return done, fmt.Errorf("writing to %s: %d of %d posts are done (run it again; repeating is harmless): %w",
			schema.TopicExclusions, len(done), len(posts), err)
	}
	return done, nil
}

// lookUp looks up a topic. If it does not exist, the error names the command that creates it.
func lookUp(ctx context.Context, cl kmsg.Requestor, cluster kafka.Options, topic string) (kafka.TopicInfo, error) {
	topics, err := kafka.LookUpTopics(ctx, cl, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		err = fmt.Errorf("topic %s does not exist on %v; run `kudos topics apply`", topic, cluster.Brokers)
	}
	return topics.ByName[topic], err
}
