// Package void takes all reactions of given users out of the counts, or back in, through the log.
//
//	VOID user ──► likes, each partition: from there on, what the user does does not count
//	state table ──► reactions of the users ──► RECOUNT ──► likes: nor what the user did
//
// What the users did is kept, so it can be undone. Counts, hours and rankings follow as after any event. A run can be
// stopped at any point and run again: an event that changes nothing does no harm.
package void

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/follow"
	"kudos/ops/progress"
	"kudos/ops/topics"
	"kudos/processor/fold"
	"kudos/processor/fold/table"
	"kudos/producer/bulk"
	"kudos/schema"
	"kudos/stream/kafka"
)

// MaxUsers bounds the users of one run: the processors keep those that are voided in memory, for each partition.
const MaxUsers = 1_000_000

// Options of one run.
type Options struct {
	Users   []uint64      // distinct
	Void    bool          // false: their reactions count again
	Layout  schema.Layout // of likes
	Timeout time.Duration // how long the processors may fold nothing of what was sent
	// Begin shows the progress of a step with total units of work, or 0 if unknown.
	Begin func(what, unit string, total int64) *progress.Phase
}

// DefaultOptions lack Users and Void.
func DefaultOptions() Options {
	return Options{Timeout: 5 * time.Minute, Begin: progress.Printer{}.Begin}
}

// Validate reports invalid options.
func (o Options) Validate() error {
	switch {
	case o.Timeout <= 0:
		return errors.New("timeout must be above zero")
	case len(o.Users) > MaxUsers:
		return fmt.Errorf("%d users are too many for one run; the limit is %d", len(o.Users), MaxUsers)
	}
	return nil
}

// Report is the outcome of a run.
type Report struct {
	Void       bool    `json:"void"`
	Users      int     `json:"users"`
	Partitions int32   `json:"partitions"`
	Recounts   int64   `json:"recounts"` // events sent for reactions that existed
	Complete   bool    `json:"complete"` // all has been folded
	Seconds    float64 `json:"seconds"`
}

type run struct {
	opts  Options
	kafka kafka.Options
	log   *slog.Logger
	users map[uint64]int // position in opts.Users

	cl     *kgo.Client
	topics kafka.Topics
	parts  []*follow.Partition
	sender *bulk.Sender

	known []*known // by partition

	mu   sync.Mutex      // guards what follows
	want map[int32]int64 // by partition: the end of what was sent
	sent int64
}

// known is what was read last of a partition.
type known struct {
	void  []bool                    // by user
	wrong map[fold.PairKey]struct{} // reactions that are not as asked
}

const maxRounds = 3 // bounds how often a run begins again because partitions were added meanwhile

// Run voids the users. The options must be valid. The report is accurate even on an error.
func Run(ctx context.Context, o Options, kafka kafka.Options, log *slog.Logger) (r *Report, err error) {
	began := time.Now()
	r = &Report{Void: o.Void, Users: len(o.Users)}
	defer func() { r.Seconds = time.Since(began).Seconds() }()
	v := &run{opts: o, kafka: kafka, log: log.With("component", "void"), users: make(map[uint64]int, len(o.Users))}
	for i, user := range o.Users {
		v.users[user] = i
	}
	if v.cl, err = kafka.NewClient(v.log); err != nil {
		return r, err
	}
	defer v.cl.Close()
	for range maxRounds {
		var moved bool
		moved, err = v.once(ctx)
		r.Recounts, r.Partitions = v.sent, int32(len(v.parts))
		if err != nil || !moved {
			r.Complete = err == nil
			return r, err
		}
	}
	return r, fmt.Errorf("partitions were added %d times meanwhile; run this again", maxRounds)
}

// once is a run over the partitions as they are; moved means that reactions have moved to other partitions since.
func (v *run) once(ctx context.Context) (moved bool, err error) {
	if v.topics, err = follow.LookUp(ctx, v.cl, v.kafka); err != nil {
		return false, err
	}
	before, err := v.layout(ctx)
	if err != nil {
		return false, err
	}
	if err := v.check(&follow.Partition{Progress: *before}); err != nil {
		return false, err
	}
	if before.Migrating {
		return false, errors.New("reactions are moving to other partitions; " +
			"run this again once `kudos topics repartition` has ended")
	}
	v.parts, v.known, v.want = nil, nil, map[int32]int64{}
	for p := range v.topics.ByName[schema.TopicLikes].Partitions {
		k := &known{make([]bool, len(v.opts.Users)), map[fold.PairKey]struct{}{}}
		v.known = append(v.known, k)
		v.parts = append(v.parts, &follow.Partition{Number: p, Keep: func(key, value []byte) error {
			return v.keep(k, key, value)
		}})
	}
	if err := v.allow(ctx); err != nil {
		return false, err
	}
	if v.sender, err = bulk.Connect(ctx, v.kafka, v.opts.Layout, v.log); err != nil {
		return false, err
	}
	defer v.sender.Close()
	for _, step := range []func(context.Context) error{v.announce, v.recount, v.await} {
		if err := step(ctx); err != nil {
			return false, err
		}
	}
	after, err := v.layout(ctx)
	if err != nil {
		return false, err
	}
	if after.Layouts != before.Layouts {
		return true, nil
	}
	for _, k := range v.known {
		if len(k.wrong) > 0 || slices.Contains(k.void, !v.opts.Void) {
			return false, errors.New("not all are as asked: another run has changed the same users; run this again")
		}
	}
	return false, nil
}

