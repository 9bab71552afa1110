package stream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
)

// older adds a member as versions without our balancer are. With an instance id, it does not leave when it is closed.
func (c *cluster) older(opts ...kgo.Opt) (cl *kgo.Client, owned func() int) {
	var assigned atomic.Int32
	set := func(n int32) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, m map[string][]int32) { assigned.Store(n * int32(len(m[input]))) }
	}
	cl = c.Client(append(opts, kgo.ConsumerGroup(testGroup), kgo.ConsumeTopics(input),
		kgo.Balancers(kgo.StickyBalancer()), kgo.HeartbeatInterval(50*time.Millisecond), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(set(1)), kgo.OnPartitionsRevoked(set(0)))...)
	return cl, func() int { return int(assigned.Load()) }
}

// Partitions that stay work on, without being opened again, also while Kafka waits for a dead member.
func TestStayingPartitionsAreNotInterrupted(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 4, 1)
	p, _ := c.run(l, quick)
	testkit.WaitFor(t, "all partitions", func() bool { return assigned(p) == 4 && p.Ready() == nil })
	before := p.session().partitions()
	older, owned := c.older(kgo.InstanceID("older"), kgo.SessionTimeout(4*time.Second))
	testkit.WaitFor(t, "sharing", func() bool { return assigned(p) == 2 && owned() == 2 })
	stay := p.session().partitions()
	for n, was := range before {
		m, err := was.assignment.Member()
		if stay[n] == nil {
			require.ErrorIs(t, err, kafka.ErrFenced, "it is assigned to another process")
			continue
		}
		require.Same(t, was, stay[n])
		require.NoError(t, err)
		require.Equal(t, c.GroupInfo(testGroup).Epoch, m.Generation, "the current one")
	}
	older.Close() // it dies
	p.group().rejoin()
	rebalances := func() bool { return c.GroupInfo(testGroup).State == "PreparingRebalance" }
	testkit.WaitFor(t, "a rebalance", rebalances)
	c.Add(input, 1, 5)
	for n := range stay {
		l.waitProcessed(n, offsets(0, 6))
	}
	require.True(t, rebalances(), "it waits for the dead member")
	testkit.WaitFor(t, "all partitions", func() bool { return assigned(p) == 4 })
	for n := range int32(4) {
		l.waitProcessed(n, offsets(0, 6))
		fences := 2
		if stay[n] != nil {
			fences = 1
		}
		require.Equal(t, fences, l.count(n, "Fence"))
	}
}

// An older version may lead the group during an upgrade.
func TestOlderVersionLeads(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 4, 5)
	older, owned := c.older()
	testkit.WaitFor(t, "the older member to lead", func() bool { return owned() == 4 })
	p, _ := c.run(l, quick)
	testkit.WaitFor(t, "sharing", func() bool { return assigned(p) == 2 && owned() == 2 })
	for n := range p.session().partitions() {
		l.waitProcessed(n, offsets(0, 5))
	}
	generation := func() int32 { return c.GroupInfo(testGroup).Epoch }
	before := generation()
	p.group().rejoin() // which is nothing to Kafka unless the leader does, or metadata changed
	testkit.WaitFor(t, "a rebalance", func() bool { return generation() > before && owned() == 2 })
	older.Close()
	testkit.WaitFor(t, "all partitions", func() bool { return assigned(p) == 4 })
	for n := range int32(4) {
		l.waitProcessed(n, offsets(0, 5))
	}
}

// A partition is not fetched before it has opened, neither in the first session nor in a later one.
func TestFetchesStartAfterOpen(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 5)
	begun := make(chan bool, 10)
	ready := make(chan struct{})
	var p *Processor
	l.fence = func(_ context.Context, w *fakeWorker) error {
		<-ready
		begun <- slices.Contains(p.session().cl.PauseFetchPartitions(nil)[input], w.a.Partition)
		return nil
	}
	p, _ = c.run(l, quick)
	close(ready)
	for n := range int32(2) {
		l.waitProcessed(n, offsets(0, 5))
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: testGroup, Err: kerr.UnknownMemberID})
	for range 4 { // two sessions of two
		require.True(t, <-begun, "paused until it is opened")
	}
	c.Add(input, 5, 5)
	for n := range int32(2) {
		l.waitProcessed(n, offsets(0, 10))
	}
}

// failingHandler is goka with a partition whose ConsumeClaim fails.
type failingHandler struct {
	sarama.ConsumerGroupHandler
	err error
}

func (failingHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (failingHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h failingHandler) ConsumeClaim(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error {
	return h.err
}

// Regression: a ConsumeClaim error ended the process with an index out of range: all goroutines shared one index.
func TestRegressConsumeClaimError(t *testing.T) {
	p, _, _, _ := opened(t, 5)
	errBroken := errors.New("broken")
	require.ErrorIs(t, gokaGroup{p: p}.Consume(testkit.Context(t), nil, failingHandler{err: errBroken}), errBroken)
	err := gokaGroup{p: p}.Consume(testkit.Context(t), nil, failingHandler{})
	require.ErrorContains(t, err, "it stopped the partition")
}
