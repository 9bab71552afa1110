package stream

import (
	"os"
	"os/exec"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

// A batch that does not end is reported, and an idle partition is not.
func TestStall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 2)
	c.Produce(testkit.Records(input, 0, 0, 10)...)
	l := newLab(t)
	g := l.gate()
	stalls := make(chan string, 1)
	_, _ = c.run(l, func(o *ProcessorOptions) {
		o.watchInterval, o.stallTimeout = 10*time.Millisecond, 100*time.Millisecond
		o.stalled = func(why string) {
			select {
			case stalls <- why:
			default:
			}
		}
	})
	g.wait(t)
	select {
	case why := <-stalls:
		require.Regexp(t, `^input/0 running has stayed at offset 0 for .*s, with a lag of 10 records, for no known reason$`, why)
	case <-time.After(testkit.Patience):
		t.Fatal("no stall was reported")
	}
	close(g.open)
	l.waitProcessed(0, offsets(0, 10))
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

// The client fetches nothing, so the partition seems to be idle, and its ticks succeed.
func TestStallOfAClientThatFetchesNothing(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 10)
	stalls := make(chan string, 1)
	var deaf atomic.Bool
	p, _ := c.run(l, func(o *ProcessorOptions) {
		o.TickInterval, o.watchInterval, o.stallTimeout = 5*time.Millisecond, 10*time.Millisecond, 300*time.Millisecond
		o.stalled = func(why string) {
			if !deaf.Load() {
				return // a slow start
			}
			select {
			case stalls <- why:
			default:
			}
		}
	})
	l.waitProcessed(0, offsets(0, 10))
	deaf.Store(true)
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !deaf.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		return resp, nil, true
	})
	c.Produce(testkit.Records(input, 0, 10, 5)...)
	told := regexp.MustCompile(`^input/0 running has stayed at offset 10 for .*s, with a lag of 5 records, for no known reason$`)
	deadline := time.After(testkit.Patience)
	for why := ""; !told.MatchString(why); {
		select {
		case why = <-stalls: // the first one may be from the start
		case <-deadline:
			t.Fatalf("the stall was not reported, only %q", why)
		}
	}
	statuses, err := p.Status()
	require.NoError(t, err)
	require.EqualValues(t, 5, statuses[0].Lag)
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
