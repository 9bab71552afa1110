package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
)

// failing returns a process hook that fails partition 0 with err, unless that is nil, but not at ticks: on a busy
// machine each comes before the records, which would never be processed.
func failing(err *atomic.Pointer[error]) func(context.Context, *fakeWorker, *Batch) error {
	return func(_ context.Context, w *fakeWorker, b *Batch) error {
		if w.a.Partition == 0 && len(b.Records) > 0 {
			return *err.Load()
		}
		return nil
	}
}

func set(p *atomic.Pointer[error], err error) { p.Store(&err) }

func TestParkedPartitionDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 10)
	var failure atomic.Pointer[error]
	set(&failure, Park(CauseTopics, "turn it off and on again", "the %s is full", "basket"))
	l.process = failing(&failure)
	const stallTimeout = 2 * time.Second
	p, _ := c.run(l, func(o *ProcessorOptions) {
		o.LossAction = "accept the loss" // must not be shown: nothing is lost
		o.watchInterval, o.stallTimeout = 10*time.Millisecond, stallTimeout
		o.stalled = func(why string) { t.Errorf("neither partition is stalled: %s", why) }
	})
	l.waitProcessed(1, offsets(0, 10))
	testkit.WaitFor(t, "the partition to park", func() bool {
		return l.count(0, "Process") > 0 && p.partition(0).Status().State == StateParked
	})
	require.EqualError(t, p.Ready(),
		"group group: input/0 parked: the basket is full (action: turn it off and on again)")
	statuses := p.statuses(t)
	require.Equal(t, StateParked, statuses[0].State)
	require.Equal(t, Failure{CauseTopics, "the basket is full", "turn it off and on again"}, statuses[0].Failure)
	got := testkit.Gauges(t, NewCollector(p))
	require.EqualValues(t, 1, got["kudos_parked_partitions topics group"])
	require.Contains(t, got, "kudos_parked_partitions loss group")
	require.Zero(t, got["kudos_parked_partitions loss group"])
	require.Equal(t, StateRunning, statuses[1].State)

	// It is retried again and again; what arrives meanwhile waits in Kafka.
	testkit.WaitFor(t, "more retries", func() bool { return l.count(0, "Fence") >= 3 })
	c.Add(input, 10, 10)
	l.waitProcessed(1, offsets(0, 20))
	require.Empty(t, l.processed(0))
	require.Error(t, p.Ready())
	require.Equal(t, 1, l.count(1, "Fence"), "the other partition is not affected")
	testkit.WaitFor(t, "the lag of unread records", func() bool {
		statuses, err := p.Status()
		return err == nil && statuses[0].Lag == 20 && statuses[0].Stands > stallTimeout
	})

	set(&failure, nil)
	l.waitProcessed(0, offsets(0, 20))
	p.waitReady(t)
}

// After a ParkError a partition is retried at the park interval, else with growing delays up to it, by Close and Fence.
func TestParkIntervalAndBackoff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want []time.Duration // minimum delays between the failures and their retries
	}{
		"park": {Park(CauseState, "none", "no way"), []time.Duration{300 * time.Millisecond, 300 * time.Millisecond}},
		"unknown error": {errors.New("what is that"), []time.Duration{50 * time.Millisecond, 100 * time.Millisecond,
			200 * time.Millisecond, 300 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := newInput(t, 1, 1)
			var failure atomic.Pointer[error]
			set(&failure, tc.err)
			l.process = failing(&failure)
			c.run(l, func(o *ProcessorOptions) {
				o.ParkInterval, o.TickInterval = 300*time.Millisecond, 20*time.Microsecond // a tick before the record
			})
			testkit.WaitFor(t, "the retries", func() bool { return l.count(0, "Fence") > len(tc.want)+1 })
			set(&failure, nil)
			l.waitProcessed(0, offsets(0, 1))
			seen := l.at(0)
			calls, times := seen.calls, seen.times
			looks, failed := 0, time.Time{}
			for i, call := range calls {
				if call == "Close" && i > 0 && calls[i-1] != "Close" {
					failed = times[i] // the first Close follows the failure at once
				}
				if call != "Fence" || i == 0 {
					continue
				}
				require.Equal(t, "Close", calls[i-1], "%v", calls)
				require.Equal(t, "Open", calls[i+1], "%v", calls)
				if looks < len(tc.want) {
					require.GreaterOrEqual(t, times[i].Sub(failed), tc.want[looks], "retry %d", looks)
				}
				looks++
			}
		})
	}
}

func TestReopenReadsThePositionAgain(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int64{"backwards": 3, "forwards": 45, "same": 20, "past the end": 50} {
		t.Run(name, func(t *testing.T) {
			c, l := newInput(t, 1, 20)
			var moved atomic.Bool
			produced := make(chan struct{}) // no position is past the end of the log
			p, stop := c.run(l, func(o *ProcessorOptions) { o.MaxBatch = 4 })
			l.waitProcessed(0, offsets(0, 20))
			l.mu.Lock()
			l.of(0).done = nil
			l.process = func(_ context.Context, w *fakeWorker, b *Batch) error {
				if len(b.Records) == 0 || moved.Swap(true) {
					return nil
				}
				<-produced
				l.setPosition(0, kafka.Position{Offset: to, Epoch: -1})
				return Reopen("somebody moved it")
			}
			l.mu.Unlock()
			c.Produce(testkit.Records(input, 0, 20, 30)...)
			close(produced)
			testkit.WaitFor(t, "the move", moved.Load)
			c.Produce(testkit.Records(input, 0, 50, 5)...)
			l.waitProcessed(0, offsets(to, 55)) // the lab rejects anything stale
			require.Equal(t, 2, l.count(0, "Fence"))
			p.waitReady(t)
			partition := p.partition(0)
			stop()
			require.Zero(t, partition.failures, "reopening is not a failure")
		})
	}
}

