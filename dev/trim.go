package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"kudos/schema"
	"kudos/stream"
)

// TrimmerOptions say what the embedded broker may forget.
type TrimmerOptions struct {
	// ReadBy names the topics to trim, and for each the consumer groups that must have
	// read a record before it may go.
	ReadBy map[string][]string `mapstructure:"-"`
	// Keep is how old a record must be, too: for readers that commit nothing.
	Keep time.Duration `mapstructure:"keep"`
	// Interval between two rounds.
	Interval time.Duration `mapstructure:"interval"`
}

// DefaultTrimmerOptions keep the memory of 2,000 events/s below 100 MB for the topics
// that grow with time. The state table is not trimmed: it grows with what it holds.
func DefaultTrimmerOptions() TrimmerOptions {
	return TrimmerOptions{
		ReadBy: map[string][]string{
			schema.TopicLikes:   {schema.GroupFold},
			schema.TopicUpdates: {schema.GroupApply},
		},
		Keep:     10 * time.Minute,
		Interval: 30 * time.Second,
	}
}

// Validate says what is wrong with the options, all of it.
func (o TrimmerOptions) Validate() error {
	var errs []error
	for topic, groups := range o.ReadBy {
		if len(groups) == 0 {
			errs = append(errs, fmt.Errorf("topic %s would be trimmed unread: name the groups that read it", topic))
		}
	}
	if o.Keep < 0 || o.Interval <= 0 {
		errs = append(errs, errors.New("interval must be above 0, and keep not below"))
	}
	return errors.Join(errs...)
}

// Trimmer keeps the embedded broker from eating the machine: it deletes records that
// are old and that everybody has read. Retention by time or size, as a real broker has
// it, would also delete what a processor that was stopped (or a laptop that slept) has
// still to count.
type Trimmer struct {
	options TrimmerOptions
	kafka   stream.KafkaOptions
	log     *slog.Logger
}

// NewTrimmer makes a trimmer of the broker that kafka names.
func NewTrimmer(o TrimmerOptions, kafka stream.KafkaOptions, log *slog.Logger) *Trimmer {
	return &Trimmer{options: o, kafka: kafka, log: log}
}

// Run trims at every interval until ctx ends. A round that fails is logged, and the
// next one makes up for it.
func (t *Trimmer) Run(ctx context.Context) error {
	if err := t.options.Validate(); err != nil {
		return fmt.Errorf("trimmer: %w", err)
	}
	cl, err := t.kafka.NewClient(t.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	ticker := time.NewTicker(t.options.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if err := t.trim(ctx, admin, now); err != nil && ctx.Err() == nil {
				t.log.Info("old records of the embedded broker were not deleted; trying again", "error", err)
			}
		}
	}
}

// trim is one round.
func (t *Trimmer) trim(ctx context.Context, admin *kadm.Client, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, t.options.Interval)
	defer cancel()
	var topics []string
	for topic := range t.options.ReadBy {
		topics = append(topics, topic)
	}
	old, err := admin.ListOffsetsAfterMilli(ctx, now.Add(-t.options.Keep).UnixMilli(), topics...)
	if err != nil {
		return fmt.Errorf("finding offsets by time: %w", err)
	}
	start, err := admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("finding start offsets: %w", err)
	}
	limits := old.Offsets() // without those that failed, as of a topic that is not there yet
	for topic, groups := range t.options.ReadBy {
		for _, group := range groups {
			if err := lowerToCommitted(ctx, admin, limits[topic], group, topic); err != nil {
				return err
			}
		}
	}
	limits.KeepFunc(func(o kadm.Offset) bool {
		first, known := start.Lookup(o.Topic, o.Partition)
		return known && first.Err == nil && first.Offset < o.At
	})
	deleted, err := admin.DeleteRecords(ctx, limits)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return fmt.Errorf("deleting old records: %w", err)
	}
	return nil
}

// lowerToCommitted lowers the limits of a topic's partitions to what the group has
// committed, and takes those out where it has committed nothing.
func lowerToCommitted(ctx context.Context, admin *kadm.Client, limits map[int32]kadm.Offset, group, topic string) error {
	committed, err := admin.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) { // it has never committed anything
		clear(limits)
		return nil
	}
	if err != nil {
		return fmt.Errorf("fetching the offsets of group %s: %w", group, err)
	}
	for p, limit := range limits {
		c, known := committed.Lookup(topic, p)
		if !known || c.Err != nil || c.At < 0 {
			delete(limits, p)
			continue
		}
		limit.At = min(limit.At, c.At)
		limits[p] = limit
	}
	return nil
}
