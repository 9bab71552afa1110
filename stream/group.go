package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// group is a member of a consumer group. It has one session per assignment.
//
//	assigned ─► begin ─► session … ─► end ◄─ revoked, lost
type group struct {
	poller
	newWorker func(Assignment) Worker
	standby   *standby // nil: no standby replicas
}

// fetchPartitionBytes bounds a fetch response per partition: decoded records take several times as much memory.
const fetchPartitionBytes = 1 << 20

// run joins the group and stays through all rebalances, until ctx ends or a failure that a new session would not fix.
func (g *group) run(ctx context.Context, d driver) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cl, err := g.opts.Kafka.NewClient(g.log,
		kgo.ConsumerGroup(g.opts.Group),
		kgo.ConsumeTopics(g.opts.Input),
		kgo.Balancers(kgo.StickyBalancer()), // eager; sticky keeps partitions where their local state is
		kgo.SessionTimeout(g.opts.SessionTimeout),
		kgo.HeartbeatInterval(g.opts.heartbeatInterval),
		kgo.MetadataMaxAge(10*time.Second),                          // bounds how long added partitions stay undetected
		kgo.RebalanceTimeout(g.opts.ShutdownTimeout+30*time.Second), // a revocation waits for the batch in flight
		kgo.BlockRebalanceOnPoll(),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Control records occupy offsets; without them the end of the log would never be reached.
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // lost data must be detected, not skipped
		kgo.FetchMaxWait(100*time.Millisecond),      // a resumed partition waits for the fetch in flight
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.FetchMaxBytes(2*fetchPartitionBytes),
		kgo.WithPools(&recordPool{}),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, assigned map[string][]int32) {
			g.begin(ctx, cancel, cl, assigned[g.opts.Input], d)
		}),
		kgo.AdjustFetchOffsetsFn(g.startPositions),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) { g.end(cancel) }),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) { g.end(cancel) }),
	)
	if err != nil {
		return err
	}
	g.poll(ctx, cancel, cl)
	cl.CloseAllowingRebalance() // leaves the group, which ends the session
	g.end(cancel)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("group %s: %w", g.opts.Group, err)
	}
	return nil
}

// begin starts a session. Its partitions open concurrently and stay paused until then.
func (g *group) begin(ctx context.Context, fail context.CancelCauseFunc, cl *kgo.Client, partitions []int32, d driver) {
	g.end(fail) // a safeguard: the client revokes first
	id, generation := cl.GroupMetadata()
	s := &session{cl: cl, opts: g.opts, topic: g.opts.Input, standby: g.standby, done: make(chan struct{}),
		member: kafka.Member{Group: g.opts.Group, ID: id, Generation: generation}}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	for _, p := range partitions {
		a := Assignment{Topic: s.topic, Partition: p, Member: s.member}
		s.set(p, newPartition(a, g.newWorker, g.opts, cl, g, g.log))
	}
	cl.PauseFetchPartitions(s.claims()) // until they are open
	g.show(s)
	g.log.Info("partitions assigned", "event", "partitions_assigned", "group", g.opts.Group,
		"generation", generation, "partitions", partitions)
	go func() {
		s.run(d)
		if s.err != nil {
			fail(s.err)
			g.wake()
		}
	}()
}

func (g *group) end(fail context.CancelCauseFunc) {
	s := g.show(nil)
	if s == nil {
		return
	}
	s.cancel(context.Canceled)
	<-s.done // bounded: the batch in flight has ShutdownTimeout
	if s.err != nil {
		fail(s.err)
	}
}

// startPositions returns the offsets to fetch from. A partition not open yet gets any: it is paused, and opening seeks.
// Leader epochs come with the first seek: if given here, the client would look them up and ignore seeks until then.
func (g *group) startPositions(
	context.Context, map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	s := g.present()
	if s == nil {
		return nil, errors.New("no session is active")
	}
	offsets := map[int32]kgo.Offset{}
	for n, p := range s.partitions() {
		offsets[n] = kgo.NewOffset().At(max(0, p.Status().Position.Offset))
	}
	return map[string]map[int32]kgo.Offset{s.topic: offsets}, nil
}

func (g *group) rejoin() {
	if s := g.present(); s != nil {
		g.log.Warn("asking the group for a new assignment: a partition was fenced, and no rebalance followed",
			"group", g.opts.Group)
		s.cl.ForceRebalance()
	}
}

// startOver does nothing; it is for followers. A group detects added partitions itself.
func (g *group) startOver(error) {}
