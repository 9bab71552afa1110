package stream

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

type gate struct {
	entered chan int32 // the partition of each worker that reached it
	open    chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan int32, 1000), open: make(chan struct{})} }

// gate blocks the batches of the lab's workers; ticks pass.
func (l *lab) gate() *gate {
	g := newGate()
	l.process = func(ctx context.Context, _ *fakeWorker, b *Batch) error {
		if len(b.Records) == 0 {
			return nil
		}
		return g.pass(ctx, b.Partition)
	}
	return g
}

func (g *gate) pass(ctx context.Context, partition int32) error {
	g.entered <- partition
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) wait(t testing.TB) int32 {
	return testkit.Receive(t, g.entered, "a call must reach the gate")
}

// What arrives while a batch is processed forms the next batch, up to MaxBatch.
func TestBatchesGrowWithTheLoad(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 0)
	g := l.gate()
	p, _ := c.run(l, func(o *ProcessorOptions) { o.watchInterval = time.Hour }) // the lag counts only what was fetched
	c.Produce(testkit.Records(input, 0, 0, 1)...)
	g.wait(t)
	cl := c.Client()
	for _, rec := range testkit.Records(input, 0, 1, 130) {
		require.NoError(t, cl.ProduceSync(testkit.Context(t), rec).FirstErr())
	}
	// One full batch may be pending: then nothing more is taken from the client.
	testkit.WaitFor(t, "a full batch and the one in flight", func() bool {
		s, _ := p.Status()
		return len(s) == 1 && s[0].Lag >= 101
	})
	require.Empty(t, l.processed(0))
	close(g.open)
	l.waitProcessed(0, offsets(0, 131))
	require.Equal(t, []int{1, 100}, l.at(0).batches[:2])
	require.Equal(t, 1, l.count(0, "Fence"))
}

// A record after a pause is delivered at once. Those that follow it are collected, in order.
func TestRecordsAreCollected(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 0)
	c.run(l, func(o *ProcessorOptions) { o.CollectFor = 3 * time.Second })
	cl := c.Client()
	for i, rec := range testkit.Records(input, 0, 0, 30) {
		require.NoError(t, cl.ProduceSync(testkit.Context(t), rec).FirstErr())
		if i == 0 {
			l.waitProcessed(0, offsets(0, 1))
		}
	}
	l.waitProcessed(0, offsets(0, 30))
	require.Equal(t, 1, l.at(0).batches[0])
	require.Less(t, len(l.at(0).batches), 10)
}

// While a partition is behind, nothing is held back: 15 polls would take longer than the test waits.
func TestBacklogIsNotCollected(t *testing.T) {
	c, l := newInput(t, 1, 3000)
	c.run(l, func(o *ProcessorOptions) { o.CollectFor = 5 * time.Second })
	l.waitProcessed(0, offsets(0, 3000))
}

func TestTicksArriveWithoutRecords(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 0)
	p, _ := c.run(l, nil)
	c.Produce(testkit.Records(input, 1, 0, 7)...)
	l.waitProcessed(1, offsets(0, 7))
	for part := range int32(2) {
		before := l.at(part).ticks
		testkit.WaitFor(t, "ticks", func() bool { return l.at(part).ticks >= before+3 })
	}
	require.NoError(t, p.Ready())
	c.Produce(testkit.Records(input, 1, 7, 7)...)
	l.waitProcessed(1, offsets(0, 14))
}

func TestSlowPartitionIsBounded(t *testing.T) {
	t.Parallel()
	const many = 5000
	c, l := newInput(t, 3, many)
	g := newGate()
	l.process = func(ctx context.Context, _ *fakeWorker, b *Batch) error {
		if b.Partition == 1 && len(b.Records) > 0 {
			return g.pass(ctx, 1)
		}
		return nil
	}
	p, _ := c.run(l, nil)
	g.wait(t)
	slow, most := p.partition(1), 0
	pending := func() int {
		n := slow.queue.waiting()
		most = max(most, n)
		return n
	}
	testkit.WaitFor(t, "the other partitions", func() bool {
		pending()
		return len(l.processed(0)) == many && len(l.processed(2)) == many
	})
	require.LessOrEqual(t, most, 2*pendingBatches*100, "at most two batches and one poll")
	require.Positive(t, pending())
	require.Empty(t, l.processed(1))
	close(g.open)
	l.waitProcessed(1, offsets(0, many))
	require.Equal(t, offsets(0, many), l.processed(0))
}

// A fetch of batches of almost the same size reuses the previous memory, and a small batch does not keep much.
func TestRecordsFitAgain(t *testing.T) {
	var p recordPool
	for n := 1; n < 10_000; n += 1 + n/32 {
		capacity := cap(p.GetRecords(n))
		require.GreaterOrEqual(t, capacity, n)
		require.LessOrEqual(t, capacity, n+n/4)
	}
	require.Equal(t, cap(p.GetRecords(1600)), cap(p.GetRecords(1700)))

	small, large := p.GetRecords(10), p.GetRecords(100)
	p.PutRecords(small)
	p.PutRecords(large)
	for range 3 { // whatever the pool has kept
		require.GreaterOrEqual(t, len(p.GetRecords(50)), 50)
	}
}
