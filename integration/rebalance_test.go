package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// opened returns how often the process has opened a partition of likes and of like-updates.
func (p *process) opened(n int32) (times int) {
	for line := range strings.Lines(p.logged()) {
		if strings.Contains(line, "partition_running") && strings.Contains(line, fmt.Sprintf(`"partition":%d,`, n)) {
			times++
		}
	}
	return times
}

// aligned reports whether it works on the same partitions in both groups.
func (p *process) aligned() bool {
	counted := p.samples("kudos_partition_state", map[string]string{"group": schema.GroupApply, "state": "running"})
	mine := p.running()
	for _, s := range counted {
		mine = slices.DeleteFunc(mine, func(n int32) bool { return fmt.Sprint(n) == s.labels["partition"] })
	}
	return len(counted) == len(p.running()) && len(mine) == 0
}

// TestRebalanceStopsOnlyWhatMoves: of two processors, one is killed, started, and restarted gracefully, under load. The
// other one never opens its half again. Both groups of a process have the same partitions, also after a restart.
// The log shows for how long no count of a partition became visible in MySQL.
func TestRebalanceStopsOnlyWhatMoves(t *testing.T) {
	s := verified(t, func(s *system) { s.partitions, s.sessionTimeout = 8, "10s" })
	two := s.twoProcessors()
	victim, other := two[0], two[1]
	user := uint64(0)
	stop := s.keepSending(1, 0, nil, func(send func(schema.Event)) {
		user++
		for n := range int32(s.partitions) {
			send(likeNow(s.postIn(n), user))
		}
	})
	visible := newStillness()
	s.watchMySQL(visible)
	shared := func() {
		victim.waitAlive()
		other.waitAlive()
		s.waitShared(false, victim, other)
		waitFor(t, time.Minute, "both groups to agree", func() bool { return victim.aligned() && other.aligned() })
	}
	shared()
	lost, stays := victim.running(), other.running()
	before := map[int32]int{}
	for _, n := range stays {
		before[n] = other.opened(n)
		require.GreaterOrEqual(t, before[n], 2, "in both groups")
	}
	step := func(what string, do func()) {
		pause(t, 2*time.Second)
		t.Logf("before: %v", visible.takeEach())
		do()
		done := time.Now()
		waitFor(t, time.Minute, "all counts to move", func() bool { return visible.movedSince(done, s.partitions) })
		worst := visible.takeEach()
		of := func(partitions []int32) (list []time.Duration) {
			for _, n := range partitions {
				list = append(list, worst[n].Round(time.Millisecond))
			}
			return list
		}
		t.Logf("%s: its half stood still for %v, the other half for %v", what, of(lost), of(stays))
		for _, n := range stays {
			require.Equal(t, before[n], other.opened(n), "%s: partition %d was opened again", what, n)
			require.Less(t, worst[n], 5*time.Second, "%s: partition %d waited for the rebalance", what, n)
		}
	}
	step("killed", func() {
		victim.kill()
		waitFor(t, time.Minute, "the takeover", func() bool { return len(other.running()) == s.partitions })
	})
	step("started", func() { victim.start(); shared() })
	require.ElementsMatch(t, lost, victim.running(), "it has its own partitions again")
	step("restarted gracefully", func() { victim.stop(); victim.start(); shared() })
	step("killed and started at once", func() { victim.kill(); victim.start(); shared() })
	require.ElementsMatch(t, lost, victim.running(), "it has its own partitions again")
	stop()
	require.Len(t, slices.Collect(maps.Keys(before)), s.partitions/2)
	s.drainExact(time.Minute)
}
