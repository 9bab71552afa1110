package repartition

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// plan is what there is to do.
type plan struct {
	// from is how many partitions there were.
	from int32
	// progress of each partition of the state table; nil: none yet.
	progress []*schema.Progress
	// layouts is the number of the layout that is to be.
	layouts uint32
}

// growing are the topics that get partitions, in this order: a running group meets the topic that it reads last, when
// all that it needs with it has as many. (goka refuses a table that has another number than its input.)
var growing = []string{
	schema.TopicTrendingLocalTable, schema.TopicState, schema.TopicDLT, schema.TopicUpdates, schema.TopicLikes,
}

// plan holds what is there against what has to be, and changes nothing.
func (r *Repartition) plan(ctx context.Context) (*plan, error) {
	if err := r.lookUp(ctx); err != nil {
		return nil, err
	}
	want := r.layout.Partitions
	for _, name := range growing {
		if n := r.topics.ByName[name].Partitions; n > want {
			return nil, fmt.Errorf("topic %s has %d partitions already, and Kafka takes none away: set topics.partitions to %d or more", name, n, n)
		}
	}
	p := &plan{progress: make([]*schema.Progress, r.topics.ByName[schema.TopicState].Partitions)}
	var mu sync.Mutex
	err := r.each(ctx, int32(len(p.progress)), func(ctx context.Context, partition int32) error {
		progress, err := table.LastProgress(ctx, r.cl, partition)
		mu.Lock()
		defer mu.Unlock()
		p.progress[partition] = progress
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, r.check(p)
}

func (r *Repartition) lookUp(ctx context.Context) (err error) {
	r.topics, err = kafka.LookUpTopics(ctx, r.cl, growing...)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("%w; run `kudos topics apply` first, with the number of partitions that there are", err)
	}
	return err
}

// check finds out what the layout is, and whether it can become the other one.
func (r *Repartition) check(p *plan) error {
	moving, standing := (*schema.Progress)(nil), (*schema.Progress)(nil)
	for partition, progress := range p.progress {
		if progress == nil {
			continue
		}
		if err := r.belongs(int32(partition), progress); err != nil {
			return err
		}
		of := &standing
		if progress.Moving {
			of = &moving
		}
		if *of == nil {
			*of = progress
		} else if !sameLayout(*of, progress) {
			return fmt.Errorf("the state table of partition %d was made for other partitions than others were: %d and %d; restore the topics that belong together", partition, progress.Partitions, (*of).Partitions)
		}
	}
	switch {
	case standing == nil && moving == nil:
		return errors.New("the state table has no progress records; run `kudos topics apply` first, with the number of partitions that there are")
	case moving != nil && !r.isTarget(moving):
		return fmt.Errorf("a repartition to topics.partitions=%d has not ended%s; finish that one first", moving.Partitions, buckets(moving.UserBuckets))
	case standing != nil && moving != nil && moving.Layouts != standing.Layouts+1 && !sameLayout(moving, standing):
		return errors.New("the partitions of the state table are of different layouts; restore the topics that belong together")
	case moving != nil:
		p.layouts, p.from = moving.Layouts, moving.Partitions
		if standing != nil {
			p.from = standing.Partitions
		}
		return nil
	}
	p.layouts, p.from = standing.Layouts+1, standing.Partitions
	for partition := range standing.Partitions {
		if int(partition) >= len(p.progress) || p.progress[partition] == nil {
			return fmt.Errorf("partition %d of the state table has no progress record: it was lost, or never begun; run `kudos topics apply`, which says what is the matter", partition)
		}
	}
	switch {
	case r.isTarget(standing):
		return fmt.Errorf("there is nothing to do: %d partitions is what there are%s; set topics.partitions to the number that is wanted", standing.Partitions, buckets(standing.UserBuckets))
	case standing.Partitions > r.layout.Partitions:
		return fmt.Errorf("there are %d partitions, and Kafka takes none away: topics.partitions is %d, it must be %d or more", standing.Partitions, r.layout.Partitions, standing.Partitions)
	}
	return nil
}

func buckets(u schema.UserBuckets) string {
	if u == "" {
		return ""
	}
	return fmt.Sprintf(" (user buckets %s)", u)
}

func (r *Repartition) isTarget(p *schema.Progress) bool {
	return p.Partitions == r.layout.Partitions && p.UserBuckets == r.layout.UserBuckets()
}

func sameLayout(a, b *schema.Progress) bool {
	return a.Partitions == b.Partitions && a.UserBuckets == b.UserBuckets && a.Layouts == b.Layouts
}

// belongs refuses a state table that is not of these topics.
func (r *Repartition) belongs(partition int32, p *schema.Progress) error {
	if p.ClusterID != r.topics.ClusterID || p.SourceID != r.topics.ByName[schema.TopicLikes].ID ||
		p.StateID != r.topics.ByName[schema.TopicState].ID || p.UpdatesID != r.topics.ByName[schema.TopicUpdates].ID {
		return fmt.Errorf("the state table of partition %d is of another cluster, or a topic was deleted and created again since; a processor says which, and what helps", partition)
	}
	return nil
}
