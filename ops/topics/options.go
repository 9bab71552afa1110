package topics

import (
	"errors"
	"fmt"

	"kudos/schema"
)

// Options are how `kudos topics` sets topics up.
type Options struct {
	// Partitions of the topics. They decide where a post lives.
	Partitions int32 `mapstructure:"partitions"`
	// ReplicationFactor of every topic.
	ReplicationFactor int16 `mapstructure:"replication_factor"`
	// UserBuckets are the posts that outgrow a partition, each with the number of buckets that its users are
	// sharded into: <post>:<buckets>.
	UserBuckets []string `mapstructure:"user_buckets"`
}

// DefaultOptions are for three brokers or more.
func DefaultOptions() Options {
	return Options{Partitions: 8, ReplicationFactor: 3, UserBuckets: []string{}}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.Partitions < 1 {
		errs = append(errs, fmt.Errorf("partitions: %d is too few, at least 1", o.Partitions))
	}
	if o.ReplicationFactor < 1 {
		errs = append(errs, fmt.Errorf("replication_factor: %d is too few, at least 1", o.ReplicationFactor))
	}
	if _, err := schema.ParseUserBuckets(o.UserBuckets); err != nil {
		errs = append(errs, fmt.Errorf("user_buckets: %w", err))
	}
	return errors.Join(errs...)
}

// Layout is where reactions live. The options must be valid.
func (o Options) Layout() schema.Layout {
	buckets, err := schema.ParseUserBuckets(o.UserBuckets)
	layout, layoutErr := schema.NewLayout(o.Partitions, buckets)
	if err := errors.Join(err, layoutErr); err != nil {
		panic(err)
	}
	return layout
}
