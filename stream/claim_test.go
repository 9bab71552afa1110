package stream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
)

// fetchOf is what a poll brings: records at consecutive offsets, or an error.
func fetchOf(from int64, err error, values ...string) *kgo.FetchPartition {
	p := &kgo.FetchPartition{Err: err, LastStableOffset: from + int64(len(values)) + 1}
	for i, v := range values {
		p.Records = append(p.Records, &kgo.Record{Topic: input, Offset: from + int64(i), LeaderEpoch: 3, Value: []byte(v)})
	}
	return p
}

// countingLoop is a poll loop that only counts.
type countingLoop struct{ wakes, rooms, rejoins int }

func (l *countingLoop) wake()      { l.wakes++ }
func (l *countingLoop) roomAgain() { l.rooms++ }
func (l *countingLoop) rejoin()    { l.rejoins++ }

// opened is a claim that runs at an offset, with batches of 2.
func opened(t *testing.T, offset int64) (*claim, *countingLoop, *lab) {
	l, loop := newLab(t), &countingLoop{}
	l.setPosition(0, kafka.Position{Offset: offset, Epoch: 1})
	opts := &ProcessorOptions{MaxBatch: 2, TickInterval: time.Hour, ParkInterval: time.Minute, SessionTimeout: time.Minute, ShutdownTimeout: time.Minute}
	a := Assignment{Topic: input}
	c := newClaim(a, l.worker(a), opts, testkit.Log(), loop, func(context.Context, kafka.Position) error { return nil })
	require.EqualValues(t, -1, c.InitialOffset(), "not known before it is opened")
	require.EqualValues(t, -1, c.settled().Offset)
	c.fence(t.Context())
	c.open(t.Context(), false)
	require.Equal(t, offset, c.InitialOffset())
	c.push(fetchOf(offset, nil, "before the first seek"))
	require.Nil(t, c.next(time.Now()))
	c.sought(kgo.EpochOffset{Offset: offset, Epoch: 1})
	return c, loop, l
}

// TestMemoryOfABatchIsUsedAgain once it has been worked off; nothing that waits is lost or mixed
// up by that.
func TestMemoryOfABatchIsUsedAgain(t *testing.T) {
	c, _, _ := opened(t, 5)
	var got []string
	offset := int64(5)
	for round := range 20 {
		for range round % 4 { // more and less than a batch
			c.push(fetchOf(offset, nil, fmt.Sprint(offset)))
			offset++
		}
		b := c.next(time.Now())
		if b == nil {
			continue
		}
		handed := c.mu.handed
		c.push(fetchOf(offset, nil, fmt.Sprint(offset))) // while it is in hand
		offset++
		for _, rec := range b.Records {
			got = append(got, string(rec.Value))
		}
		c.process(t.Context())
		require.Nil(t, handed[0], "nobody has it any more")
		require.Equal(t, cap(handed), cap(c.mu.spare))
		c.done()
	}
	require.Greater(t, len(got), 20)
	for i, value := range got {
		require.Equal(t, fmt.Sprint(5+i), value)
	}
}

func TestClaimGivesOneBatchAtATime(t *testing.T) {
	c, _, _ := opened(t, 5)
	now := time.Now()
	require.Nil(t, c.next(now))
	c.push(fetchOf(5, nil, "a", "b", "c"))
	b := c.next(now)
	require.Len(t, b.Records, 2)
	require.Equal(t, kafka.Position{Offset: 7, Epoch: 3}, b.Next)
	require.Nil(t, c.next(now), "one is under way")
	require.Equal(t, "input/0 running", c.status().String())
	require.EqualValues(t, 4, c.status().Lag, "two in hand, one waits, and one more by the last stable offset")
	require.EqualValues(t, 9, c.HighWaterMarkOffset())
	c.done()
	b = c.next(now)
	require.Equal(t, kafka.Position{Offset: 8, Epoch: 3}, b.Next)
	c.done()
	require.Nil(t, c.next(now.Add(time.Minute)))
	require.Empty(t, c.next(now.Add(2*time.Hour)).Records, "a tick")
}

