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

// exclusionsPartition is the one partition of trending-exclusions.
const exclusionsPartition = 0

// Exclude writes e for each of the posts, and returns those that Kafka has when it has
// all of them, or when it does not take more. Doing it again does no harm.
func Exclude(ctx context.Context, cluster kafka.Options, posts []uint64, e schema.Exclusion, log *slog.Logger) (done []uint64, err error) {
	value, err := schema.AppendExclusion(nil, e)
	if err != nil {
		return nil, err
	}
	cl, err := cluster.NewClient(log,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(cluster.RequestTimeout), // no wait without end for a broker that is gone
		kgo.AllowIdempotentProduceCancellation(),          // also if it took a batch and never answered
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
		records[i] = &kgo.Record{
			Topic: schema.TopicExclusions, Partition: exclusionsPartition,
			Key: schema.AppendPostKey(nil, post), Value: value,
		}
	}
	results := cl.ProduceSync(ctx, records...)
	taken := map[*kgo.Record]bool{} // results come in the order of the answers
	for _, r := range results {
		taken[r.Record] = r.Err == nil
	}
	for i, r := range records {
		if taken[r] {
			done = append(done, posts[i])
		}
	}
	if err := results.FirstErr(); err != nil {
		return done, fmt.Errorf("writing to %s: %d of %d posts are done (run it again; once more does no harm): %w", schema.TopicExclusions, len(done), len(posts), err)
	}
	return done, nil
}

// Excluded is a post that moderation has taken out of rankings.
type Excluded struct {
	PostID uint64    `json:"post_id,string"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"excluded_at"`
}

// Exclusions lists what is excluded now, by post. Records that are no exclusions are
// logged and left out.
func Exclusions(ctx context.Context, cluster kafka.Options, log *slog.Logger) ([]Excluded, error) {
	cl, err := cluster.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if _, err := lookUp(ctx, cl, cluster, schema.TopicExclusions); err != nil {
		return nil, err
	}
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicExclusions, exclusionsPartition)
	if err != nil || start >= end {
		return nil, err
	}
	excluded := map[uint64]Excluded{}
	err = kafka.ReadLog(ctx, cl, schema.TopicExclusions, exclusionsPartition, start, func(c kafka.LogChunk) (bool, error) {
		for _, rec := range c.Records {
			post, e, err := parseExclusion(rec)
			switch {
			case err != nil:
				log.Warn("a record of trending-exclusions is no exclusion", "offset", rec.Offset, "error", err)
			case e.Excluded:
				excluded[post] = Excluded{PostID: post, Reason: e.Reason, At: rec.Timestamp.UTC()}
			default:
				delete(excluded, post)
			}
		}
		return c.Next < end, nil
	})
	byPost := func(a, b Excluded) int { return cmp.Compare(a.PostID, b.PostID) }
	return slices.SortedFunc(maps.Values(excluded), byPost), err
}

// parseExclusion reads a record of trending-exclusions.
func parseExclusion(rec *kgo.Record) (post uint64, e schema.Exclusion, err error) {
	if post, err = schema.ParsePostKey(rec.Key); err != nil {
		return 0, e, err
	}
	e, err = schema.DecodeExclusion(rec.Value)
	return post, e, err
}

// lookUp asks for a topic. One that is not there is told with what makes it.
func lookUp(ctx context.Context, cl kmsg.Requestor, cluster kafka.Options, topic string) (kafka.TopicInfo, error) {
	topics, err := kafka.LookUpTopics(ctx, cl, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		err = fmt.Errorf(`topic %s does not exist on %v; create the topics with "kudos topics apply"`, topic, cluster.Brokers)
	}
	return topics.ByName[topic], err
}
