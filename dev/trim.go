package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"kudos/schema"
	"kudos/stream/kafka"
)

// TrimmerOptions say what the embedded broker may forget.
type TrimmerOptions struct {
	// Topics to trim. All others stay whole.
	Topics map[string]TrimRule `mapstructure:"-"`
	// Interval between two rounds.
	Interval time.Duration `mapstructure:"interval"`
}

// TrimRule says which records of a topic may go: those to which all of it applies.
type TrimRule struct {
	// ReadBy are the consumer groups that must have read a record.
	ReadBy []string
	// Keep is how old a record must be: for readers that commit nothing.
	Keep time.Duration
	// KeepRecords is how many of each partition stay, however old they are.
	KeepRecords int64
}

// DefaultTrimmerOptions keep the logs bounded that grow with time; Compactor does so with the
// tables. Each log keeps some records for good: a broker that was killed takes the end of
// a log from them, and would begin an empty one at 0.
func DefaultTrimmerOptions() TrimmerOptions {
	return TrimmerOptions{
		Topics: map[string]TrimRule{
			schema.TopicLikes: {ReadBy: []string{schema.GroupFold}, Keep: time.Minute, KeepRecords: 1000},
			schema.TopicUpdates: {
				ReadBy: []string{schema.GroupApply, schema.GroupTrendingLocal}, Keep: 5 * time.Minute, KeepRecords: 1000,
			},
			schema.TopicTrendingLocal: {ReadBy: []string{schema.GroupTrending}, Keep: time.Minute, KeepRecords: 100},
		},
		Interval: 10 * time.Second,
	}
}

// Validate says what is wrong with the options, all of it.
func (o TrimmerOptions) Validate() error {
	var errs []error
	for topic, rule := range o.Topics {
		if len(rule.ReadBy) == 0 && rule.KeepRecords == 0 {
			errs = append(errs, fmt.Errorf("topic %s would be trimmed unread: name the groups that read it, or how many records stay", topic))
		}
		if rule.Keep < 0 || rule.KeepRecords < 0 {
			errs = append(errs, fmt.Errorf("topic %s: what is kept cannot be below 0", topic))
		}
	}
	if o.Interval <= 0 {
		errs = append(errs, errors.New("interval must be above 0"))
	}
	return errors.Join(errs...)
}

// Trimmer keeps the embedded broker from eating the machine: it deletes records that
// are old and that everybody has read who has to. Retention by time or size, as a real broker has
// it, would also delete what a processor that was stopped (or a laptop that slept) has
// still to count.
type Trimmer struct {
	options TrimmerOptions
	kafka   kafka.Options
	log     *slog.Logger
}

// NewTrimmer makes a trimmer of the broker that kafka names.
func NewTrimmer(o TrimmerOptions, kafka kafka.Options, log *slog.Logger) *Trimmer {
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
	limits := kadm.Offsets{}
	for topic, rule := range t.options.Topics {
		of, err := rule.limits(ctx, admin, topic, now)
		if err != nil {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
		limits[topic] = of
	}
	start, err := admin.ListStartOffsets(ctx, slices.Collect(maps.Keys(limits))...)
	if err != nil {
		return fmt.Errorf("finding start offsets: %w", err)
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

// limits tells up to where the partitions of a topic may be trimmed.
func (r TrimRule) limits(ctx context.Context, admin *kadm.Client, topic string, now time.Time) (map[int32]kadm.Offset, error) {
	old, err := admin.ListOffsetsAfterMilli(ctx, now.Add(-r.Keep).UnixMilli(), topic)
	if err != nil {
		return nil, fmt.Errorf("finding offsets by time: %w", err)
	}
	limits := old.Offsets()[topic] // without those that failed, as of a topic that is not there yet
	for _, group := range r.ReadBy {
		if err := lowerToCommitted(ctx, admin, limits, group, topic); err != nil {
			return nil, err
		}
	}
	if r.KeepRecords == 0 {
		return limits, nil
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("finding end offsets: %w", err)
	}
	for p, limit := range limits {
		end, known := ends.Lookup(topic, p)
		if !known || end.Err != nil {
			delete(limits, p)
			continue
		}
		limit.At = min(limit.At, end.Offset-r.KeepRecords)
		limits[p] = limit
	}
	return limits, nil
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
