package stream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/refusal"
	"kudos/stream/kafka"
)

// fetchOf is the result of a poll: records at consecutive offsets, or an error.
func fetchOf(from int64, err error, values ...string) *kgo.FetchPartition {
	p := &kgo.FetchPartition{Err: err, LastStableOffset: from + int64(len(values)) + 1}
	for i, v := range values {
		p.Records = append(p.Records, &kgo.Record{Topic: input, Offset: from + int64(i), LeaderEpoch: 3,
			Value: []byte(v)})
	}
	return p
}

type countingLoop struct{ wakes, freed, rejoins, restarts atomic.Int64 }

func (l *countingLoop) wake()           { l.wakes.Add(1) }
func (l *countingLoop) capacityFreed()  { l.freed.Add(1) }
func (l *countingLoop) rejoin()         { l.rejoins.Add(1) }
func (l *countingLoop) startOver(error) { l.restarts.Add(1) }

type forgetful struct{} // a leader that knows no epoch, which proves nothing

func (forgetful) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	return refusal.EpochEnd(req, -1), nil
}

// opened returns a partition that runs at an offset, with batches of 2. handed collects its batches.
func opened(t *testing.T, offset int64) (p *Partition, loop *countingLoop, l *lab, handed *[]Batch) {
	l, loop, handed = newLab(t), &countingLoop{}, &[]Batch{}
	l.process = func(_ context.Context, _ *fakeWorker, b *Batch) error { *handed = append(*handed, *b); return nil }
	l.setPosition(0, kafka.Position{Offset: offset, Epoch: 1})
	opts := &ProcessorOptions{MaxBatch: 2, TickInterval: time.Hour, ParkInterval: time.Minute,
		SessionTimeout: time.Minute, ShutdownTimeout: time.Minute}
	p = newPartition(Assignment{Topic: input}, l.worker, opts, forgetful{}, loop, testkit.Log())
	require.EqualValues(t, -1, p.Status().Position.Offset, "unknown until it is opened")
	require.EqualValues(t, -1, p.settled().Offset)
	require.True(t, p.Step(t.Context()), "it opens")
	require.Equal(t, offset, p.Status().Position.Offset)
	p.Deliver(fetchOf(offset, nil, "before the first seek"))
	require.False(t, p.Step(t.Context()))
	paused, changed, seek := p.queue.flow(time.Now(), 4)
	require.False(t, paused)
	require.True(t, changed, "fetching starts")
	p.queue.seekConfirmed(*seek)
	return p, loop, l, handed
}

// The memory of a processed batch is reused, and no pending record is lost or mixed up.
func TestBatchMemoryIsReused(t *testing.T) {
	p, _, l, _ := opened(t, 5)
	offset := int64(5)
	deliver := func() { p.Deliver(fetchOf(offset, nil, fmt.Sprint(offset))); offset++ }
	var got []string
	var memory []*kgo.Record
	l.process = func(_ context.Context, _ *fakeWorker, b *Batch) error {
		memory = p.queue.handed
		deliver() // while the batch is in flight
		for _, rec := range b.Records {
			got = append(got, string(rec.Value))
		}
		return nil
	}
	for round := range 20 {
		for range round % 4 { // more and less than a batch
			deliver()
		}
		if !p.Step(t.Context()) {
			continue
		}
		require.Nil(t, memory[0], "no longer referenced")
		require.Equal(t, cap(memory), cap(p.queue.spare))
	}
	require.Greater(t, len(got), 20)
	for i, value := range got {
		require.Equal(t, fmt.Sprint(5+i), value)
	}
}

// One poll may bring records after a loss, and behind them the notice of it.
func TestDataLossIsHandledBeforeLaterRecords(t *testing.T) {
	p, _, _, handed := opened(t, 5)
	p.Deliver(fetchOf(5, nil, "a"))
	require.True(t, p.Step(t.Context()))
	s, l := &session{topic: input, opts: p.opts}, newPoller(p.opts, testkit.Log())
	s.set(0, p)
	poll := []kgo.FetchPartition{*fetchOf(2, nil, "b"), *fetchOf(2, &kgo.ErrDataLoss{Topic: input})}
	l.deliver(s, kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: input, Partitions: poll}}}}, nil)
	require.True(t, p.Step(t.Context()))
	require.Equal(t, CauseLoss, p.Status().Cause, p.Status().Reason)
	require.Len(t, *handed, 1)
}

