package stream

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// Drive works one partition step by step: the caller takes the place of goka and of the
// poll loop, and decides when what happens. All of it in one goroutine, in the order of
// a session:
//
//	Fence ─► (recovery) ─► Open ─► Steer, Deliver, Work … ─► Close
type Drive struct{ claim *claim }

// NewDrive makes a partition's claim and its worker. cl is for what the group's own
// client is asked; rejoin is called where the group is to be asked for a new assignment.
func NewDrive(a Assignment, newWorker func(Assignment) Worker, opts *ProcessorOptions, cl kmsg.Requestor, rejoin func(), log *slog.Logger) *Drive {
	verify := func(ctx context.Context, pos kafka.Position) error {
		return checkTruncation(ctx, cl, a.Topic, a.Partition, pos)
	}
	return &Drive{newClaim(a, newWorker(a), opts, log, driverLoop{rejoin}, verify)}
}

// Fence takes the partition over.
func (d *Drive) Fence(ctx context.Context) { d.claim.fence(ctx) }

// Open opens the partition, unless Fence has failed: Work then tries again.
func (d *Drive) Open(ctx context.Context) {
	if d.claim.status().State == StateStarting {
		d.claim.open(ctx, false)
	}
}

// Steer tells whether the partition is to be fetched, and where to go on with it if
// that has changed.
func (d *Drive) Steer() (fetch bool, moved *kafka.Position) {
	paused, _, seek := d.claim.flow(time.Now(), pendingBatches*d.claim.opts.MaxBatch)
	if seek != nil {
		d.claim.sought(*seek)
		moved = &kafka.Position{Offset: seek.Offset, Epoch: seek.Epoch}
	}
	return !paused, moved
}

// Deliver hands over what was fetched.
func (d *Drive) Deliver(p *kgo.FetchPartition) { d.claim.push(p) }

// Work works off a batch, a tick or a look at a parked partition, and tells whether
// there was one to work off.
func (d *Drive) Work(ctx context.Context) bool {
	if d.claim.next(time.Now()) == nil {
		return false
	}
	d.claim.process(ctx)
	d.claim.done()
	return true
}

// Status tells how the partition is doing.
func (d *Drive) Status() PartitionStatus { return d.claim.status() }

// Close ends the partition's work.
func (d *Drive) Close() { d.claim.worker.Close() }

// driverLoop is a poll loop that comes round by itself.
type driverLoop struct{ ask func() }

func (driverLoop) wake()      {}
func (driverLoop) roomAgain() {}
func (l driverLoop) rejoin()  { l.ask() }
