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

// View keeps a local copy of all partitions of a table topic and follows them: goka's
// view on our own ports. (goka's own follows no partition until all have recovered,
// stops all when one fails, and cannot be asked for a definite position.)
//
//	catching up ──► ready ──► following ──┐
//	     ▲                                │ an error: it is opened again; the copy stays ready,
//	     └────────────────────────────────┘ unless it is not of this log, or damaged
type View struct {
	opts     ViewOptions
	log      *slog.Logger
	follower *Follower
	// maxHeld is how many records wait at most for the rest of their transaction.
	maxHeld int

	partitions atomic.Pointer[[]*viewPartition] // nil: not known yet
}

// ViewOptions say what is copied and how. All are needed.
type ViewOptions struct {
	Kafka  kafka.Options
	Topic  string
	Stores *store.Set
	// Copy makes what lays a partition's records out in its store.
	Copy func(partition int32) Copy
}

// Copy is a role's part of one partition of a View. One goroutine calls it.
type Copy interface {
	// Open is called with the store before anything is applied to it, and again whenever it may have changed otherwise:
	// it may be empty, or have all that was applied before. Nobody reads it then.
	Open(s *store.Store) error
	// Whole returns how many of the records, which follow those applied last, may be
	// applied: those behind belong to a transaction of which more is to come.
	Whole(records []*kgo.Record) int
	// Apply lays records out. It may read the store, which has none of them yet.
	Apply(s *store.Store, w *store.Write, records []*kgo.Record) error
	// Applied is called when they are written; nothing is pinned meanwhile.
	Applied()
	// Published is called when anybody can read what was applied last; anew: the
	// partition could not be read before, so anything may have changed.
	Published(anew bool)
}

// NewView makes a view; it starts nothing.
func NewView(opts ViewOptions, log *slog.Logger) *View {
	v := &View{opts: opts, log: log.With("topic", opts.Topic), maxHeld: viewMaxHeld}
	follow := ProcessorOptions{
		Group: "view of " + opts.Topic, Input: opts.Topic, Kafka: opts.Kafka, MaxBatch: viewBatch,
		TickInterval: viewTick, ParkInterval: viewTick, ShutdownTimeout: viewShutdown,
	}
	v.follower = NewFollower(follow, func(a Assignment) Worker { return newViewPartition(v, a) }, v.begun, v.log)
	return v
}

// begun has the partitions be read, or none.
func (v *View) begun(workers []Worker) {
	if workers == nil {
		v.partitions.Store(nil)
		return
	}
	partitions := make([]*viewPartition, len(workers))
	for i, w := range workers {
		partitions[i] = w.(*viewPartition)
	}
	v.partitions.Store(&partitions)
}

// ViewNotReadyError says that a partition cannot be answered from now.
type ViewNotReadyError struct {
	Topic     string
	Partition int32 // -1: not even the number of partitions is known
	// Behind is how many offsets are still to be read; -1: not known.
	Behind int64
	// Reason is why, if it is not just that the copy is being made; Remedy what helps.
	Reason, Remedy string
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
		text += fmt.Sprintf(": the local copy is %d records behind", e.Behind)
	default:
		text += ": the local copy is being opened"
	}
	return text + remedyNote(e.Remedy)
}

const (
	viewBatch = 50_000
	// viewMaxHeld is four of the fold's largest transactions, some 100 MB. A larger one (of
	// a rebuild) is applied as it comes, and the copy is not ready until it is whole.
	viewMaxHeld = 400_000
	// viewTick is how often a partition where nothing comes is looked after, and one that failed.
	viewTick     = time.Second
	viewShutdown = 5 * time.Second
)

// Run follows the topic until ctx ends. Over Kafka's troubles it does not end.
func (v *View) Run(ctx context.Context) error { return v.follower.Run(ctx) }

// Status tells how each partition is doing. The error says why there are none.
func (v *View) Status() ([]PartitionStatus, error) { return v.follower.Status() }

// Partitions returns how many there are, or a ViewNotReadyError.
func (v *View) Partitions() (int32, error) {
	if ps := v.partitions.Load(); ps != nil {
		return int32(len(*ps)), nil
	}
	err := v.follower.Err()
	return 0, &ViewNotReadyError{Topic: v.opts.Topic, Partition: -1, Behind: -1, Reason: err.Error(),
		Remedy: remedyOf(err)}
}

// Read reads a partition: pin is called while nothing is written, use after it; the
// store stays open until both are done. Either may be nil.
func (v *View) Read(partition int32, pin func(*store.Store, Copy) error, use func() error) error {
	ps := v.partitions.Load()
	if ps == nil {
		_, err := v.Partitions()
		return err
	}
	if partition < 0 || int(partition) >= len(*ps) {
		return &ViewNotReadyError{Topic: v.opts.Topic, Partition: partition, Behind: -1,
			Reason: "there is no copy of this partition yet: it does not exist, or was added"}
	}
	return (*ps)[partition].read(pin, use)
}

// Ready is nil when all partitions can be read.
func (v *View) Ready() error {
	n, err := v.Partitions()
	if err != nil {
		return err
	}
	var errs []error
	for p := range n {
		errs = append(errs, v.Read(p, nil, nil))
	}
	return errors.Join(errs...)
}
