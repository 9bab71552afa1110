package topics

import (
	"context"
	"fmt"
	"slices"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// This file keeps the regions of each partition (schema.RegionRules) as topics.regions says.

// unbounded adds the warning that a state table of an earlier version keeps whatever regions events name.
func (r *Report) unbounded() {
	const warning = "every region that an event names counts as itself, even an invented one; once all processors " +
		"and readers have this version, run: kudos topics apply --fix-regions"
	if !slices.Contains(r.Warnings, warning) {
		r.Warnings = append(r.Warnings, warning)
	}
}

// checkRegions reports other regions than those of the settings.
func checkRegions(partition int32, p *schema.Progress, want schema.RegionRules, report *Report) {
	switch {
	case p == nil:
	case p.Regions == "":
		report.unbounded()
	case p.Regions.Everywhere() != want:
		report.add("partition %d counts other regions than topics.regions as themselves: [%s]; run: kudos topics apply",
			partition, p.Regions.Extra())
	}
}

// setRegions makes the regions of the settings count from the partition's next event on.
func (f *firstProgress) setRegions(ctx context.Context, report *Report) error {
	if f.common.Regions == "" {
		report.unbounded()
		return nil
	}
	return kafka.RetryTakenOver(ctx, func() error { return f.setRegionsOnce(ctx, report) })
}

// otherRegions returns the partition's progress if it has other regions; nil: there is nothing to do.
func (f *firstProgress) otherRegions(ctx context.Context) (*schema.Progress, error) {
	p, err := table.LastProgress(ctx, f.cl, f.partition)
	if err != nil || p == nil || p.StateID != f.topics.ByName[schema.TopicState].ID ||
		p.Regions.Everywhere() == f.common.Regions {
		return nil, err
	}
	return p, nil
}

// setRegionsOnce fences the partition's processor, which reads the progress record again.
func (f *firstProgress) setRegionsOnce(ctx context.Context, report *Report) error {
	// Check before and after fencing: don't fence a running processor without need.
	if p, err := f.otherRegions(ctx); err != nil || p == nil {
		return err
	}
	cl, err := f.fence(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	p, err := f.otherRegions(ctx)
	if err != nil || p == nil {
		return err
	}
	complete, err := table.HasAllCounts(ctx, f.cl, f.partition, p)
	if err != nil {
		return err
	}
	start, _, err := kafka.Bounds(ctx, cl, schema.TopicLikes, f.partition)
	if err != nil {
		return err
	}
	extra := f.common.Regions.Extra()
	if p.Regions, err = p.Regions.With(p.NextOffset, extra, start); err != nil {
		return err
	}
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	if err = f.produce(ctx, cl, p, complete); err == nil {
		err = kafka.CommitTransaction(ctx, cl, schema.TopicState, f.partition)
	}
	if err != nil {
		return fmt.Errorf("writing the regions of partition %d: %w", f.partition, err)
	}
	report.add("partition %d: from offset %d of %s on, countries and [%s] count as themselves, other regions under "+
		"their country", f.partition, p.NextOffset, schema.TopicLikes, extra)
	return nil
}
