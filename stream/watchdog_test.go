package stream

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/refusal"
)

// A batch that does not end is reported, and an idle partition is not.
func TestStall(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 0)
	c.Produce(testkit.Records(input, 0, 0, 10)...)
	g := l.gate()
	var stall atomic.Value // the last one reported
	_, _ = c.run(l, func(o *ProcessorOptions) {
		o.watchInterval, o.stallTimeout = 10*time.Millisecond, 100*time.Millisecond
		o.stalled = func(why string) { stall.Store(why) }
	})
	g.wait(t)
	testkit.WaitFor(t, "a stall to be reported", func() bool { return stall.Load() != nil })
	require.Regexp(t, stalledAt(0, 10), stall.Load())
	close(g.open)
	l.waitProcessed(0, offsets(0, 10))
}

func stalledAt(offset, lag int64) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf("^input/0 running has stayed at offset %d for .*s, "+
		"with a lag of %d records, for no known reason$", offset, lag))
}

// A partition that was parked for long has not stalled when it resumes, nor has one without lag.
func TestStallStartsWhenThePartitionRuns(t *testing.T) {
	c, _, _, _ := opened(t, 5)
	var stalls int
	s := &session{opts: &ProcessorOptions{stallTimeout: time.Minute, stalled: func(string) { stalls++ }}}
	longAgo := time.Now().Add(-time.Hour)
	c.mu.movedAt, c.mu.since = longAgo, longAgo
	s.look(c)
	require.Zero(t, stalls, "there is nothing to do")
	c.Deliver(fetchOf(5, nil, "a"))
	c.mu.since = time.Now()
	s.look(c)
	require.Zero(t, stalls, "it was parked until now")
	c.mu.since = longAgo
	s.look(c)
	require.Equal(t, 1, stalls)
}

// Another process would get no answer from the leader either, so that ending this one would not help.
func TestPartitionWithoutLeaderHasNotStalled(t *testing.T) {
	t.Parallel()
	c, _ := newInput(t, 2, 10)
	var leaderless atomic.Bool
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !leaderless.Load() {
			return nil, nil, false
		}
		return refusal.EndsUnknown(req, 0, kerr.LeaderNotAvailable), nil, true
	})
	var stalls []int32
	s, err := newSession(t.Context(), c.Client(), &ProcessorOptions{Input: input, stallTimeout: time.Minute})
	require.NoError(t, err)
	for n := range int32(2) {
		p, _, _, _ := opened(t, 0)
		p.mu.movedAt, p.mu.since = time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)
		s.set(n, p)
	}
	watch := func() []int32 {
		s.askForEnds()
		stalls = nil
		for n, p := range s.partitions() {
			s.opts.stalled = func(string) { stalls = append(stalls, n) }
			s.look(p)
		}
		slices.Sort(stalls)
		return stalls
	}
	require.Equal(t, []int32{0, 1}, watch(), "both are 10 records behind")
	leaderless.Store(true)
	require.Equal(t, []int32{1}, watch())
	leaderless.Store(false)
	require.Equal(t, []int32{1}, watch(), "partition 0 has time to continue")
	s.partitions()[0].unanswered = time.Now().Add(-2 * time.Minute)
	require.Equal(t, []int32{0, 1}, watch())
}

// The client fetches nothing, so the partition seems to be idle, and its ticks succeed.
func TestStallOfAClientThatFetchesNothing(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 10)
	var stall atomic.Value
	var deaf atomic.Bool
	p, _ := c.run(l, func(o *ProcessorOptions) {
		o.TickInterval, o.watchInterval, o.stallTimeout = 5*time.Millisecond, 10*time.Millisecond, 300*time.Millisecond
		o.stalled = func(why string) { stall.Store(why) }
	})
	l.waitProcessed(0, offsets(0, 10))
	deaf.Store(true)
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !deaf.Load() {
			return nil, nil, false
		}
		return req.ResponseKind(), nil, true
	})
	c.Produce(testkit.Records(input, 0, 10, 5)...)
	testkit.WaitFor(t, "the stall to be reported", func() bool {
		why, _ := stall.Load().(string) // the first one may be from a slow start
		return stalledAt(10, 5).MatchString(why)
	})
	require.EqualValues(t, 5, p.statuses(t)[0].Lag)
	deaf.Store(false)
	l.waitProcessed(0, offsets(0, 15))
}