func TestBatchesArriveInOrder(t *testing.T) {
	p, _, l, _ := opened(t, 5)
	var batches []Batch
	var status PartitionStatus
	l.process = func(_ context.Context, _ *fakeWorker, b *Batch) error {
		batches, status = append(batches, *b), p.Status()
		return nil
	}
	require.False(t, p.Step(t.Context()))
	p.Deliver(fetchOf(5, nil, "a", "b", "c"))
	require.True(t, p.Step(t.Context()))
	require.Len(t, batches[0].Records, 2)
	require.Equal(t, kafka.Position{Offset: 7, Epoch: 3}, batches[0].Next)
	require.Equal(t, "input/0 running", status.String())
	require.EqualValues(t, 4, status.Lag, "two in flight, one queued, one more below the last stable offset")
	require.EqualValues(t, 9, p.queue.end())
	require.True(t, p.Step(t.Context()))
	require.Equal(t, kafka.Position{Offset: 8, Epoch: 3}, batches[1].Next)
	require.False(t, p.Step(t.Context()))
	p.lastDone = time.Now().Add(-2 * time.Hour)
	require.True(t, p.Step(t.Context()))
	require.Empty(t, batches[2].Records, "a tick")
	require.Equal(t, kafka.Position{Offset: 8, Epoch: 3}, batches[2].Next)
	require.False(t, p.Step(t.Context()), "only one tick")
}

func TestNothingStartsAfterShutdown(t *testing.T) {
	p, _, l, handed := opened(t, 5)
	p.Deliver(fetchOf(5, nil, "a"))
	require.False(t, p.Step(testkit.Canceled()))
	require.Empty(t, *handed)
	p.fail(Park(CauseState, "", "broken"))
	p.retryAt = time.Time{}
	calls := l.at(0).calls
	require.False(t, p.Step(testkit.Canceled()))
	require.Equal(t, calls, l.at(0).calls)
}

func TestStaleListsAreDropped(t *testing.T) {
	p, loop, l, _ := opened(t, 5)
	l.process = func(context.Context, *fakeWorker, *Batch) error { return Reopen("for a test") }
	p.Deliver(fetchOf(5, nil, "a", "b", "c"))
	l.setPosition(0, kafka.Position{Offset: 2, Epoch: 1})
	require.True(t, p.Step(t.Context()))
	require.EqualValues(t, 2, p.Status().Position.Offset)
	l.process = nil
	require.False(t, p.Step(t.Context()), "queued records are dropped")
	seek := func() *kafka.Position { _, _, seek := p.queue.flow(time.Now(), 4); return seek }
	at := kafka.Position{Offset: 2, Epoch: 1}
	require.Equal(t, &at, seek())
	p.Deliver(fetchOf(7, nil, "c"))
	require.False(t, p.Step(t.Context()), "records that arrive before the seek are dropped")
	p.Deliver(fetchOf(7, kerr.OffsetOutOfRange))
	require.False(t, p.Step(t.Context()))
	require.Equal(t, StateRunning, p.Status().State, "an error at the old position does not count")
	require.NotNil(t, seek(), "requested until it is confirmed")
	wakes := loop.wakes.Load()
	p.Step(t.Context())
	require.Greater(t, loop.wakes.Load(), wakes, "the poll loop is woken")
	p.queue.seekConfirmed(kafka.Position{Offset: 99})
	require.Equal(t, &at, seek(), "another position does not confirm it")
	p.queue.seekConfirmed(at)
	require.Nil(t, seek())
	p.Deliver(fetchOf(2, nil, "x"))
	require.True(t, p.Step(t.Context()))
	require.EqualValues(t, 3, p.Status().Position.Offset)
}

// If a worker finds that the partition count has changed, all partitions restart; other errors restart none.
func TestOtherPartitionsRestartAll(t *testing.T) {
	p, loop, _, _ := opened(t, 5)
	p.fail(Park(CauseState, "", "broken"))
	require.Zero(t, loop.restarts.Load())
	p.fail(fmt.Errorf("processing: %w", errMore))
	require.EqualValues(t, 1, loop.restarts.Load())
}

// Offsets below the position mean that the log is another one.
func TestOffsetsDoNotGoBack(t *testing.T) {
	p, _, _, handed := opened(t, 5)
	p.Deliver(fetchOf(5, nil, "a", "b", "c"))
	p.Deliver(fetchOf(7, nil, "c again"))
	p.Deliver(fetchOf(8, nil, "d"))
	require.True(t, p.Step(t.Context()))
	require.Equal(t, StateParked, p.Status().State)
	require.Equal(t, "offset 7 arrived after offset 7 had been read", p.Status().Reason)
	require.Empty(t, *handed)
}

