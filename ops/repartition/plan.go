package repartition

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// growing are the topics that get partitions, in this order: the input of each running group comes after the topics
// that are co-partitioned with it. goka rejects a table whose number of partitions differs from its input's.
var growing = []string{schema.TopicTrendingLocalTable, schema.TopicState, schema.TopicCounts, schema.TopicDLT,
	schema.TopicUpdates, schema.TopicLikes}

// plan compares the current state with the new layout, and changes nothing.
func (r *repartition) plan(ctx context.Context) error {
	if err := r.lookUp(ctx); err != nil {
		return err
	}
	want := r.layout.Partitions
	for _, name := range growing {
		if n := r.topics.ByName[name].Partitions; n > want {
			return fmt.Errorf("topic %s already has %d partitions, and Kafka cannot remove any: "+
				"set topics.partitions to %d or more", name, n, n)
		}
	}
	r.progress = make([]*schema.Progress, r.topics.ByName[schema.TopicState].Partitions)
	err := r.each(ctx, int32(len(r.progress)), func(ctx context.Context, partition int32) (err error) {
		r.progress[partition], err = table.LastProgress(ctx, r.cl, partition)
		return err
	})
	if err != nil {
		return err
	}
	return r.check()
}

// errDone means that the layout is the new one already. That is no failure: an earlier run may have ended with an error
// after it was complete.
var errDone = errors.New("nothing to do")

const applyFirst = "run `kudos topics apply` first, with the current number of partitions"

func (r *repartition) lookUp(ctx context.Context) (err error) {
	r.topics, err = kafka.LookUpTopics(ctx, r.cl, growing...)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("%w; "+applyFirst, err)
	}
	return err
}

// check finds the current layout, and checks whether it can become the new one.
func (r *repartition) check() error {
	migrating, standing := (*schema.Progress)(nil), (*schema.Progress)(nil)
	for partition, progress := range r.progress {
		if progress == nil {
			continue
		}
		if err := r.belongs(int32(partition), progress); err != nil {
			return err
		}
		of := &standing
		if progress.Migrating {
			of = &migrating
		}
		if *of == nil {
			*of = progress
		} else if !sameLayout(*of, progress) {
			return fmt.Errorf("the state table of partition %d has a different layout than others: %d and %d "+
				"partitions; restore the topics that belong together", partition, progress.Partitions, (*of).Partitions)
		}
	}
	switch {
	case standing == nil && migrating == nil:
		return errors.New("the state table has no progress records; " + applyFirst)
	case migrating != nil && !r.isTarget(migrating):
		return fmt.Errorf("a repartition to topics.partitions=%d has not ended%s; finish that one first",
			migrating.Partitions, buckets(migrating.UserBuckets))
	case standing != nil && migrating != nil &&
		migrating.Layouts != standing.Layouts+1 && !sameLayout(migrating, standing):
		return errors.New("the partitions of the state table have different layouts; " +
			"restore the topics that belong together")
	case migrating != nil:
		r.layouts, r.result.From = migrating.Layouts, migrating.Partitions
		if standing != nil {
			r.result.From = standing.Partitions
		}
		return nil
	}
	r.layouts, r.result.From = standing.Layouts+1, standing.Partitions
	for partition := range standing.Partitions {
		if int(partition) >= len(r.progress) || r.progress[partition] == nil {
			return fmt.Errorf("partition %d of the state table has no progress record: it was lost or never written; "+
				"run `kudos topics apply`, which reports what is wrong", partition)
		}
	}
	switch {
	case r.isTarget(standing):
		return errDone
	case standing.Partitions > r.layout.Partitions:
		return fmt.Errorf("there are %d partitions, and Kafka cannot remove any: topics.partitions is %d, "+
			"but must be %d or more", standing.Partitions, r.layout.Partitions, standing.Partitions)
	}
	return nil
}

func buckets(u schema.UserBuckets) string {
	if u == "" {
		return ""
	}
	return fmt.Sprintf(" (user buckets %s)", u)
}

func (r *repartition) isTarget(p *schema.Progress) bool {
	return p.Partitions == r.layout.Partitions && p.UserBuckets == r.layout.UserBuckets()
}

func sameLayout(a, b *schema.Progress) bool {
	return a.Partitions == b.Partitions && a.UserBuckets == b.UserBuckets && a.Layouts == b.Layouts
}

// belongs rejects a state table that does not belong to the current topics.
func (r *repartition) belongs(partition int32, p *schema.Progress) error {
	if p.ClusterID != r.topics.ClusterID || p.SourceID != r.topics.ByName[schema.TopicLikes].ID ||
		p.StateID != r.topics.ByName[schema.TopicState].ID || p.UpdatesID != r.topics.ByName[schema.TopicUpdates].ID {
		return fmt.Errorf("the state table of partition %d belongs to another cluster, "+
			"or a topic was deleted and recreated since; a processor's log says which, and what to do", partition)
	}
	return nil
}
