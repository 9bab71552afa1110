package stream

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

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
	require.ErrorContains(t, gokaGroup{p: p}.Consume(testkit.Context(t), nil, failingHandler{}), "stopped the partition")
}
