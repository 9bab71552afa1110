package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/store"
)

type standbyMember struct {
	*Processor
	stores, copies *store.Set
	warnings       bytes.Buffer // of the processor; it must have stopped
	stop           func()
}

func (c *cluster) runStandby(dir string) *standbyMember {
	m := &standbyMember{stores: store.NewSet(dir, 8<<20, testkit.Log())}
	m.stores.BufferBytes = 1 << 20
	m.copies = m.stores.Standby()
	c.t.Cleanup(m.stores.Close)
	c.t.Cleanup(m.copies.Close)
	o := c.copierOptions()
	o.Standby = m.copies
	warnings := slog.NewTextHandler(&m.warnings, &slog.HandlerOptions{Level: slog.LevelWarn})
	log := slog.New(slog.NewMultiHandler(testkit.Log().Handler(), warnings))
	m.Processor = NewProcessor(o, func(a Assignment) Worker { return c.newCopier(a, m.stores) }, log)
	c.t.Cleanup(func() { assert.NotContains(c.t, m.warnings.String(), "level=ERROR") })
	m.stop = testrun.Start(c.t, "the processor", testkit.Patience, m.Run)
	return m
}

func (m *standbyMember) owned() (partitions []int32) {
	statuses, _ := m.Status()
	for _, s := range statuses {
		if s.State == StateRunning {
			partitions = append(partitions, s.Partition)
		}
	}
	return partitions
}

func (m *standbyMember) followed() (partitions []int32) {
	for _, s := range m.standbyCopies() {
		if s.State == StateRunning && s.Lag == 0 {
			partitions = append(partitions, s.Partition)
		}
	}
	return partitions
}

// covers reports whether the replicas of partitions have their logs up to the end.
func (m *standbyMember) covers(c *cluster, partitions []int32) bool {
	return !slices.ContainsFunc(partitions, func(p int32) bool { return !ends(m.copies, p, c.End(testkit.Table, p)-1) })
}

// shares reports whether each of two members owns one partition and follows the other one's.
func shares(c *cluster, a, b *standbyMember) bool {
	mine, others := a.owned(), b.owned()
	return len(mine) == 1 && len(others) == 1 && slices.Equal(a.followed(), others) &&
		slices.Equal(b.followed(), mine) && a.covers(c, others) && b.covers(c, mine)
}

// Partitions of another process are followed, and taking one over reads nothing that was followed; a released partition
// is followed from then on. No session fails because a directory is in use.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	c := copierCluster(t, &testkit.Wire{})
	total := 0
	add := func(n int) {
		for p := range int32(2) {
			c.count(p, n, func(i int) string { return fmt.Sprintf("%03d", i) })
			testkit.WaitFor(t, "the output", func() bool { return len(c.values(output, p)) == total+n })
		}
		total += n
	}
	first := c.runStandby(t.TempDir())
	testkit.WaitFor(t, "the first member to own both", func() bool { return len(first.owned()) == 2 })
	add(500)
	require.Empty(t, first.standbyCopies(), "owned partitions have no standby replica")
	second := c.runStandby(t.TempDir())
	testkit.WaitFor(t, "sharing", func() bool { return shares(c, first, second) })
	require.GreaterOrEqual(t, second.stores.Replayed(), int64(500), "it had no replica of its partition")
	add(500)
	testkit.WaitFor(t, "the replicas to follow", func() bool { return shares(c, first, second) })
	require.Equal(t, map[string]float64{"kudos_standby_copies group opening": 0,
		"kudos_standby_copies group following": 1, "kudos_standby_copies group failing": 0,
		fmt.Sprintf("kudos_standby_behind_records group %d", first.owned()[0]): 0,
	}, testkit.Gauges(t, NewStandbyCollector(second.Processor)))

	recovered := second.stores.Replayed()
	first.stop()
	testkit.WaitFor(t, "the takeover", func() bool { return len(second.owned()) == 2 })
	require.Equal(t, recovered, second.stores.Replayed(), "the replica was complete")
	require.Empty(t, second.standbyCopies(), "owned partitions are not followed")
	add(500)

	third := c.runStandby(t.TempDir())
	testkit.WaitFor(t, "the partitions to be shared again", func() bool { return shares(c, second, third) })
	add(500) // the released partition is another one than the followed one
	testkit.WaitFor(t, "the replicas to follow again", func() bool { return shares(c, second, third) })
	recovered = second.stores.Replayed()
	third.stop()
	testkit.WaitFor(t, "the second takeover", func() bool { return len(second.owned()) == 2 })
	require.Equal(t, recovered, second.stores.Replayed(), "the replica was complete")
	add(500)

	second.stop()
	for _, m := range []*standbyMember{first, second, third} {
		require.NotContains(t, m.warnings.String(), "partition is parked", "no directory has two users")
	}
	for p := range int32(2) {
		have, _ := closed(t, second.stores, p)
		require.Len(t, have, 500)
		for _, pair := range have {
			key, value, _ := strings.Cut(pair, "=")
			require.EqualValues(t, total/500, binary.BigEndian.Uint64([]byte(value)),
				"all counts of %s, whichever member counted", key)
		}
	}
}

// A process whose replica cannot be written is ready, and processes the partitions that it owns.
func TestStandbyFailureDoesNotAffectOwnedPartitions(t *testing.T) {
	t.Parallel()
	c := copierCluster(t, &testkit.Wire{})
	dir := t.TempDir()
	first, second := c.runStandby(dir), c.runStandby(t.TempDir())
	testkit.WaitFor(t, "sharing", func() bool {
		return len(first.owned()) == 1 && len(second.owned()) == 1 && len(first.followed()) == 1
	})
	mine, other := first.owned()[0], first.followed()[0]
	directory := filepath.Join(dir, testkit.Table, fmt.Sprint(other))
	require.NoError(t, os.RemoveAll(directory))
	require.NoError(t, os.WriteFile(directory, nil, 0o600))
	first.copies.Get(testkit.Table, other).Distrust(errors.New("for a test")) // its next write uses the disk
	c.Add(input, 0, 5)
	testkit.WaitFor(t, "the replica to fail", func() bool { return first.standbyCopies()[0].State == StateParked })
	require.NoError(t, first.Ready())
	c.Produce(testkit.Records(input, mine, 5, 5)...)
	testkit.WaitFor(t, "the output", func() bool { return len(c.values(output, mine)) == 10 })
	require.Equal(t, []int32{mine}, first.owned())
	require.NoError(t, os.Remove(directory))
	testkit.WaitFor(t, "the replica to recover", func() bool {
		return slices.Equal(first.followed(), []int32{other}) && first.covers(c, []int32{other})
	})
}