func TestFlow(t *testing.T) {
	p, loop, _, _ := opened(t, 0)
	now := time.Now()
	is := func(paused, changed bool, at time.Time) {
		t.Helper()
		is, has, _ := p.queue.flow(at, 4)
		require.Equal(t, [2]bool{paused, changed}, [2]bool{is, has})
	}
	step := func() { t.Helper(); require.True(t, p.Step(t.Context())) }
	is(false, false, now)
	p.Deliver(fetchOf(0, nil, "0", "1", "2", "3", "4", "5", "6", "7"))
	has, full := p.queue.capacity(4)
	require.False(t, has)
	require.True(t, full)
	is(false, false, now) // it may free capacity soon
	is(true, true, now.Add(holdPoll))
	p.queue.nudgeAt = time.Time{} // this test is not about the nudge after the first seek
	is(true, false, now.Add(holdPoll))
	_, full = p.queue.capacity(4)
	require.False(t, full, "while paused, it gets no more, whatever the others do")
	for range 3 {
		step()
		is(true, false, now.Add(holdPoll)) // 6, 4, 2 are pending
	}
	wakes := loop.wakes.Load()
	step()
	require.Greater(t, loop.wakes.Load(), wakes, "it can be resumed")
	is(false, true, now)

	// Short times at the quota do not add up.
	p.Deliver(fetchOf(8, nil, "0", "1", "2", "3", "4", "5", "6", "7"))
	is(false, false, now)
	for range 3 {
		step()
	}
	is(false, false, now.Add(holdPoll)) // 2 are pending
	p.Deliver(fetchOf(16, nil, "8", "9"))
	is(false, false, now.Add(holdPoll))

	p.Deliver(fetchOf(0, kerr.OffsetOutOfRange))
	is(true, true, now) // about to be parked
	has, full = p.queue.capacity(4)
	require.False(t, has || full)
	step()
	require.Equal(t, StateParked, p.Status().State)
	is(true, false, now)
}

