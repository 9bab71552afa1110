package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
)

func quick(o *ProcessorOptions) {
	o.SessionTimeout, o.heartbeatInterval = 10*time.Second, 200*time.Millisecond
}

func assigned(p *Processor) int { s, _ := p.Status(); return len(s) }

// Each record is processed once, in order, and no partition has two workers at a time (which the lab checks).
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const partitions, rounds, each = 4, 30, 20
	c.Topic(input, partitions)
	l, cl := newLab(t), c.Client()
	stop, produced := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(produced)
		for i := range rounds {
			for p := range int32(partitions) {
				err := cl.ProduceSync(testkit.Context(t), testkit.Records(input, p, i*each, each)...).FirstErr()
				assert.NoError(t, err)
			}
			select {
			case <-stop:
			case <-time.After(20 * time.Millisecond): // spreads the load over the rebalances
			}
		}
	}()
	first, stopFirst := c.run(l, quick)
	testkit.WaitFor(t, "the first member", func() bool { return assigned(first) == partitions })
	second, stopSecond := c.run(l, quick)
	testkit.WaitFor(t, "sharing", func() bool { return assigned(first) == 2 && assigned(second) == 2 })
	stopFirst()
	testkit.WaitFor(t, "the second member to own all partitions", func() bool { return assigned(second) == partitions })
	third, _ := c.run(l, quick)
	testkit.WaitFor(t, "the partitions to be shared again", func() bool { return assigned(third) == 2 })
	stopSecond()
	close(stop)
	<-produced
	for p := range int32(partitions) {
		l.waitProcessed(p, offsets(0, rounds*each))
	}
	third.waitReady(t)
}

// A member without partitions stays in the group, ready, and takes over when the other one leaves.
func TestGroupWithoutWorkForAMember(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 0)
	first, stopFirst := c.run(l, quick)
	testkit.WaitFor(t, "the first member", func() bool { return assigned(first) == 1 && first.Ready() == nil })
	second, _ := c.run(l, quick)
	testkit.WaitFor(t, "the second member", func() bool {
		return second.Ready() == nil && assigned(first)+assigned(second) == 1
	})
	c.Produce(testkit.Records(input, 0, 0, 5)...)
	l.waitProcessed(0, offsets(0, 5))
	stopFirst()
	testkit.WaitFor(t, "the takeover", func() bool { return assigned(second) == 1 })
	c.Produce(testkit.Records(input, 0, 5, 5)...)
	l.waitProcessed(0, offsets(0, 10))
}

func TestMetricsAreRemovedWithThePartition(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 0)
	shown := func(p *Processor) (partitions []int32) {
		all := testkit.Gauges(t, NewCollector(p))
		for _, partition := range []int32{0, 1} {
			series := 0
			for name := range all {
				if strings.Contains(name+" ", fmt.Sprintf(" group %d ", partition)) {
					series++
				}
			}
			if series >= 3 { // lag, position and state at least
				partitions = append(partitions, partition)
			} else if series > 0 {
				return nil // not complete yet
			}
		}
		return partitions
	}
	first, _ := c.run(l, quick)
	testkit.WaitFor(t, "the first member to own both", func() bool { return slices.Equal(shown(first), []int32{0, 1}) })
	second, stopSecond := c.run(l, quick)
	testkit.WaitFor(t, "one partition per member", func() bool {
		of := append(shown(first), shown(second)...)
		slices.Sort(of)
		return len(shown(first)) == 1 && slices.Equal(of, []int32{0, 1})
	})
	stopSecond()
	testkit.WaitFor(t, "the first member to own both again", func() bool {
		return slices.Equal(shown(first), []int32{0, 1}) && shown(second) == nil
	})
}

// A lost membership is regained at once, however often it was lost before.
func TestLostMembershipIsRegained(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 5)
	p, _ := c.run(l, quick)
	l.waitProcessed(0, offsets(0, 5))
	for i, e := range slices.Repeat([]*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration}, 4) {
		before := l.count(0, "Fence")
		lost := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: testGroup, Err: e})
		require.NoError(t, lost.Wait(t.Context(), 1))
		begin := time.Now()
		testkit.WaitFor(t, "a new assignment after "+e.Message, func() bool {
			return l.count(0, "Fence") > before && p.Ready() == nil
		})
		require.Less(t, time.Since(begin), 4*time.Second, "loss %d", i+1)
		c.Produce(testkit.Records(input, 0, 5+5*i, 5)...)
		l.waitProcessed(0, offsets(0, int64(10+5*i)))
	}
}

// A rebalance does not wait for a member that does not rejoin, for as long as its session lasts.
func TestRebalanceWithoutASilentMember(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 5)
	joined, silence := make(chan struct{}), make(chan struct{})
	none := func(context.Context, *kgo.Client, map[string][]int32) {}
	c.Client(kgo.ConsumerGroup(testGroup), kgo.ConsumeTopics(input), kgo.Balancers(&balancer{}),
		kgo.SessionTimeout(time.Minute), kgo.RebalanceTimeout(time.Second), kgo.OnPartitionsLost(none),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(joined) }),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) { <-silence }))
	t.Cleanup(func() { close(silence) })
	<-joined
	c.run(l, quick)
	l.waitProcessed(0, offsets(0, 5))
}

