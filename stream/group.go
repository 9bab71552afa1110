package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// group is a member of a consumer group. One client is the member and consumes nothing; the session's client fetches.
// So a rebalance, however long it takes, interrupts only the partitions that move. They move at once: their new owner
// fences them while the former one finishes, and neither waits for the other.
//
//	join ─► assigned ─► stop what is no longer assigned, start what is new
//	  ▲                   │
//	  └─── rebalance ◄────┘
type group struct {
	poller
	newWorker func(Assignment) Worker
	standby   *standby // nil: no standby replicas
	session   *session
	balancer  balancer
	current   atomic.Pointer[kafka.Member] // as of the last assignment; nil: none

	change    sync.Mutex // held while partitions are started and stopped
	member    *kgo.Client
	started   map[int32]*started // including those being closed
	endFollow func()             // ends followOthers
}

// fetchPartitionBytes bounds a fetch response per partition: decoded records take several times as much memory.
const fetchPartitionBytes = 1 << 20

// newFetchClient returns a client of a session. maxWait is how long a resumed partition waits for the fetch in flight.
func (o *ProcessorOptions) newFetchClient(log *slog.Logger, maxWait time.Duration, extra ...kgo.Opt,
) (*kgo.Client, error) {
	return o.Kafka.NewClient(log, append(extra,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),                    // they occupy offsets, up to the end of the log
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // lost data must be detected, not skipped
		kgo.FetchMaxWait(maxWait),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.FetchMaxBytes(2*fetchPartitionBytes))...)
}

// run joins the group and stays through all rebalances, until ctx ends or a failure of all partitions.
func (g *group) run(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, err := newSession(ctx, cl, g.opts)
	if err != nil {
		return err
	}
	g.session = s
	g.shown.Store(s)
	if err := g.join(); err != nil {
		return err
	}
	s.work.Go(s.watch)
	// The layout may depend on the partition count, so that partitions that stay must be opened again, too.
	s.work.Go(func() { s.watchTopic(g.opts.watchInterval, cancel) })
	go watchFailures(g.member, g.failed)
	var committing sync.WaitGroup
	committing.Go(g.commitPositions)
	g.poll(ctx, cancel, cl)
	cancel(nil)
	g.leave(&committing)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("group %s: %w", g.opts.Group, err)
	}
	return nil
}

func (g *group) join() (err error) {
	g.change.Lock()
	defer g.change.Unlock()
	none := func(context.Context, *kgo.Client, map[string][]int32) {}
	g.member, err = g.opts.Kafka.NewClient(g.log,
		kgo.ConsumerGroup(g.opts.Group),
		kgo.ConsumeTopics(g.opts.Input),
		kgo.Balancers(&g.balancer),
		kgo.SessionTimeout(g.opts.SessionTimeout),
		kgo.HeartbeatInterval(g.opts.heartbeatInterval),
		kgo.RebalanceTimeout(max(time.Second, g.opts.SessionTimeout/3)), // members rejoin at once, busy or not
		// The client counts each loss of membership, however long after the last, and waits for up to 5 s by default.
		kgo.RetryBackoffFn(func(int) time.Duration { return 250 * time.Millisecond }),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { g.assigned() }),
		kgo.OnPartitionsRevoked(none),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) { g.lost() }),
	)
	return err
}

// assigned is called after each rebalance.
func (g *group) assigned() {
	g.change.Lock()
	defer g.change.Unlock()
	s, before := g.session, g.session.partitions()
	if s.ctx.Err() != nil {
		return
	}
	g.endFollow()
	m := &kafka.Member{Group: g.opts.Group}
	m.ID, m.Generation = g.member.GroupMetadata()
	for n := range before {
		if !slices.Contains(g.balancer.assigned, n) {
			g.stop(n) // before the new generation is current
		}
	}
	g.current.Store(m)
	g.failed(nil)
	for _, n := range g.balancer.assigned {
		if before[n] == nil {
			g.start(n)
		}
	}
	g.wake() // to drop what was stopped
	g.log.Info("partitions assigned", "event", "partitions_assigned", "group", g.opts.Group,
		"generation", m.Generation, "partitions", g.balancer.assigned)
	if g.standby != nil {
		g.followOthers(maps.Clone(g.started))
	}
}