func TestClaimDropsWhatIsStale(t *testing.T) {
	c, loop, l := opened(t, 5)
	c.push(fetchOf(5, nil, "a", "b"))
	l.setPosition(0, kafka.Position{Offset: 2, Epoch: 1})
	c.open(t.Context(), true)
	require.Nil(t, c.next(time.Now()), "what waited is dropped")
	_, _, seek := c.flow(time.Now(), 4)
	require.Equal(t, &kgo.EpochOffset{Offset: 2, Epoch: 1}, seek)
	c.push(fetchOf(7, nil, "c"))
	require.Nil(t, c.next(time.Now()), "what arrives before the seek is dropped")
	c.push(fetchOf(7, kerr.OffsetOutOfRange))
	require.Equal(t, StateRunning, c.status().State, "nor does an error at the old position count")
	_, _, seek = c.flow(time.Now(), 4)
	require.NotNil(t, seek, "asked for until it is done")
	wakes := loop.wakes
	c.next(time.Now())
	require.Greater(t, loop.wakes, wakes, "and the poll loop is reminded")
	c.sought(kgo.EpochOffset{Offset: 99})
	_, _, again := c.flow(time.Now(), 4)
	require.Equal(t, seek, again, "somewhere else is not there")
	c.sought(*seek)
	_, _, seek = c.flow(time.Now(), 4)
	require.Nil(t, seek)
	c.push(fetchOf(2, nil, "x"))
	require.Len(t, c.next(time.Now()).Records, 1)
}

// TestClaimRefusesToGoBack: offsets below what was read mean that the log is another.
func TestClaimRefusesToGoBack(t *testing.T) {
	c, _, _ := opened(t, 5)
	c.push(fetchOf(5, nil, "a", "b", "c"))
	c.push(fetchOf(7, nil, "c again"))
	require.Equal(t, StateParked, c.status().State)
	require.Equal(t, "offset 7 came after offset 7 had been read", c.status().Reason)
}

func TestClaimFlow(t *testing.T) {
	c, loop, _ := opened(t, 0)
	now := time.Now()
	flow := func(at time.Time) (paused, changed bool) { paused, changed, _ = c.flow(at, 4); return }
	is := func(paused, changed bool, at time.Time) {
		t.Helper()
		p, ch := flow(at)
		require.Equal(t, [2]bool{paused, changed}, [2]bool{p, ch})
	}
	is(false, false, now)
	c.push(fetchOf(0, nil, "0", "1", "2", "3", "4", "5", "6", "7"))
	has, full := c.room(4)
	require.False(t, has)
	require.True(t, full)
	is(false, false, now) // it may make room soon
	is(true, true, now.Add(holdPoll))
	is(true, false, now.Add(holdPoll))
	_, full = c.room(4)
	require.False(t, full, "paused, it gets no more whatever the others do")
	for range 3 {
		c.next(now)
		c.done()
		is(true, false, now.Add(holdPoll)) // 6, 4, 2 wait
	}
	wakes := loop.wakes
	c.next(now)
	require.Greater(t, loop.wakes, wakes, "it can be resumed")
	is(false, true, now)
	c.done()

	// A short time full does not add up.
	c.push(fetchOf(8, nil, "0", "1", "2", "3", "4", "5", "6", "7"))
	is(false, false, now)
	for range 3 {
		c.next(now)
		c.done()
	}
	is(false, false, now.Add(holdPoll)) // 2 wait
	c.push(fetchOf(16, nil, "8", "9"))
	is(false, false, now.Add(holdPoll))

	c.push(fetchOf(0, kerr.OffsetOutOfRange))
	is(true, true, now) // parked
	has, full = c.room(4)
	require.False(t, has || full)
}