// A requested end is ignored if a fetch returned a later one since; otherwise it counts, even if the log was truncated.
func TestEndIsTheLatestReported(t *testing.T) {
	p, _, _, _ := opened(t, 5)
	q := p.queue
	before := q.end()
	p.Deliver(fetchOf(5, nil, "a", "b"))
	require.EqualValues(t, 8, q.end())
	q.endsAt(6, before)
	require.EqualValues(t, 8, q.end())
	q.endsAt(7, 8)
	require.EqualValues(t, 7, q.end())
}

func TestExitShowsTheReason(t *testing.T) {
	const child = "KUDOS_TEST_WATCHDOG"
	if os.Getenv(child) != "" {
		go stuckHere()
		die("input/0 does not move")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1", "GOTRACEBACK=single")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "panic: watchdog: input/0 does not move")
	require.Contains(t, string(out), "stuckHere")
}

func stuckHere() { select {} }

// TestOpenTransactionIsSeen: an open transaction has an age that grows until it ends. Idle partitions have none.
func TestOpenTransactionIsSeen(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 0)
	p, _ := c.run(l, func(o *ProcessorOptions) { o.watchInterval = 5 * time.Millisecond })
	of := func(partition int) (records, age float64) {
		values := testkit.Gauges(t, NewCollector(p))
		return values[fmt.Sprintf("kudos_hidden_records group %d", partition)],
			values[fmt.Sprintf("kudos_open_transaction_age_seconds group %d", partition)]
	}
	c.Produce(testkit.Records(input, 0, 0, 10)...)
	l.waitProcessed(0, offsets(0, 10))
	_, age := of(0)
	require.Zero(t, age, "nothing is written")

	writer := c.Client(kgo.TransactionalID("hanging"))
	require.NoError(t, writer.BeginTransaction())
	require.NoError(t, writer.ProduceSync(t.Context(), testkit.Records(input, 0, 0, 3)...).FirstErr())
	testkit.WaitFor(t, "the transaction to be old", func() bool { _, age := of(0); return age > 0.2 })
	records, _ := of(0)
	require.EqualValues(t, 3, records)
	records, age = of(1)
	require.Zero(t, records+age, "the other partition")
	require.NoError(t, p.Ready(), "counting continues")

	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryCommit))
	testkit.WaitFor(t, "its end", func() bool { records, age := of(0); return records+age == 0 })
	l.waitProcessed(0, offsets(0, 13))
}

// TestEndingTransactionsHaveNoAge: the last stable offset moves as fast as they end, although one is always open.
func TestEndingTransactionsHaveNoAge(t *testing.T) {
	t.Parallel()
	at := func(offset int64) kadm.ListedOffset { return kadm.ListedOffset{Topic: input, Offset: offset} }
	now := time.Now()
	var h hidden
	for offset := range int64(100) {
		now = now.Add(time.Second)
		h.observe(at(offset+2), at(offset), now)
		require.Zero(t, h.age)
	}
	now = now.Add(time.Second)
	h.observe(at(200), at(99), now)
	require.Equal(t, time.Second, h.age)
	h.observe(kadm.ListedOffset{}, at(99), now.Add(time.Second))
	require.Equal(t, time.Second, h.age, "an unknown end says nothing")
	h.observe(at(200), at(200), now.Add(time.Hour))
	require.Zero(t, h.age, "nothing is written")
	h.observe(at(201), at(200), now.Add(2*time.Hour))
	require.Zero(t, h.age, "the age is not that of the offset")
}