// After ErrFenced, Fence is not called before the group has made a new assignment, which is requested if none comes.
func TestFencedPartitionIsGivenUp(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 10)
	var failure atomic.Pointer[error]
	set(&failure, fmt.Errorf("committing: %w: %w", kafka.ErrFenced, kerr.ProducerFenced))
	l.process = func(ctx context.Context, w *fakeWorker, b *Batch) error {
		if len(b.Records) == 0 {
			return nil // a slow broker: a tick comes before the first batch
		}
		return failing(&failure)(ctx, w, b)
	}
	p, _ := c.run(l, func(o *ProcessorOptions) { o.SessionTimeout = 2 * time.Second })
	testkit.WaitFor(t, "the fencing", func() bool {
		c := p.partition(0)
		return c != nil && c.Status().State == StateFenced && l.count(0, "Close") > 0
	})
	session := p.partition(0)
	require.ErrorContains(t, p.Ready(), "input/0 fenced: committing: this process lost the partition")
	session.Deliver(fetchOf(0, kerr.OffsetOutOfRange)) // what the client may still report
	require.Equal(t, StateFenced, session.Status().State)
	l.waitProcessed(1, offsets(0, 10))

	set(&failure, nil)
	l.waitProcessed(0, offsets(0, 10))
	seen := l.at(0)
	calls, times := seen.calls, seen.times
	first := slices.Index(calls, "Process") - 2 // a session may be lost before it
	require.Equal(t, []string{"Fence", "Open", "Process", "Close", "Fence", "Open"}, calls[first:first+6])
	require.GreaterOrEqual(t, times[first+4].Sub(times[first+3]), 2*time.Second, "it waits for a rebalance first")
	require.Equal(t, 1, l.count(1, "Fence"), "the rebalance that it asked for concerns no other")
	p.waitReady(t)
}

// A partition whose Fence failed at assignment is opened later, at its position, and nothing is fetched for it before.
func TestFailedFenceParks(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 10)
	require.NoError(t, c.DeleteRecords(input, 0, 4)) // fetching at 0 would be an error
	l.setPosition(0, kafka.Position{Offset: 7, Epoch: -1})
	var failures atomic.Int32
	l.fence = func(_ context.Context, w *fakeWorker) error {
		if w.a.Partition == 0 && failures.Add(1) <= 3 {
			return errors.New("the coordinator is unavailable")
		}
		return nil
	}
	reasons := map[string]bool{}
	p, _ := c.run(l, nil)
	testkit.WaitFor(t, "its records to be processed", func() bool {
		if first := p.partition(0); first != nil { // an assignment in progress has not started it yet
			if status := first.Status(); status.State == StateParked {
				reasons[status.Reason] = true
			}
		}
		return len(l.processed(0)) == 3
	})
	require.Equal(t, offsets(7, 10), l.processed(0))
	require.Subset(t, []string{"the coordinator is unavailable"}, slices.Collect(maps.Keys(reasons)))
	l.waitProcessed(1, offsets(0, 10))
}

func TestFetchErrorsAreRetried(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	c.Topic(input, 1)
	l := newLab(t)
	c.run(l, nil)
	for i, e := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.KafkaStorageError, kerr.UnknownServerError} {
		fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: input, Err: e})
		require.NoError(t, fault.Wait(testkit.Context(t), 1))
		require.NoError(t, c.MoveTopicPartition(input, 0, int32(i)))
		c.Produce(testkit.Records(input, 0, 10*i, 10)...)
		l.waitProcessed(0, offsets(0, int64(10*i+10)))
	}
}

// TestOutageIsLoggedOnceByAPartition, although each step fails in other words; at the end with how often it failed.
func TestOutageIsLoggedOnceByAPartition(t *testing.T) {
	p, _, _, _ := opened(t, 5)
	var log bytes.Buffer
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	p.fail(errors.New("apply: connection refused"))
	for range 3 {
		p.retryAt = time.Now()
		require.True(t, p.Step(t.Context()))
		p.fail(errors.New("read the position: connection refused"))
	}
	require.Equal(t, 1, strings.Count(log.String(), "partition is parked"), log.String())
	require.Contains(t, p.Status().Reason, "read the position", "/readyz has the last one")
	p.fail(Park(CauseState, "do this", "it is broken"))
	require.Equal(t, 2, strings.Count(log.String(), "partition is parked"), log.String())

	p.retryAt = time.Now()
	require.True(t, p.Step(t.Context()))
	p.queue.seekConfirmed(kafka.Position{Offset: 5, Epoch: 1})
	p.Deliver(fetchOf(5, nil, "a"))
	require.True(t, p.Step(t.Context()))
	require.Regexp(t, `"partition resumes".* failed_attempts=4`, log.String())
}
