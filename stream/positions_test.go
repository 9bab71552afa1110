package stream

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
)

const none = -100 // there is no committed offset

func (c *cluster) committedAt(p int32) int64 {
	if g := c.GroupInfo(testGroup); g != nil {
		if commit, ok := g.Commits[input][p]; ok {
			return commit.Offset
		}
	}
	return none
}

// Committed offsets reach the end of the log, markers and aborted records included, so that an idle group shows no lag.
func TestPositionsAreCommittedForDashboards(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 2)
	for i := range 3 {
		c.Transact("t", testkit.Commit(), testkit.Records(input, 0, 10*i, 10)...)
	}
	c.Transact("t", testkit.Abort(), testkit.Records(input, 0, 100, 5)...)
	l := newLab(t)
	p, stop := c.run(l, func(o *ProcessorOptions) { o.CommitPositions = true })
	for part := range int32(2) {
		testkit.WaitFor(t, "committed offset", func() bool { return c.committedAt(part) == c.End(input, part) })
	}
	require.Len(t, l.processed(0), 30)
	require.EqualValues(t, 0, c.committedAt(1), "an empty partition has a position, too")
	for _, s := range p.statuses(t) {
		require.Zero(t, s.Lag, "%v", s)
	}

	c.Transact("t", testkit.Commit(), testkit.Records(input, 0, 200, 5)...)
	testkit.WaitFor(t, "its work", func() bool { return len(l.processed(0)) == 35 })
	testkit.WaitFor(t, "the position to be recorded", func() bool {
		s, err := p.Status()
		return err == nil && s[0].Position == l.position(0)
	})
	stop()
	require.GreaterOrEqual(t, l.position(0).Offset, c.End(input, 0)-1, "the marker may come later")
	require.GreaterOrEqual(t, c.committedAt(0), l.position(0).Offset, "committed once more at shutdown")
}

// A partition that has never been opened has no position to commit, least of all the start of the log.
func TestParkedPartitionCommitsNothing(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 5)
	l.open = func(_ context.Context, w *fakeWorker) error {
		if w.a.Partition == 0 {
			return Park(CauseState, "wait", "not yet")
		}
		return nil
	}
	p, _ := c.run(l, func(o *ProcessorOptions) { o.CommitPositions = true })
	testkit.WaitFor(t, "the other partition's commit", func() bool { return c.committedAt(1) == 5 })
	require.EqualValues(t, none, c.committedAt(0))
	require.EqualValues(t, -1, p.statuses(t)[0].Position.Offset)
}

// An idle group sends heartbeats and fetches, and otherwise only requests the ends of the logs now and then.
func TestIdleGroupIsQuiet(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{false, true} {
		t.Run(fmt.Sprintf("committing positions %v", commit), func(t *testing.T) {
			c, l := newInput(t, 2, 0)
			c.Transact("t", testkit.Commit(), testkit.Records(input, 0, 0, 10)...)
			p, _ := c.run(l, func(o *ProcessorOptions) {
				o.CommitPositions, o.SessionTimeout, o.watchInterval = commit, 1500*time.Millisecond, time.Hour
			})
			l.waitProcessed(0, offsets(0, 10))
			if commit {
				testkit.WaitFor(t, "the commit", func() bool { return c.committedAt(0) == 11 && c.committedAt(1) == 0 })
			}
			testkit.WaitFor(t, "no lag", func() bool { s, err := p.Status(); return err == nil && s[0].Lag == 0 })
			heartbeats := func(n int64, counts *testkit.RequestCounts) {
				testkit.WaitFor(t, "heartbeats", func() bool { return counts.Of(kmsg.Heartbeat) >= n })
			}
			// Let requests in flight finish; a metadata request may be delayed by MetadataMinAge.
			heartbeats(2, c.CountRequests())
			counts := c.CountRequests()
			heartbeats(4, counts)
			for k := range int16(90) {
				if key := kmsg.Key(k); key != kmsg.Heartbeat && key != kmsg.Fetch {
					require.Zero(t, counts.Of(key), key.Name())
				}
			}
			require.Less(t, counts.Of(kmsg.Fetch), int64(20), "it uses long polls")
		})
	}
}

// Lag counts pending records, records in flight, and what only the broker has.
func TestLagIsEndMinusPosition(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 1, 0)
	c.Transact("t", testkit.Commit(), testkit.Records(input, 0, 0, 2000)...)
	g := newGate()
	var batches atomic.Int32
	l.process = func(ctx context.Context, _ *fakeWorker, b *Batch) error {
		if len(b.Records) == 0 || batches.Add(1) == 1 {
			return nil
		}
		return g.pass(ctx, b.Partition)
	}
	p, _ := c.run(l, nil)
	g.wait(t)
	statuses := p.statuses(t)
	require.EqualValues(t, 1901, statuses[0].Lag, "with the marker, which has not been read yet")
	require.Equal(t, kafka.Position{Offset: 100, Epoch: 0}, statuses[0].Position)

	got := testkit.Gauges(t, NewCollector(p))
	for _, cause := range causes {
		name := fmt.Sprintf("kudos_parked_partitions %s group", cause)
		require.Contains(t, got, name)
		require.Zero(t, got[name])
		delete(got, name)
	}
	require.Positive(t, got["kudos_position_age_seconds group 0"])
	delete(got, "kudos_position_age_seconds group 0")
	require.Equal(t, map[string]float64{"kafka_consumergroup_lag group 0 input": 1901, "kudos_position group 0": 100,
		"kudos_hidden_records group 0": 0, "kudos_open_transaction_age_seconds group 0": 0,
		"kudos_partition_state group 0 running": 1}, got)
	close(g.open)
	l.waitProcessed(0, offsets(0, 2000))
	testkit.WaitFor(t, "no lag", func() bool { s, _ := p.Status(); return s[0].Lag == 0 })
}
