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
}

// DefaultOptions suit clusters with at least three brokers.
func DefaultOptions() Options {
	return Options{Partitions: 8, ReplicationFactor: 3, UserBuckets: []string{}}
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
	return errors.Join(errs...)
}

// Layout is the partition layout of the options, which must be valid.
func (o Options) Layout() schema.Layout {
	buckets, err := schema.ParseUserBuckets(o.UserBuckets)
	layout, layoutErr := schema.NewLayout(o.Partitions, buckets)
	if err := errors.Join(err, layoutErr); err != nil {
		panic(err)
	}
	return layout
}
