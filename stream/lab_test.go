package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/kafka"
)

// lab creates fake workers, keeps their positions (as a database would), and checks how they are called: one worker at
// a time per partition and process, from Fence to Close, and batches in order without gaps. Fence fences the others.
type lab struct {
	t testing.TB

	// Hooks, called before the worker does anything. Each may be nil.
	fence   func(ctx context.Context, w *fakeWorker) error
	open    func(ctx context.Context, w *fakeWorker) error
	process func(ctx context.Context, w *fakeWorker, b *Batch) error

	mu                 sync.Mutex
	partitions         map[int32]*labPartition
	workers, processes int
	failure            []string
}

type labPartition struct {
	position kafka.Position
	done     []int64 // offsets of the processed records, in order
	batches  []int   // sizes of the processed batches, ticks left out
	ticks    int
	calls    []string
	times    []time.Time // of calls
	owner    *fakeWorker
}

func newLab(t testing.TB) *lab {
	l := &lab{t: t, partitions: map[int32]*labPartition{}}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Empty(t, l.failure)
	})
	return l
}

// newInput returns a cluster whose input has n records in each partition, and a lab.
func newInput(t testing.TB, partitions int32, n int) (*cluster, *lab) {
	c := newCluster(t)
	c.Fill(input, partitions, n)
	return c, newLab(t)
}

// complain records an error that fails the test in the end. The caller holds mu.
func (l *lab) complain(format string, args ...any) {
	l.failure = append(l.failure, fmt.Sprintf(format, args...))
}

type fakeWorker struct {
	lab    *lab
	a      Assignment
	number int
	owner  int // the process
	busy   bool
	fenced bool // since its last Close
}

func (l *lab) worker(a Assignment) Worker { return l.workerOf(0, a) }

func (l *lab) workerOf(process int, a Assignment) Worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers++
	return &fakeWorker{lab: l, a: a, number: l.workers, owner: process}
}

// of finds or adds a partition, which starts at offset 0. The caller holds mu.
func (l *lab) of(p int32) *labPartition {
	if l.partitions[p] == nil {
		l.partitions[p] = &labPartition{position: kafka.Position{Offset: 0, Epoch: -1}}
	}
	return l.partitions[p]
}

// call records a call and rejects concurrent ones.
func (w *fakeWorker) call(name string) (end func()) {
	l := w.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.busy {
		l.complain("%s of partition %d during another call", name, w.a.Partition)
	}
	w.busy = true
	if p := l.of(w.a.Partition); name != "tick" {
		p.calls, p.times = append(p.calls, name), append(p.times, time.Now())
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		w.busy = false
	}
}

func (w *fakeWorker) Fence(ctx context.Context) error {
	defer w.call("Fence")()
	l := w.lab
	l.mu.Lock()
	p := l.of(w.a.Partition)
	if p.owner != nil && p.owner != w && p.owner.owner == w.owner {
		l.complain("worker %d fences partition %d before worker %d is closed", w.number, w.a.Partition, p.owner.number)
	}
	if w.fenced {
		l.complain("partition %d is fenced again without Close", w.a.Partition)
	}
	p.owner, w.fenced = w, true
	l.mu.Unlock()
	if l.fence != nil {
		return l.fence(ctx, w)
	}
	return nil
}

func (w *fakeWorker) Open(ctx context.Context) (kafka.Position, error) {
	defer w.call("Open")()
	if w.lab.open != nil {
		if err := w.lab.open(ctx, w); err != nil {
			return kafka.Position{}, err
		}
	}
	return w.lab.position(w.a.Partition), nil
}