func (g *group) lost() {
	g.change.Lock()
	defer g.change.Unlock()
	g.endFollow()
	for n := range g.session.partitions() {
		g.stop(n)
	}
	g.current.Store(nil)
	g.wake()
}

// start starts a partition; it is called with change held.
func (g *group) start(n int32) {
	s := g.session
	ctx, cancel := context.WithCancel(s.ctx)
	a := Assignment{Topic: s.topic, Partition: n, Member: func() (kafka.Member, error) { return g.membership(ctx) }}
	p := newPartition(a, g.newWorker, g.opts, s.cl, g, g.log)
	g.started[n] = s.start(p, cancel, g.started[n], func() {
		again(ctx, func(ctx context.Context) error {
			if err := g.standby.release(ctx, n); err != nil {
				return err
			}
			return runGoka(ctx, g.opts, s.cl, g.log, p)
		}, func(err error, _ time.Duration) { p.fail(err) })
	})
}

func (g *group) stop(n int32) {
	g.session.set(n, nil)
	g.started[n].cancel()
}

// membership returns the current membership to a partition until ctx ends, when it is assigned to another process.
func (g *group) membership(ctx context.Context) (kafka.Member, error) {
	m := g.current.Load()
	if err := ctx.Err(); err != nil || m == nil {
		return kafka.Member{}, fmt.Errorf("%w: %w", kafka.ErrFenced, cmp.Or(err, context.Canceled))
	}
	return *m, nil
}

// followOthers starts the standby replicas once all owned partitions have been opened and all others are closed.
func (g *group) followOthers(all map[int32]*started) {
	ctx, cancel := context.WithCancel(g.session.ctx)
	owned, done := g.session.partitions(), make(chan struct{})
	g.endFollow = func() { cancel(); <-done }
	go func() {
		defer close(done)
		for n, p := range all {
			ready := p.ended
			if owned[n] != nil {
				ready = p.opened
			}
			select {
			case <-ready:
			case <-ctx.Done():
				return
			}
		}
		g.standby.follow(owned)
	}()
}

// leave ends all partitions and leaves the group. Others take over while the stores here are still being closed.
func (g *group) leave(committing *sync.WaitGroup) {
	g.change.Lock() // after an assignment in progress; later ones start nothing
	g.endFollow()
	g.change.Unlock()
	for _, p := range g.started {
		<-p.idle // bounded: the batch in flight has ShutdownTimeout
	}
	committing.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.ShutdownTimeout)
	defer cancel()
	_ = g.member.LeaveGroupContext(ctx) // otherwise, the session timeout ends the membership
	g.member.Close()
	g.session.work.Wait()
	g.session.consumeNothing()
	g.current.Store(nil)
}

// commitPositions commits the positions as the group's offsets, for dashboards and workers without a position.
func (g *group) commitPositions() {
	committed := map[int32]kafka.Position{}
	for ended := !g.opts.CommitPositions; !ended; {
		ended = !kafka.Sleep(g.session.ctx, time.Second) // one last time, so that a stopped group shows no lag
		moved := map[int32]kafka.Position{}
		for n, p := range g.session.partitions() {
			if at := p.settled(); at.Offset >= 0 && committed[n] != at {
				moved[n] = at
			}
		}
		if m := g.current.Load(); m != nil && len(moved) > 0 && g.commit(m, moved) == nil {
			maps.Copy(committed, moved)
		}
	}
}

func (g *group) commit(m *kafka.Member, positions map[int32]kafka.Position) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.session.ctx), 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = m.Group, m.ID, m.Generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = g.session.topic, g.session.log.TopicID
	for n, at := range positions {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = n, at.Offset, at.Epoch
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, g.member)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	return err
}

func (g *group) rejoin() {
	g.log.Warn("asking the group for a new assignment: a partition was fenced, and no rebalance followed",
		"group", g.opts.Group)
	g.balancer.requests.Add(1)
	g.member.ForceRebalance()
}

// startOver does nothing; it is for the partitions of followers.
func (g *group) startOver(error) {}
