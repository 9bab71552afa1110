package stream

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kudos/dev/testkit"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRebalanceWaitsForThePollLoop: between a poll and the end of what is done about it the
// session stays, so that the client is never told of partitions that are another's.
func TestRebalanceWaitsForThePollLoop(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 2)
	c.Produce(append(testkit.Records(input, 0, 0, 1), testkit.Records(input, 1, 0, 1)...)...)
	l := newLab(t)
	first, _ := c.run(l, quick)
	l.waitProcessed(0, offsets(0, 1))
	l.waitProcessed(1, offsets(0, 1)) // it has begun to consume: from now on only the poll loop steers
	s := first.session()
	letGo := holdPollLoop(t, first)
	second, _ := c.run(l, quick)
	testkit.WaitFor(t, "the rebalance", func() bool { return s.ctx.Err() != nil || rebalanceWaits(t) })
	require.NoError(t, s.ctx.Err(), "the session ends while the poll loop works with it")
	letGo()
	testkit.WaitFor(t, "sharing", func() bool { return assigned(first) == 1 && assigned(second) == 1 })
}

// holdPollLoop keeps a processor's poll loop where it tells the client what to do, until
// letGo or the end of the test.
func holdPollLoop(t *testing.T, p *Processor) (letGo func()) {
	g := p.group()
	g.steering.Lock()
	letGo = sync.OnceFunc(g.steering.Unlock)
	t.Cleanup(letGo)
	g.wake()
	testkit.WaitFor(t, "the poll loop to be held", func() bool { return len(testkit.Goroutines(t, "kudos/stream.(*group).steer+")) > 0 })
	return letGo
}

// rebalanceWaits tells whether a client keeps a rebalance waiting.
func rebalanceWaits(t testing.TB) bool {
	for _, stack := range testkit.Goroutines(t, "kgo.(*consumer).waitAndAddRebalance") {
		if strings.Contains(stack, "sync.(*Cond).Wait") {
			return true
		}
	}
	return false
}

// TestNothingIsPausedInANewSession: the client remembers what an earlier session paused.
func TestNothingIsPausedInANewSession(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 2)
	c.Produce(testkit.Records(input, 0, 0, 5)...)
	l := newLab(t)
	var trouble atomic.Pointer[error]
	set(&trouble, Park(CauseState, "none", "no way"))
	l.process = failing(&trouble)
	paused := func(s *session) []int32 { return s.cl.PauseFetchPartitions(nil)[input] }
	var first atomic.Pointer[session]
	fenced := make(chan []int32, 10)
	var p *Processor
	l.fence = func(context.Context, *fakeWorker) error {
		// Before anything is fetched: later, the reminder of a seek would resume it.
		if s := first.Load(); s != nil && s != p.session() {
			fenced <- paused(p.session())
		}
		return nil
	}
	p, _ = c.run(l, func(o *ProcessorOptions) { quick(o); o.ParkInterval = time.Hour })
	testkit.WaitFor(t, "the pause", func() bool { s := p.session(); return s != nil && slices.Equal(paused(s), []int32{0}) })
	set(&trouble, nil)
	first.Store(p.session())
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: testGroup, Err: kerr.RebalanceInProgress})
	l.waitProcessed(0, offsets(0, 5))
	for range 2 {
		require.Empty(t, <-fenced, "paused when the new session begins")
	}
}