func (w *fakeWorker) Process(ctx context.Context, b *Batch) error {
	name := "Process"
	if len(b.Records) == 0 {
		name = "tick"
	}
	defer w.call(name)()
	l, n := w.lab, w.a.Partition
	l.mu.Lock()
	process := l.process // a test may change it
	l.mu.Unlock()
	if process != nil {
		if err := process(ctx, w, b); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.of(n)
	if p.owner != nil && p.owner.owner != w.owner {
		return kafka.ErrFenced
	}
	if p.owner != w || b.Partition != n {
		l.complain("worker %d processes partition %d, which it does not own", w.number, n)
	}
	if len(b.Records) == 0 {
		if p.ticks++; b.Next != p.position {
			l.complain("tick of partition %d at %v, not %v", n, b.Next, p.position)
		}
		return nil
	}
	next := p.position.Offset
	for _, rec := range b.Records {
		if rec.Offset < next || rec.Attrs.IsControl() || rec.Partition != n {
			l.complain("offset %d was delivered to partition %d at offset %d", rec.Offset, n, next)
		}
		next = rec.Offset + 1
		p.done = append(p.done, rec.Offset)
	}
	p.batches, p.position = append(p.batches, len(b.Records)), b.Next
	return nil
}

func (w *fakeWorker) Close() {
	defer w.call("Close")()
	w.lab.mu.Lock()
	defer w.lab.mu.Unlock()
	w.fenced = false
	if p := w.lab.of(w.a.Partition); p.owner == w {
		p.owner = nil
	}
}

func (l *lab) setPosition(p int32, pos kafka.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(p).position = pos
}

func (l *lab) at(p int32) labPartition {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := *l.of(p)
	now.done, now.batches = slices.Clone(now.done), slices.Clone(now.batches)
	now.calls, now.times = slices.Clone(now.calls), slices.Clone(now.times)
	return now
}

func (l *lab) position(p int32) kafka.Position { return l.at(p).position }
func (l *lab) processed(p int32) []int64       { return l.at(p).done }

func (l *lab) count(p int32, name string) int {
	return len(slices.DeleteFunc(l.at(p).calls, func(call string) bool { return call != name }))
}

// offsets returns [from, to).
func offsets(from, to int64) []int64 {
	var list []int64
	for ; from < to; from++ {
		list = append(list, from)
	}
	return list
}

// run starts a processor of the lab's workers; stop ends it and waits.
func (c *cluster) run(l *lab, change func(*ProcessorOptions)) (p *Processor, stop func()) {
	o := ProcessorOptions{Group: testGroup, Input: input, Kafka: c.kafka, MaxBatch: 100,
		TickInterval: 20 * time.Millisecond, ParkInterval: 100 * time.Millisecond,
		SessionTimeout: 5 * time.Second, ShutdownTimeout: 5 * time.Second}
	if change != nil {
		change(&o)
	}
	l.mu.Lock()
	l.processes++
	process := l.processes
	l.mu.Unlock()
	p = NewProcessor(o, func(a Assignment) Worker { return l.workerOf(process, a) }, testkit.Log())
	return p, testrun.Start(c.t, "the processor", testkit.Patience, p.Run)
}

func (l *lab) waitProcessed(p int32, want []int64) {
	l.t.Helper()
	testkit.WaitFor(l.t, fmt.Sprintf("partition %d to process %d records", p, len(want)), func() bool {
		return len(l.processed(p)) >= len(want)
	})
	require.Equal(l.t, want, l.processed(p), "partition %d", p)
}

// waitNotReady waits until Ready returns an error with these words, and returns it.
func (p *Processor) waitNotReady(t testing.TB, words ...string) (why error) {
	t.Helper()
	testkit.WaitFor(t, fmt.Sprintf("Ready to report %q", words), func() bool {
		why = p.Ready()
		missing := func(word string) bool { return !strings.Contains(why.Error(), word) }
		return why != nil && !slices.ContainsFunc(words, missing)
	})
	return why
}

func (p *Processor) waitReady(t testing.TB) {
	t.Helper()
	testkit.WaitFor(t, "readiness", func() bool { return p.Ready() == nil })
}

// statuses returns the status of each partition; there must be an assignment.
func (p *Processor) statuses(t testing.TB) []PartitionStatus {
	t.Helper()
	statuses, err := p.Status()
	require.NoError(t, err)
	return statuses
}

func (p *Processor) partition(n int32) *Partition {
	if s := p.session(); s != nil {
		return s.partitions()[n]
	}
	return nil
}

func (p *Processor) session() *session {
	if g := p.group(); g != nil {
		return g.shown.Load()
	}
	return nil
}

func (p *Processor) group() *group {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.group
}
