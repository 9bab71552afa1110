package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// View maintains a materialized view of all partitions of a table topic. It replaces goka's View, which follows no
// partition until all have recovered, stops all when one fails, and cannot be read at a definite position.
//
//	catching up ──► ready ──► following ──┐
//	     ▲                                │ on an error it is reopened; the view stays ready,
//	     └────────────────────────────────┘ unless the store is damaged or of another log
type View struct {
	*Follower
	opts    ViewOptions
	log     *slog.Logger
	maxHeld int // bounds the records that wait for the rest of their transaction

	partitions atomic.Pointer[[]*viewPartition] // nil: not known yet
}

// ViewOptions configures a View. All fields but Clients are required.
type ViewOptions struct {
	Kafka  kafka.Options
	Topic  string
	Stores *store.Set
	// Copy returns the role's part of a partition, which encodes its records into the store.
	Copy func(partition int32) Copy
	// Clients are for the requests of its workers; nil: those of Kafka.
	Clients kafka.Clients
}

// Copy is a role's part of one partition of a View. One goroutine calls it.
type Copy interface {
	// Open is called before anything is applied to the store, and again whenever the store may have changed otherwise:
	// it may be empty, or have everything applied before. Nobody reads it meanwhile.
	Open(s *store.Store) error
	// Whole returns how many of the next records may be applied; the rest belongs to an incomplete transaction.
	Whole(records []*kgo.Record) int
	// Apply adds the changes of records to w. It may read the store, which has none of them yet.
	Apply(s *store.Store, w *store.Write, records []*kgo.Record) error
	// Applied is called when they are written, while no reader pins the store.
	Applied()
	// Published is called when readers see the change. restarted: it was unreadable; anything may have changed.
	Published(restarted bool)
}

// NewView returns a view; Run starts it.
func NewView(opts ViewOptions, log *slog.Logger) *View {
	if opts.Clients == nil {
		opts.Clients = opts.Kafka
	}
	v := &View{opts: opts, log: log.With("topic", opts.Topic), maxHeld: viewMaxHeld}
	follow := ProcessorOptions{Group: "view of " + opts.Topic, Input: opts.Topic, Kafka: opts.Kafka,
		MaxBatch: viewBatch, TickInterval: viewTick, ParkInterval: viewTick, ShutdownTimeout: viewShutdown}
	v.Follower = NewFollower(follow, v.Worker, v.Show, log)
	return v
}

// Worker returns the worker of a partition. Run calls it and Show, or a caller does that drives the workers itself.
func (v *View) Worker(a Assignment) Worker { return newViewPartition(v, a) }

// Show makes the partitions of these workers readable, by partition; nil: none.
func (v *View) Show(workers []Worker) {
	if workers == nil {
		v.partitions.Store(nil)
		return
	}
	partitions := make([]*viewPartition, len(workers))
	for i, w := range workers {
		partitions[i], _ = w.(*viewPartition)
	}
	v.partitions.Store(&partitions)
}

// KeepNone makes the view one of no partition, until Keep. Call it before Run.
func (v *View) KeepNone() { v.followWanted(func(int32) bool { return false }) }

// Keep makes the view one of some partitions only. It ends the others, and deletes what is on disk of them.
func (v *View) Keep(ctx context.Context, wanted func(partition int32) bool) error {
	v.followWanted(wanted)
	var errs []error
	for _, n := range v.opts.Stores.OnDisk(v.opts.Topic) {
		if wanted(n) {
			continue
		}
		err := v.release(ctx, n)
		if err == nil {
			err = v.opts.Stores.Remove(v.opts.Topic, n)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Readable returns the partitions that can be read, in order.
func (v *View) Readable() (partitions []int32) {
	n, _ := v.Partitions()
	for p := range n {
		if v.Read(p, nil, nil) == nil {
			partitions = append(partitions, p)
		}
	}
	return partitions
}

// ViewNotReadyError means that a partition cannot be read now.
type ViewNotReadyError struct {
	Topic     string
	Partition int32 // -1: the partition count is not known
	Behind    int64 // how many offsets are still to be read; -1: not known
	// Reason is set if the partition is not just catching up; Action is what to do.
	Reason, Action string
	NotKept        bool // the view is not one of this partition
}

func (e *ViewNotReadyError) Error() string {
	text := e.Topic
	if e.Partition >= 0 {
		text += fmt.Sprintf("/%d", e.Partition)
	}
	switch {
	case e.Reason != "":
		text += ": " + e.Reason
	case e.Behind >= 0:
		text += fmt.Sprintf(": the view is %d records behind", e.Behind)
	default:
		text += ": the view is being opened"
	}
	return text + actionNote(e.Action)
}

const (
	viewBatch = 50_000
	// viewMaxHeld is four of the fold's largest transactions, some 100 MB. A larger one (of a rebuild) is applied as it
	// arrives, and the partition is not readable until it is complete.
	viewMaxHeld = 400_000
	// viewTick is how often an idle partition gets a tick and a failed one is retried.
	viewTick     = time.Second
	viewShutdown = 5 * time.Second
)

// IsNotKept reports whether an error says that a view is not one of a partition.
func IsNotKept(err error) bool {
	notReady, ok := errors.AsType[*ViewNotReadyError](err)
	return ok && notReady.NotKept
}

// Partitions returns the partition count, or a ViewNotReadyError.
func (v *View) Partitions() (int32, error) {
	if ps := v.partitions.Load(); ps != nil {
		return int32(len(*ps)), nil
	}
	return 0, v.closed()
}

func (v *View) closed() error {
	err := v.Err()
	return &ViewNotReadyError{Topic: v.opts.Topic, Partition: -1, Behind: -1, Reason: err.Error(),
		Action: actionOf(err)}
}

// Read calls pin while nothing is written, then use; the store stays open until both return. Either may be nil.
func (v *View) Read(partition int32, pin func(*store.Store, Copy) error, use func() error) error {
	ps := v.partitions.Load()
	if ps == nil {
		return v.closed()
	}
	if partition < 0 || int(partition) >= len(*ps) {
		return &ViewNotReadyError{Topic: v.opts.Topic, Partition: partition, Behind: -1,
			Reason: "the view does not include this partition: it does not exist, or was just added"}
	}
	p := (*ps)[partition]
	if p == nil {
		return &ViewNotReadyError{Topic: v.opts.Topic, Partition: partition, Behind: -1, NotKept: true,
			Reason: "this process does not keep this partition"}
	}
	return p.read(pin, use)
}

// Ready returns nil if all partitions of the view can be read.
func (v *View) Ready() error {
	n, err := v.Partitions()
	if err != nil {
		return err
	}
	var errs []error
	for p := range n {
		if err := v.Read(p, nil, nil); !IsNotKept(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