// At shutdown, an unavailable coordinator is not waited for longer than a batch in flight.
func TestShutdownWithoutACoordinator(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 5)
	c.kafka.RequestTimeout = time.Minute
	_, stop := c.run(l, func(o *ProcessorOptions) { o.ShutdownTimeout = time.Second })
	l.waitProcessed(0, offsets(0, 5))
	c.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { <-t.Context().Done() })
		return nil, nil, false
	})
	stop()
}

// Without an assignment, Ready returns the client's reason.
func TestForbiddenGroupSaysSo(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 0)
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: testGroup, Err: kerr.GroupAuthorizationFailed,
		Count: -1})
	p, _ := c.run(l, quick)
	p.waitNotReady(t, "GROUP_AUTHORIZATION_FAILED")
	require.ErrorContains(t, p.Ready(), "group group: waiting for the group to assign partitions")
	require.ErrorContains(t, p.Ready(), "docs/security.md", "the action")
	fault.Remove()
	p.waitReady(t)
}

// A rebalance does not wait for a long Open, and interrupting it is no failure.
func TestRebalanceInterruptsARecovery(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 0)
	var opens atomic.Int32
	l.open = func(ctx context.Context, _ *fakeWorker) error {
		if opens.Add(1) > 2 { // those of the first member never end
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	first, _ := c.run(l, quick)
	testkit.WaitFor(t, "the recovery", func() bool { return opens.Load() == 2 })
	require.ErrorContains(t, first.Ready(), "input/0 starting; input/1 starting")
	second, _ := c.run(l, quick)
	testkit.WaitFor(t, "sharing", func() bool {
		return assigned(first) == 1 && assigned(second) == 1 && second.Ready() == nil
	})
	c.Add(input, 0, 5)
	l.waitProcessed(second.statuses(t)[0].Partition, offsets(0, 5))
	require.EqualValues(t, 3, opens.Load(), "a recovery is not interrupted unless its partition moves")
}

func TestShutdownFinishesTheBatchInFlight(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 150)
	g := newGate()
	var inFlight [2]int // a batch is what its poll returned, and partitions share polls
	l.process = func(ctx context.Context, _ *fakeWorker, b *Batch) error {
		if len(b.Records) == 0 {
			return nil
		}
		inFlight[b.Partition] = len(b.Records)
		return g.pass(ctx, b.Partition)
	}
	_, stop := c.run(l, nil)
	g.wait(t)
	g.wait(t)
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	testkit.WaitFor(t, "the shutdown to begin", func() bool {
		return c.GroupInfo(testGroup) != nil && len(testkit.Goroutines(t, "kudos/stream.(*group).leave+")) > 0
	})
	close(g.open)
	<-stopped
	for p := range int32(2) {
		require.LessOrEqual(t, inFlight[p], 100)
		require.Equal(t, offsets(0, int64(inFlight[p])), l.processed(p), "the batch in flight and none after it")
		require.Equal(t, []string{"Fence", "Open", "Process", "Close"}, l.at(p).calls)
	}
	testkit.WaitFor(t, "all to leave the group", func() bool { return len(c.GroupInfo(testGroup).Members) == 0 })
}

func TestShutdownInterruptsALongBatch(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 5)
	g := newGate()
	var cut atomic.Pointer[error]
	l.process = func(ctx context.Context, _ *fakeWorker, b *Batch) error {
		err := g.pass(ctx, b.Partition)
		set(&cut, err)
		return err
	}
	_, stop := c.run(l, func(o *ProcessorOptions) { o.ShutdownTimeout = 200 * time.Millisecond })
	g.wait(t)
	began := time.Now()
	stop()
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
	require.Less(t, time.Since(began), testkit.Patience/2)
	require.ErrorIs(t, *cut.Load(), context.Canceled)
	require.Empty(t, l.processed(0))
	calls := l.at(0).calls
	require.Equal(t, 1, slices.Index(calls, "Open"))
	require.NotContains(t, calls[3:], "Fence")
}

// An unavailable broker is waited for, but not when the processor stops.
func TestStopWithoutClients(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.kafka.Brokers, c.kafka.RequestTimeout = []string{"127.0.0.1:1"}, time.Second
	p, stop := c.run(newLab(t), quick)
	testkit.WaitFor(t, "a failure", func() bool {
		err := p.Ready()
		return err != nil && !strings.Contains(err.Error(), "not started")
	})
	stop()
}

// A broker that was paused answers the check of the membership as the coordinator that it is no longer (seen in chaos).
func TestUnknownMemberAsksOnceMore(t *testing.T) {
	p, loop, l, _ := opened(t, 0)
	lost := fmt.Errorf("checking membership: %w: %w", kafka.ErrFenced, kerr.UnknownMemberID)
	l.fence = func(context.Context, *fakeWorker) error { return lost }
	p.fail(lost)
	require.Less(t, time.Until(p.retryAt), p.opts.SessionTimeout/2)
	p.retryAt = time.Now()
	require.True(t, p.Step(t.Context()), "it asks again")
	require.Greater(t, time.Until(p.retryAt), p.opts.SessionTimeout*2/3, "then it waits for a rebalance")
	require.Equal(t, 2, l.count(0, "Fence"))
	p.fail(lost)
	l.fence, p.retryAt = nil, time.Now()
	require.True(t, p.Step(t.Context()))
	require.Equal(t, StateRunning, p.Status().State)
	require.Zero(t, loop.rejoins.Load())
}
