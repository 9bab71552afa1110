package ranker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"kudos/schema"
	"kudos/stream/kafka"
)

// Reset deletes the ranker's internal topics and groups, so that after `kudos topics apply` the next ranker starts over
// from what like-updates holds. Published rankings and exclusions remain. It fails while a ranker is running.
func Reset(ctx context.Context, cluster kafka.Options, log *slog.Logger) error {
	cl, err := cluster.NewClient(log)
	if err != nil {
		return err
	}
	defer cl.Close()
	groups := []string{schema.GroupTrendingLocal, schema.GroupTrending}
	if err := kafka.RefuseMembers(ctx, cl, "rankers", groups...); err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	topics := []string{schema.TopicTrendingLocal, schema.TopicTrendingLocalTable, schema.TopicTrendingTable}
	deleted, err := adm.DeleteTopics(ctx, topics...)
	if err != nil {
		return fmt.Errorf("deleting the ranker's topics: %w", err)
	}
	for _, d := range deleted.Sorted() {
		if d.Err != nil && !errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("deleting topic %s: %w", d.Topic, d.Err)
		}
	}
	// If their offsets remained, the new tables would look rewound.
	forgotten, err := adm.DeleteGroups(ctx, groups...)
	if err != nil {
		return fmt.Errorf("deleting the ranker's groups: %w", err)
	}
	for _, g := range forgotten.Sorted() {
		if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			return fmt.Errorf("deleting group %s: %w", g.Group, g.Err)
		}
	}
	for _, topic := range topics {
		if err := waitGone(ctx, adm, topic); err != nil {
			return err
		}
	}
	return nil
}

// waitGone waits until no broker knows the topic anymore: until then it cannot be created again.
func waitGone(ctx context.Context, adm *kadm.Client, topic string) error {
	for {
		topics, err := adm.ListTopics(ctx, topic)
		if err == nil && errors.Is(topics[topic].Err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for topic %s to be deleted: %w", topic, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
