package topics

import (
	"context"
	"fmt"
	"slices"

	"kudos/schema"
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
	extra := f.common.Regions.Extra()
	p, err := f.amend(ctx, func(p *schema.Progress) bool { return p.Regions.Everywhere() != f.common.Regions },
		func(p *schema.Progress, start int64) (err error) {
			p.Regions, err = p.Regions.With(p.NextOffset, extra, start)
			return err
		})
	if err != nil {
		return fmt.Errorf("writing the regions of partition %d: %w", f.partition, err)
	}
	if p != nil {
		report.add("partition %d: from offset %d of %s on, countries and [%s] count as themselves, other regions "+
			"under their country", f.partition, p.NextOffset, schema.TopicLikes, extra)
	}
	return nil
}