// TestQuotas: one hot partition has all that may wait; the more the others have, the less,
// down to an equal part.
func TestQuotas(t *testing.T) {
	s := &session{claims: map[int32]*claim{}}
	for p := range int32(4) {
		s.claims[p], _, _ = opened(t, 0)
	}
	quotas := func() map[int32]int { return s.quotas(8) }
	require.Equal(t, map[int32]int{0: 16, 1: 16, 2: 16, 3: 16}, quotas())
	s.claims[2].push(fetchOf(0, nil, "0", "1", "2", "3", "4", "5"))
	require.Equal(t, map[int32]int{0: 10, 1: 10, 2: 16, 3: 10}, quotas())
	s.claims[0].push(fetchOf(0, nil, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"))
	require.Equal(t, map[int32]int{0: 10, 1: 4, 2: 6, 3: 4}, quotas())
	require.Equal(t, map[int32]int{0: 2, 1: 2, 2: 2, 3: 2}, s.quotas(1), "never nothing")
}

func TestClaimAsksForANewAssignment(t *testing.T) {
	c, loop, _ := opened(t, 0)
	c.fail(kafka.ErrFenced)
	now := time.Now()
	require.Nil(t, c.next(now.Add(time.Minute)))
	require.Zero(t, loop.rejoins)
	for i := range 2 { // at intervals
		require.Nil(t, c.next(now.Add(time.Duration(i+1)*(2*time.Minute+time.Second))))
		require.Nil(t, c.next(now.Add(time.Duration(i+1)*(2*time.Minute+time.Second))))
		require.Equal(t, i+1, loop.rejoins)
	}
	require.Equal(t, "input/0 fenced: another process owns this partition", c.status().String())
}

// TestSettledPosition: control records behind the position count when nothing is left,
// and a batch covers those that came with it.
func TestSettledPosition(t *testing.T) {
	c, _, _ := opened(t, 5)
	control := kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
	first := fetchOf(5, nil, "a", "marker")
	first.Records[1].Attrs = control
	first.LastStableOffset = 7
	c.push(first)
	require.EqualValues(t, 5, c.settled().Offset, "work is left")
	require.EqualValues(t, 1, c.status().Lag, "the marker is none")
	b := c.next(time.Now())
	require.Len(t, b.Records, 1)
	require.EqualValues(t, 7, b.Next.Offset, "the marker behind it is covered")
	c.process(t.Context())
	c.done()
	require.EqualValues(t, 7, c.settled().Offset)

	late := fetchOf(7, nil, "marker")
	late.Records[0].Attrs = control
	late.LastStableOffset = 8
	c.push(late)
	require.EqualValues(t, 7, c.InitialOffset(), "nothing was worked off")
	require.EqualValues(t, 8, c.settled().Offset)
	require.Zero(t, c.status().Lag)
}

// TestPositionHasTheEpochOfTheMarker: a leader may change between a transaction's records
// and its marker. A position behind the marker with the epoch of the records would look
// like lost data: that epoch ends before it. (Found by the simulation.)
func TestPositionHasTheEpochOfTheMarker(t *testing.T) {
	c, _, _ := opened(t, 5)
	p := fetchOf(5, nil, "a", "marker")
	p.Records[1].Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
	p.Records[1].LeaderEpoch = 4
	c.push(p)
	require.Equal(t, kafka.Position{Offset: 7, Epoch: 4}, c.next(time.Now()).Next)
	c.process(t.Context())
	c.done()
	late := fetchOf(7, nil, "marker")
	late.Records[0].Attrs, late.Records[0].LeaderEpoch = p.Records[1].Attrs, 5
	c.push(late)
	require.Equal(t, kafka.Position{Offset: 8, Epoch: 5}, c.settled())
}

// TestClaimFlowRemindsAfterASeek: the client, once it has been moved, is told once more to
// resume, after a while and only then.
func TestClaimFlowRemindsAfterASeek(t *testing.T) {
	c, loop, _ := opened(t, 5)
	moved := time.Now() // by opened, at the latest
	_, changed, _ := c.flow(moved.Add(2*kickAfter), 4)
	require.True(t, changed, "the reminder of the first seek")

	c.open(t.Context(), true)
	before := time.Now()
	_, changed, seek := c.flow(before, 4)
	require.NotNil(t, seek)
	require.False(t, changed, "nothing to be reminded of: the client has not moved yet")
	c.sought(*seek)
	_, changed, _ = c.flow(before.Add(kickAfter/2), 4)
	require.False(t, changed, "too soon")
	due := time.Now().Add(2 * kickAfter)
	wakes := loop.wakes
	c.next(due)
	require.Greater(t, loop.wakes, wakes, "the poll loop comes round for it")
	paused, changed, seek := c.flow(due, 4)
	require.True(t, changed)
	require.False(t, paused, "it is told to resume")
	require.Nil(t, seek)
	_, changed, _ = c.flow(due, 4)
	require.False(t, changed, "once")
}

// TestReopeningDoesNotClearAFailure that only Process finds: the partition shows it, since when it first failed, until a
// batch has gone well; and it is logged once, not at each look.
func TestReopeningDoesNotClearAFailure(t *testing.T) {
	c, _, _ := opened(t, 5)
	var log bytes.Buffer
	c.log = slog.New(slog.NewTextHandler(&log, nil))
	trouble := Park(CauseState, "do this", "it is broken")
	c.fail(trouble)
	first := c.status()
	require.Equal(t, "input/0 parked: it is broken (remedy: do this)", first.String())
	for range 2 {
		c.open(t.Context(), true)
		require.Equal(t, StateRunning, c.mu.state)
		require.Equal(t, first.String(), c.status().String())
		c.fail(trouble)
		require.Equal(t, first.Reason, c.status().Reason)
	}
	require.Equal(t, 1, strings.Count(log.String(), "partition is parked"), log.String())
	since := c.status().Since
	c.fail(trouble)
	require.Equal(t, since, c.status().Since, "the same trouble lasts")
	c.fail(Park(CauseState, "do that", "it is worse"))
	require.Less(t, since, c.status().Since, "another begins")
	require.Equal(t, 2, strings.Count(log.String(), "partition is parked"), log.String())

	c.open(t.Context(), true)
	c.sought(kgo.EpochOffset{Offset: 5, Epoch: 1})
	c.push(fetchOf(5, nil, "a"))
	require.NotNil(t, c.next(time.Now()))
	c.process(t.Context())
	c.done()
	require.Equal(t, "input/0 running", c.status().String())
	require.Contains(t, log.String(), "partition goes on")
}
