package stream

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/kafka"
)

// lab makes fake workers, stands for what they keep (positions, as a database would),
// and watches what is done to them: one worker at a time for a partition, from Fence
// to Close; no batch but the one that comes next.
type lab struct {
	t testing.TB

	// Each may be nil, and returns before the worker does anything.
	fence   func(ctx context.Context, w *fakeWorker) error
	open    func(ctx context.Context, w *fakeWorker) error
	process func(ctx context.Context, w *fakeWorker, b *Batch) error

	mu        sync.Mutex
	positions map[int32]kafka.Position
	done      map[int32][]int64 // offsets of the processed records, in order
	batches   map[int32][]int   // sizes of the processed batches, ticks left out
	ticks     map[int32]int
	calls     map[int32][]string
	times     map[int32][]time.Time // of calls
	owners    map[int32]*fakeWorker
	workers   int
	trouble   []string
}

func newLab(t testing.TB) *lab {
	l := &lab{
		t: t, positions: map[int32]kafka.Position{}, done: map[int32][]int64{}, batches: map[int32][]int{},
		ticks: map[int32]int{}, calls: map[int32][]string{}, times: map[int32][]time.Time{}, owners: map[int32]*fakeWorker{},
	}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Empty(t, l.trouble)
	})
	return l
}

// fakeWorker is a Worker of the lab.
type fakeWorker struct {
	lab    *lab
	a      Assignment
	number int
	busy   bool
	fenced bool // since its last Close
}

func (l *lab) worker(a Assignment) Worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers++
	return &fakeWorker{lab: l, a: a, number: l.workers}
}

// call notes a call and refuses a second one beside it.
func (w *fakeWorker) call(name string) (end func()) {
	l := w.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.busy {
		l.trouble = append(l.trouble, fmt.Sprintf("%s of partition %d beside another call", name, w.a.Partition))
	}
	w.busy = true
	if name != "tick" {
		l.calls[w.a.Partition] = append(l.calls[w.a.Partition], name)
		l.times[w.a.Partition] = append(l.times[w.a.Partition], time.Now())
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		w.busy = false
	}
}

func (w *fakeWorker) Fence(ctx context.Context) error {
	defer w.call("Fence")()
	l, p := w.lab, w.a.Partition
	l.mu.Lock()
	if o := l.owners[p]; o != nil && o != w {
		l.trouble = append(l.trouble, fmt.Sprintf("worker %d fences partition %d before worker %d is closed", w.number, p, o.number))
	}
	if w.fenced {
		l.trouble = append(l.trouble, fmt.Sprintf("partition %d is fenced again without Close", p))
	}
	l.owners[p], w.fenced = w, true
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
	l, p := w.lab, w.a.Partition
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
	if l.owners[p] != w || b.Partition != p {
		l.trouble = append(l.trouble, fmt.Sprintf("worker %d processes partition %d, which it does not own", w.number, p))
	}
	if len(b.Records) == 0 {
		l.ticks[p]++
		if b.Next != l.positions[p] {
			l.trouble = append(l.trouble, fmt.Sprintf("a tick of partition %d at %v, not %v", p, b.Next, l.positions[p]))
		}
		return nil
	}
	next := l.positions[p].Offset
	for _, rec := range b.Records {
		if rec.Offset < next || rec.Attrs.IsControl() || rec.Partition != p {
			l.trouble = append(l.trouble, fmt.Sprintf("offset %d came to partition %d at offset %d", rec.Offset, p, next))
		}
		next = rec.Offset + 1
		l.done[p] = append(l.done[p], rec.Offset)
	}
	l.batches[p] = append(l.batches[p], len(b.Records))
	l.positions[p] = b.Next
	return nil
}

func (w *fakeWorker) Close() {
	defer w.call("Close")()
	w.lab.mu.Lock()
	defer w.lab.mu.Unlock()
	w.fenced = false
	if w.lab.owners[w.a.Partition] == w {
		w.lab.owners[w.a.Partition] = nil
	}
}

// position is what the lab keeps: from the start, if nothing.
func (l *lab) position(p int32) kafka.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	pos, ok := l.positions[p]
	if !ok {
		pos = kafka.Position{Offset: 0, Epoch: -1}
		l.positions[p] = pos
	}
	return pos
}

func (l *lab) setPosition(p int32, pos kafka.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.positions[p] = pos
}

// processed returns the offsets that have been processed.
func (l *lab) processed(p int32) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int64(nil), l.done[p]...)
}

func (l *lab) sizes(p int32) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int(nil), l.batches[p]...)
}

func (l *lab) tickCount(p int32) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ticks[p]
}

// callsOf returns what was called on a partition's workers, and when.
func (l *lab) callsOf(p int32) ([]string, []time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.calls[p]...), append([]time.Time(nil), l.times[p]...)
}

func (l *lab) count(p int32, name string) (n int) {
	calls, _ := l.callsOf(p)
	for _, c := range calls {
		if c == name {
			n++
		}
	}
	return n
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
	o := ProcessorOptions{
		Group: testGroup, Input: input, Kafka: c.kafka,
		MaxBatch: 100, TickInterval: 20 * time.Millisecond, ParkInterval: 100 * time.Millisecond,
		SessionTimeout: 5 * time.Second, ShutdownTimeout: 5 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	p = NewProcessor(o, l.worker, testkit.Log())
	return p, testrun.Start(c.t, "the processor", testkit.Patience, p.Run)
}

func (l *lab) waitProcessed(p int32, want []int64) {
	l.t.Helper()
	testkit.WaitFor(l.t, fmt.Sprintf("partition %d to process %d records", p, len(want)), func() bool { return len(l.processed(p)) >= len(want) })
	require.Equal(l.t, want, l.processed(p), "partition %d", p)
}

// partition returns one of the present session, or nil if there is none.
func (p *Processor) partition(n int32) *Partition {
	if s := p.session(); s != nil {
		return s.partitions[n]
	}
	return nil
}

// session returns the present session, or nil if there is none.
func (p *Processor) session() *session {
	if g := p.group(); g != nil {
		return g.present()
	}
	return nil
}

func (p *Processor) group() *group {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.group
}
