// Package rebuild rebuilds derived data: like_count, like_hourly and applied_offset from the state table, while
// everything runs; like-updates from the state table, and the state table from likes, while the processors are stopped.
//
//	likes ──(--from-events)──► state table ──(--updates)──► like-updates
//	                                │
//	                                └──────► shadow tables ──RENAME──► MySQL
//
// Each step can be stopped at any point and run again: each MySQL database changes in one RENAME, and each partition in
// Kafka in one transaction, under the transactional id of its fold. A partition that is already rebuilt is left alone.
package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/audit"
	"kudos/ops/progress"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Depth is how far upstream the rebuild starts, or a repair that rebuilds nothing.
type Depth int

const (
	MySQL   Depth = iota // rebuilds MySQL from the state table
	Updates              // rebuilds like-updates first
	Events               // rebuilds the state table from likes, then like-updates and MySQL
	// Loss rebuilds nothing. Where the fold's next events are gone from likes, the fold continues with those left.
	Loss
	// Offsets rebuilds nothing. It commits the state table's offset again where only that of the fold's group is wrong.
	Offsets
)

// Options of a rebuild.
type Options struct {
	Depth   Depth
	Audit   audit.Options // how differences to the current data are found and shown
	DryRun  bool          // change nothing
	DropOld bool          // drop the replaced tables instead of keeping them under other names
	// UserBuckets and Regions are used if the state table, which normally has them, was lost.
	UserBuckets schema.UserBuckets
	Regions     schema.RegionRules
	// TransactionTimeout is how long Kafka keeps the single transaction of a partition open. It must not exceed the
	// broker's transaction.max.timeout.ms.
	TransactionTimeout time.Duration
}

// DefaultOptions rebuild MySQL. 15 minutes is the brokers' default maximum; at the measured rate it is enough for 100
// million posts in a partition.
func DefaultOptions() Options {
	o := Options{Audit: audit.DefaultOptions(), TransactionTimeout: 15 * time.Minute}
	o.Audit.Deep = true
	return o
}

// Validate reports every invalid option.
func (o Options) Validate() error {
	err := o.Audit.Validate()
	if !o.Audit.Deep {
		err = errors.Join(err, errors.New("a rebuild needs a deep comparison"))
	}
	if o.TransactionTimeout < time.Second {
		err = errors.Join(err, errors.New("transaction_timeout must be at least 1s"))
	}
	return err
}

// Person is the operator who runs the rebuild.
type Person interface {
	Say(line string) error               // prints what is planned, found or done, as one line
	Show(r *audit.Report) error          // shows how MySQL differs from what it will become
	Agree(question string) (bool, error) // asks for confirmation; false ends the rebuild without an error
}

// Result is the outcome of a rebuild.
type Result struct {
	Report *audit.Report `json:"report"` // how MySQL differed before
	// Updates and State are the numbers of records written to Kafka; partitions left alone are not included.
	Updates int64 `json:"updates"`
	State   int64 `json:"state"`
	// Posts and Hours are the rows in the new tables.
	Posts   int64   `json:"posts"`
	Hours   int64   `json:"hours"`
	Swapped bool    `json:"swapped"` // the new tables are in use
	Seconds float64 `json:"seconds"`
}

type rebuild struct {
	opts   Options
	kafka  kafka.Options
	mysql  sql.Options
	person Person
	log    *slog.Logger
	began  time.Time

	cl      *kgo.Client
	topics  kafka.Topics
	layout  schema.Layout
	regions schema.RegionRules // of a state table without progress record
	result  Result
}

// Run runs a rebuild. The options must be valid. It may be stopped by ctx at any point, and run again.
func Run(ctx context.Context, o Options, cluster kafka.Options, mysql sql.Options, person Person, log *slog.Logger,
) (*Result, error) {
	cl, err := cluster.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	b := &rebuild{opts: o, kafka: cluster, mysql: mysql, person: person, log: log, cl: cl, began: time.Now()}
	if err := b.lookUp(ctx); err != nil {
		return nil, err
	}
	return &b.result, b.run(ctx)
}

func (b *rebuild) run(ctx context.Context) (err error) {
	if b.opts.Depth != MySQL {
		// A processor that starts later fences the transaction in flight, so only the rebuild fails.
		if err := kafka.RefuseMembers(ctx, b.cl, "processors", schema.GroupFold, schema.GroupApply); err != nil {
			return err
		}
	}
	agreed := false
	switch b.opts.Depth {
	case Loss:
		return b.acceptLoss(ctx)
	case Offsets:
		return b.commitOffsets(ctx)
	case Updates, Events:
		if agreed, err = b.rebuildKafka(ctx); err != nil || !agreed {
			return err
		}
	}
	err = b.rebuildMySQL(ctx, agreed)
	b.result.Seconds = time.Since(b.began).Seconds()
	return err
}

// rebuildKafka rebuilds like-updates, and before it the state table if so configured.
func (b *rebuild) rebuildKafka(ctx context.Context) (agreed bool, err error) {
	jobs, err := b.plan(ctx)
	if err != nil {
		return false, err
	}
	for _, j := range jobs {
		if err := b.person.Say(j.String()); err != nil {
			return false, err
		}
	}
	if b.opts.DryRun {
		return false, b.person.Say("dry run: nothing was changed")
	}
	agreed, err = b.person.Agree("Write this to Kafka, and then rebuild MySQL to match?")
	if err != nil || !agreed {
		return false, err
	}
	for _, j := range jobs {
		if err := b.do(ctx, j); err != nil {
			return false, err
		}
	}
	return true, nil
}

// lookUp finds the topics, and the layout: that of the state table, or of the settings if no partition has one.
func (b *rebuild) lookUp(ctx context.Context) (err error) {
	b.topics, err = kafka.LookUpTopics(ctx, b.cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	if err != nil {
		return err
	}
	buckets, regions := b.opts.UserBuckets, b.opts.Regions
	for partition := range b.partitions() {
		last, err := table.LastProgress(ctx, b.cl, partition)
		if err != nil {
			return err
		}
		if last != nil {
			buckets, regions = last.UserBuckets, last.Regions.Everywhere()
			break
		}
	}
	b.regions = regions
	b.layout, err = schema.NewLayout(b.partitions(), buckets)
	return err
}

// partitions is the number of partitions of every topic.
func (b *rebuild) partitions() int32 { return b.topics.ByName[schema.TopicUpdates].Partitions }

func (b *rebuild) phase(what string, partition int32, unit string, total int64) *progress.Phase {
	return b.opts.Audit.Progress.Begin(fmt.Sprintf("%s of partition %d", what, partition), unit, total)
}

func (b *rebuild) say(format string, args ...any) error {
	return b.person.Say(fmt.Sprintf(format, args...))
}