// A single hot partition may use the whole bound; the more others have pending, the less, down to an equal share.
func TestQuotas(t *testing.T) {
	partitions := map[int32]*Partition{}
	for n := range int32(4) {
		partitions[n], _, _, _ = opened(t, 0)
	}
	of := func(maxBatch int) map[int32]int { return quotas(partitions, maxBatch) }
	require.Equal(t, map[int32]int{0: 16, 1: 16, 2: 16, 3: 16}, of(8))
	partitions[2].Deliver(fetchOf(0, nil, "0", "1", "2", "3", "4", "5"))
	require.Equal(t, map[int32]int{0: 10, 1: 10, 2: 16, 3: 10}, of(8))
	partitions[0].Deliver(fetchOf(0, nil, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"))
	require.Equal(t, map[int32]int{0: 10, 1: 4, 2: 6, 3: 4}, of(8))
	require.Equal(t, map[int32]int{0: 2, 1: 2, 2: 2, 3: 2}, of(1), "never zero")
}

func TestFencedPartitionRequestsANewAssignment(t *testing.T) {
	p, loop, _, _ := opened(t, 0)
	p.fail(kafka.ErrFenced)
	require.False(t, p.Step(t.Context()))
	require.Zero(t, loop.rejoins.Load())
	for i := range int64(2) { // at intervals
		require.Greater(t, time.Until(p.retryAt), 40*time.Second)
		p.retryAt = time.Now().Add(-time.Second)
		require.False(t, p.Step(t.Context()))
		require.False(t, p.Step(t.Context()))
		require.Equal(t, i+1, loop.rejoins.Load())
	}
	require.Equal(t, "input/0 fenced: this process lost the partition", p.Status().String())
}

// Control records after the position count when no record is left, and a batch covers those that came with it.
func TestSettledPosition(t *testing.T) {
	p, _, _, handed := opened(t, 5)
	control := kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
	first := fetchOf(5, nil, "a", "marker")
	first.Records[1].Attrs = control
	first.LastStableOffset = 7
	p.Deliver(first)
	require.EqualValues(t, 5, p.settled().Offset, "a record is still queued")
	require.EqualValues(t, 1, p.Status().Lag, "the marker is not lag")
	require.True(t, p.Step(t.Context()))
	require.Len(t, (*handed)[0].Records, 1)
	require.EqualValues(t, 7, (*handed)[0].Next.Offset, "the marker after it is covered")
	require.EqualValues(t, 7, p.settled().Offset)

	late := fetchOf(7, nil, "marker")
	late.Records[0].Attrs = control
	late.LastStableOffset = 8
	p.Deliver(late)
	require.EqualValues(t, 7, p.Status().Position.Offset, "nothing was processed")
	require.EqualValues(t, 8, p.settled().Offset)
	require.Zero(t, p.Status().Lag)
}

// The leader may change between a transaction's records and its marker. A position after the marker with the epoch of
// the records would look like lost data: that epoch ends before it. (Found by the simulation.)
func TestPositionHasTheEpochOfTheMarker(t *testing.T) {
	p, _, _, handed := opened(t, 5)
	fetched := fetchOf(5, nil, "a", "marker")
	fetched.Records[1].Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
	fetched.Records[1].LeaderEpoch = 4
	p.Deliver(fetched)
	require.True(t, p.Step(t.Context()))
	require.Equal(t, kafka.Position{Offset: 7, Epoch: 4}, (*handed)[0].Next)
	late := fetchOf(7, nil, "marker")
	late.Records[0].Attrs, late.Records[0].LeaderEpoch = fetched.Records[1].Attrs, 5
	p.Deliver(late)
	require.Equal(t, kafka.Position{Offset: 8, Epoch: 5}, p.settled())
}

// After a seek, the client is told once more to resume, after nudgeAfter and not before, and again after twice that.
func TestFlowRemindsAfterASeek(t *testing.T) {
	p, loop, _, _ := opened(t, 5)
	q := p.queue
	moved := time.Now() // opened did it by now
	q.nudgeIn = lastNudge
	_, changed, _ := q.flow(moved.Add(2*nudgeAfter), 4)
	require.True(t, changed, "the nudge after the first seek")
	// opened, not confirmed yet, nudged
	testkit.WaitFor(t, "the timer of the first seek", func() bool { return loop.wakes.Load() >= 3 })

	q.open(kafka.Position{Offset: 5, Epoch: 1})
	_, changed, seek := q.flow(time.Now(), 4)
	require.NotNil(t, seek)
	require.False(t, changed, "no nudge: the client has not moved yet")
	wakes := loop.wakes.Load()
	before := time.Now()
	q.seekConfirmed(*seek)
	_, changed, _ = q.flow(before.Add(nudgeAfter/2), 4)
	require.False(t, changed, "too soon")
	testkit.WaitFor(t, "the poll loop to be woken", func() bool { return loop.wakes.Load() > wakes })
	require.GreaterOrEqual(t, time.Since(before), nudgeAfter)
	paused, changed, seek := q.flow(time.Now(), 4)
	require.True(t, changed)
	require.False(t, paused, "it is told to resume")
	require.Nil(t, seek)
	_, changed, _ = q.flow(time.Now(), 4)
	require.False(t, changed, "once")
	_, changed, _ = q.flow(time.Now().Add(2*nudgeAfter), 4)
	require.True(t, changed, "again")
	_, changed, _ = q.flow(time.Now().Add(4*nudgeAfter), 4)
	require.False(t, changed, "less and less often")
	q.nudgeIn = lastNudge
	_, changed, _ = q.flow(time.Now().Add(time.Hour), 4)
	require.True(t, changed)
	_, changed, _ = q.flow(time.Now().Add(2*time.Hour), 4)
	require.False(t, changed, "not forever")
}

// Reopening alone does not clear a failure that only Process can detect: the status shows it, with the time of the
// first failure, until a batch succeeds, and it is logged once, not at each retry.
func TestReopeningDoesNotClearAFailure(t *testing.T) {
	p, _, _, _ := opened(t, 5)
	var log bytes.Buffer
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	failure := Park(CauseState, "do this", "it is broken")
	p.fail(failure)
	first := p.Status()
	require.Equal(t, "input/0 parked: it is broken (action: do this)", first.String())
	for range 2 {
		require.False(t, p.Step(t.Context()), "not before the park interval has passed")
		p.retryAt = time.Now()
		require.True(t, p.Step(t.Context()))
		require.Equal(t, StateRunning, p.state())
		require.Equal(t, first.String(), p.Status().String())
		p.fail(failure)
		require.Equal(t, first.Reason, p.Status().Reason)
	}
	require.Equal(t, 1, strings.Count(log.String(), "partition is parked"), log.String())
	since := p.Status().Since
	p.fail(failure)
	require.Equal(t, since, p.Status().Since, "the same failure continues")
	p.fail(Park(CauseState, "do that", "it is worse"))
	require.Less(t, since, p.Status().Since, "another failure starts")
	require.Equal(t, 2, strings.Count(log.String(), "partition is parked"), log.String())

	p.retryAt = time.Now()
	require.True(t, p.Step(t.Context()))
	p.queue.seekConfirmed(kafka.Position{Offset: 5, Epoch: 1})
	p.Deliver(fetchOf(5, nil, "a"))
	require.True(t, p.Step(t.Context()))
	require.Equal(t, "input/0 running", p.Status().String())
	require.Contains(t, log.String(), "partition resumes")
}
