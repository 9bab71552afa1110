package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

// A session does not end while the poll loop works with it, so the client never gets calls about others' partitions.
func TestRebalanceWaitsForThePollLoop(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 1)
	first, _ := c.run(l, quick)
	l.waitProcessed(0, offsets(0, 1))
	l.waitProcessed(1, offsets(0, 1)) // it has started to consume
	s := first.session()
	letGo := holdPollLoop(t, first)
	second, _ := c.run(l, quick)
	testkit.WaitFor(t, "the rebalance", func() bool { return s.ctx.Err() != nil || rebalanceWaits(t) })
	require.NoError(t, s.ctx.Err(), "the session ended while the poll loop was using it")
	letGo()
	testkit.WaitFor(t, "sharing", func() bool { return assigned(first) == 1 && assigned(second) == 1 })
}

// holdPollLoop blocks a processor's poll loop in controlFlow, until letGo or the end of the test.
func holdPollLoop(t *testing.T, p *Processor) (letGo func()) {
	q := p.partition(0).queue
	q.mu.Lock()
	letGo = sync.OnceFunc(q.mu.Unlock)
	t.Cleanup(letGo)
	p.group().wake()
	testkit.WaitFor(t, "the poll loop to block", func() bool {
		return len(testkit.Goroutines(t, "kudos/stream.(*poller).controlFlow+")) > 0
	})
	return letGo
}

func rebalanceWaits(t testing.TB) bool {
	for _, stack := range testkit.Goroutines(t, "kgo.(*consumer).waitAndAddRebalance") {
		if strings.Contains(stack, "sync.(*Cond).Wait") {
			return true
		}
	}
	return false
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
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: testGroup, Err: kerr.RebalanceInProgress})
	for range 4 { // two sessions of two
		require.True(t, <-begun, "paused until it is opened")
	}
	c.Add(input, 5, 5)
	for n := range int32(2) {
		l.waitProcessed(n, offsets(0, 10))
	}
}

// failingHandler is goka with partitions whose ConsumeClaim fails; the others end with the session.
type failingHandler struct {
	sarama.ConsumerGroupHandler
	failing map[int32]error
}

func (h failingHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	if err := h.failing[c.Partition()]; err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// Regression: a ConsumeClaim error ended the process with an index out of range: all goroutines shared one index.
func TestRegressConsumeClaimError(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("broken")
	for name, failing := range map[string]map[int32]error{
		"first": {0: errBroken}, "middle": {1: errBroken}, "last": {2: errBroken},
		"all": {0: errBroken, 1: errBroken, 2: errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.Topic(input, 3)
			opts := &ProcessorOptions{TickInterval: time.Hour, ParkInterval: time.Hour, watchInterval: time.Hour}
			s := &session{cl: c.Client(), opts: opts, topic: input}
			s.ctx, s.cancel = context.WithCancelCause(testkit.Context(t))
			for p := range int32(3) {
				s.set(p, newPartition(Assignment{Topic: input, Partition: p}, newLab(t).worker, opts, nil, selfDriven{},
					testkit.Log()))
			}
			err := s.consume(driver{failingHandler{failing: failing}})
			require.ErrorIs(t, err, errBroken)
			for p := range int32(3) {
				of := fmt.Sprintf("consuming %s/%d: broken", input, p)
				if failing[p] != nil {
					require.ErrorContains(t, err, of)
				} else {
					require.NotContains(t, err.Error(), of)
				}
			}
			require.ErrorIs(t, context.Cause(s.ctx), errEndedItself)
		})
	}
}