// layout returns a progress record. All partitions have a new layout before anything moves.
func (v *run) layout(ctx context.Context) (*schema.Progress, error) {
	p, err := table.LastProgress(ctx, v.cl, 0)
	if err == nil && p == nil {
		err = fmt.Errorf(`%s has no progress record; run "kudos topics apply"`, schema.TopicState)
	}
	return p, err
}

func (v *run) check(p *follow.Partition) error {
	return p.Check(v.topics.ByName[schema.TopicLikes].ID, v.opts.Layout.UserBuckets())
}

// allow prepares partitions of an earlier version.
func (v *run) allow(ctx context.Context) error {
	phase := v.opts.Begin("preparing", "partitions", int64(len(v.parts)))
	defer phase.End()
	for _, p := range v.parts {
		if err := topics.AllowVoids(ctx, v.kafka, v.cl, v.topics, p.Number, v.log); err != nil {
			return err
		}
		phase.Add(1)
	}
	return nil
}

// announce tells each partition.
func (v *run) announce(ctx context.Context) error {
	phase := v.opts.Begin("sending users to all partitions", "events", int64(len(v.parts)*len(v.opts.Users)))
	defer phase.End()
	action := schema.Unvoid
	if v.opts.Void {
		action = schema.Void
	}
	for _, user := range v.opts.Users {
		for _, p := range v.parts {
			if ctx.Err() != nil || v.sender.Failure() != nil {
				return v.flush(ctx)
			}
			e := schema.Event{UserID: user, Action: action, Region: schema.UnknownRegion}
			v.sender.SendTo(p.Number, &e, v.answer(phase))
		}
	}
	return v.flush(ctx)
}

func (v *run) answer(phase *progress.Phase) bulk.Answer {
	return func(rec *kgo.Record, err error) error {
		if err != nil {
			return fmt.Errorf("not acknowledged by Kafka: %w", err)
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.want[rec.Partition] = max(v.want[rec.Partition], rec.Offset+1)
		phase.Add(1)
		return nil
	}
}

func (v *run) flush(ctx context.Context) error {
	if err := v.sender.Flush(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped before all was sent; run this again: %w", context.Cause(ctx))
	}
	return nil
}

// recount sends a RECOUNT for each reaction that is not as asked. It reads the state table until that covers what
// announce has sent: all that is written after that is right.
func (v *run) recount(ctx context.Context) error {
	if err := follow.Scan(ctx, v.cl, v.parts, v.opts.Begin, v.check); err != nil {
		return err
	}
	if err := v.wait(ctx, "waiting until the processors know the users"); err != nil {
		return err
	}
	for _, k := range v.known {
		if err := v.send(k.wrong); err != nil {
			return err
		}
	}
	return v.flush(ctx)
}

// mostWrong bounds the memory of a partition. Beyond it, a RECOUNT may be sent for a reaction that is right by now.
const mostWrong = 1 << 18

// keep notes whether a user and a reaction are as asked. The log may have older states of them before.
func (v *run) keep(known *known, key, value []byte) (err error) {
	if user, ok := schema.ParseVoidKey(key); ok {
		if i, asked := v.users[user]; asked {
			known.void[i] = false
			if value != nil {
				known.void[i], err = schema.DecodeVoid(value)
			}
		}
		return err
	}
	post, user, ok := schema.ParsePairKey(key)
	if _, asked := v.users[user]; !ok || !asked {
		return nil
	}
	var pair schema.Pair
	if value != nil {
		if err := schema.DecodePair(value, &pair); err != nil {
			return err
		}
	}
	k := fold.PairKey{PostID: post, UserID: user}
	if pair.Reaction == schema.NoReaction || pair.Void == v.opts.Void {
		delete(known.wrong, k)
		return nil
	}
	if len(known.wrong) == mostWrong {
		if err := v.send(known.wrong); err != nil {
			return err
		}
	}
	known.wrong[k] = struct{}{}
	return nil
}

func (v *run) send(wrong map[fold.PairKey]struct{}) error {
	phase := &progress.Phase{}
	for k := range wrong {
		e := schema.Event{PostID: k.PostID, UserID: k.UserID, Action: schema.Recount, Region: schema.UnknownRegion}
		v.sender.Send(&e, v.answer(phase))
	}
	v.mu.Lock()
	v.sent += int64(len(wrong))
	v.mu.Unlock()
	clear(wrong)
	return v.sender.Failure()
}

// await waits until all has been folded.
func (v *run) await(ctx context.Context) error {
	return v.wait(ctx, "waiting for the processors")
}

func (v *run) wait(ctx context.Context, what string) error {
	var total int64
	v.mu.Lock()
	for _, p := range v.parts {
		p.Want = v.want[p.Number] // more is sent while it waits
		total += max(0, p.Want-p.Progress.NextOffset)
	}
	v.mu.Unlock()
	phase := v.opts.Begin(what, "events", total)
	defer phase.End()
	return follow.Await(ctx, v.cl, v.parts, v.opts.Timeout, phase)
}
