package topics

import (
	"errors"
	"fmt"

	"kudos/schema"
)

// Options are the setup of the topics for `kudos topics`.
type Options struct {
	Partitions        int32 `mapstructure:"partitions"`         // of the topics; the number determines a post's owner
	ReplicationFactor int16 `mapstructure:"replication_factor"` // of all topics
	// UserBuckets are the posts that outgrow a partition, each with the number of buckets that its users are sharded
	// into: <post>:<buckets>.
	UserBuckets []string `mapstructure:"user_buckets"`
	// Regions count as themselves besides the countries of ISO 3166-1: others count under their country, or as ZZ.
	Regions []string `mapstructure:"regions"`
	// FixRegions makes Apply bound the regions of a state table of an earlier version, where all count as themselves.
	FixRegions bool `mapstructure:"-"`
	// KeepRegions makes Apply leave the regions of an existing state table alone.
	KeepRegions bool `mapstructure:"-"`
}

// DefaultOptions suit clusters with at least three brokers.
func DefaultOptions() Options {
	return Options{Partitions: 8, ReplicationFactor: 3, UserBuckets: []string{}, Regions: []string{}}
}

// Validate reports every invalid option.
func (o Options) Validate() error {
	var errs []error
	if o.Partitions < 1 {
		errs = append(errs, fmt.Errorf("partitions: %d is too few; must be at least 1", o.Partitions))
	}
	if o.ReplicationFactor < 1 {
		errs = append(errs, fmt.Errorf("replication_factor: %d is too low; must be at least 1", o.ReplicationFactor))
	}
	if _, err := schema.ParseUserBuckets(o.UserBuckets); err != nil {
		errs = append(errs, fmt.Errorf("user_buckets: %w", err))
	}
	if _, err := schema.ParseExtraRegions(o.Regions); err != nil {
		errs = append(errs, fmt.Errorf("regions: %w", err))
	}
	return errors.Join(errs...)
}

// RegionRules are those of a new state table.
func (o Options) RegionRules() schema.RegionRules {
	extra, err := schema.ParseExtraRegions(o.Regions)
	if err != nil {
		panic(err)
	}
	return schema.FixedRegions(extra)
}

// Layout is the partition layout of the options, which must be valid, as for RegionRules.
func (o Options) Layout() schema.Layout {
	buckets, err := schema.ParseUserBuckets(o.UserBuckets)
	layout, layoutErr := schema.NewLayout(o.Partitions, buckets)
	if err := errors.Join(err, layoutErr); err != nil {
		panic(err)
	}
	return layout
}
