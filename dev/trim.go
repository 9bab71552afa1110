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
	"kudos/stream"
)

// TrimmerOptions say what the embedded broker may forget.
type TrimmerOptions struct {
	// ReadBy names the topics to trim, and for each the consumer groups that must have
	// read a record before it may go.
	ReadBy map[string][]string `mapstructure:"-"`
	// Unread names topics that are trimmed whoever has read them, and for each how old a
	// record must be.
	Unread map[string]time.Duration `mapstructure:"-"`
	// KeepRecords of each partition of Unread stay, however old they are.
	KeepRecords int64 `mapstructure:"keep_records"`
	// Keep is how old a record of ReadBy must be, too: for readers that commit nothing.
	Keep time.Duration `mapstructure:"keep"`
	// Interval between two rounds.
	Interval time.Duration `mapstructure:"interval"`
}

// DefaultTrimmerOptions keep the memory of 2,000 events/s bounded for the topics that grow
// with time. The processor's state table is not trimmed: it grows with what it holds.
//
// The ranker's tables are written over and over, and a real broker would compact them. Here
// the ranker in this process has its copy of them; one in another process could not
// recover them whole, so that its rankings would lack what was trimmed.
func DefaultTrimmerOptions() TrimmerOptions {
	return TrimmerOptions{
		ReadBy: map[string][]string{
			schema.TopicLikes:         {schema.GroupFold},
			schema.TopicUpdates:       {schema.GroupApply, schema.GroupTrendingLocal},
			schema.TopicTrendingLocal: {schema.GroupTrending},
		},
		Unread: map[string]time.Duration{
			schema.TopicTrending:           10 * time.Minute,
			schema.TopicTrendingTable:      time.Minute,
			schema.TopicTrendingLocalTable: time.Minute,
		},
		// Some 60 rankings live in the 8 partitions. Those that do not change any more are
		// to be found for hours.
		KeepRecords: 1000,
		Keep:        10 * time.Minute,
		Interval:    30 * time.Second,
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
	for topic, keep := range o.Unread {
		if _, both := o.ReadBy[topic]; both {
			errs = append(errs, fmt.Errorf("topic %s is trimmed in two ways: only when it was read, and unread", topic))
		}
		if keep < 0 {
			errs = append(errs, fmt.Errorf("topic %s cannot be trimmed before it is written", topic))
		}
	}
	if o.Keep < 0 || o.KeepRecords < 0 || o.Interval <= 0 {
		errs = append(errs, errors.New("interval must be above 0, keep and keep_records not below"))
	}
	return errors.Join(errs...)
}

// Trimmer keeps the embedded broker from eating the machine: it deletes records that
// are old and that everybody has read who has to. Retention by time or size, as a real broker has
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
	limits, err := t.read(ctx, admin, now)
	if err != nil {
		return err
	}
	for topic, keep := range t.options.Unread {
		unread, err := t.unread(ctx, admin, topic, now.Add(-keep))
		if err != nil {
			return err
		}
		limits[topic] = unread
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

// read tells up to where the topics are old and read by their groups.
func (t *Trimmer) read(ctx context.Context, admin *kadm.Client, now time.Time) (kadm.Offsets, error) {
	old, err := admin.ListOffsetsAfterMilli(ctx, now.Add(-t.options.Keep).UnixMilli(), slices.Collect(maps.Keys(t.options.ReadBy))...)
	if err != nil {
		return nil, fmt.Errorf("finding offsets by time: %w", err)
	}
	limits := old.Offsets() // without those that failed, as of a topic that is not there yet
	for topic, groups := range t.options.ReadBy {
		for _, group := range groups {
			if err := lowerToCommitted(ctx, admin, limits[topic], group, topic); err != nil {
				return nil, err
			}
		}
	}
	return limits, nil
}

// unread tells up to where a topic is older than before, and has enough behind it.
func (t *Trimmer) unread(ctx context.Context, admin *kadm.Client, topic string, before time.Time) (map[int32]kadm.Offset, error) {
	old, err := admin.ListOffsetsAfterMilli(ctx, before.UnixMilli(), topic)
	if err != nil {
		return nil, fmt.Errorf("finding offsets by time: %w", err)
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("finding end offsets: %w", err)
	}
	limits := old.Offsets()[topic]
	for p, limit := range limits {
		end, known := ends.Lookup(topic, p)
		if !known || end.Err != nil {
			delete(limits, p)
			continue
		}
		limit.At = min(limit.At, end.Offset-t.options.KeepRecords)
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
