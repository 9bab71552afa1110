package integration

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/tier"
	"kudos/schema"
)

func ofTheFold(state string) map[string]string {
	return map[string]string{"group": schema.GroupFold, "state": state}
}

// running returns the partitions of likes that the processor works on.
func (p *process) running() (partitions []int32) {
	for _, s := range p.samples("kudos_partition_state", ofTheFold("running")) {
		n, err := strconv.Atoi(s.labels["partition"])
		require.NoError(p.t, err)
		partitions = append(partitions, int32(n))
	}
	return partitions
}

// follows reports whether it has n standby replicas, none of them behind.
func (p *process) follows(n int) bool {
	following := p.samples("kudos_standby_copies", ofTheFold("following"))
	replicas := p.samples("kudos_standby_behind_records", map[string]string{"group": schema.GroupFold})
	atTheEnd := slices.DeleteFunc(replicas, func(s sample) bool { return s.value != 0 })
	return len(following) == 1 && following[0].value == float64(n) && len(atTheEnd) == n
}

// recovered is how many changelog records it has read to open partitions.
func (p *process) recovered() int {
	samples := p.samples("kudos_state_replayed_records_total", map[string]string{"role": "processor"})
	require.Len(p.t, samples, 1)
	return int(samples[0].value)
}

// waitShared waits until two processors have half of the partitions each and, if copies is set, standbys of the rest.
func (s *system) waitShared(copies bool, a, b *process) {
	half := s.partitions / 2
	waitFor(s.t, 2*time.Minute, "the processors to share the partitions", func() bool {
		return len(a.running()) == half && len(b.running()) == half && (!copies || a.follows(half) && b.follows(half))
	})
}

func (s *system) changelog(partitions []int32) (n int) {
	s.readAll(schema.TopicState, func(rec *kgo.Record) {
		if slices.Contains(partitions, rec.Partition) {
			n++
		}
	})
	return n
}

// killUnderLoad kills a processor in the middle of a log, and returns how many changelog records the other one had to
// read, and how long it took, until it works on all partitions.
func (s *system) killUnderLoad(seed uint64, victim, survivor *process) (recovered int, took time.Duration) {
	before := survivor.recovered()
	s.toggles(seed, 40_000)
	victim.kill()
	killed := time.Now()
	committed, end := s.standing()
	require.Less(s.t, committed, end, "the log was fully consumed before the kill")
	waitFor(s.t, 2*time.Minute, "the takeover", func() bool { return len(survivor.running()) == s.partitions })
	return survivor.recovered() - before, time.Since(killed)
}

// TestTakeoverReadsWhatWasNotFollowed: one of two processors is killed under load. With standby replicas, the other
// one reads next to nothing to take over its partitions; without them, it reads all of their state tables. The counts
// are exact in both cases. Partitions that a processor gives up become standby replicas too.
func TestTakeoverReadsWhatWasNotFollowed(t *testing.T) {
	parallel(t, tier.Turn(0))
	pairs := fromEnv(t, "KUDOS_TEST_EVENTS", 300_000)
	for _, standby := range []bool{false, true} {
		t.Run(fmt.Sprintf("standby=%v", standby), func(t *testing.T) {
			s := newRealSystem(t)
			s.pour(func(send func(schema.Event)) {
				for i := range uint64(pairs) {
					send(likeNow(1+i%5000, 1+i))
				}
			})
			loader := s.processor("loader").start()
			s.drain(3 * time.Minute)
			loader.stop()

			// Batches are so small that the log lasts until the kill.
			args := []string{"--set", "processor.max_batch=50", "--set", fmt.Sprintf("processor.standby=%v", standby)}
			two := s.twoProcessors(args...)
			victim, survivor := two[0], two[1]
			victim.waitAlive()
			survivor.waitAlive()
			s.waitShared(standby, victim, survivor)
			whole := s.changelog(victim.running())
			require.Greater(t, whole, pairs/4)
			all := s.changelog(slices.Concat(victim.running(), survivor.running()))

			recovered, took := s.killUnderLoad(2, victim, survivor)
			t.Logf("takeover with %d changelog records: %d read, %v after the kill (session timeout %s)", whole,
				recovered, took.Round(time.Millisecond), s.sessionTimeout)
			if !standby {
				// Since its start: it may have had some of the victim's partitions before.
				require.GreaterOrEqual(t, survivor.recovered(), all)
				s.drainExact(3 * time.Minute)
				return
			}
			require.Less(t, recovered, whole/20)
			s.drain(3 * time.Minute)

			// The other way round: the survivor keeps replicas of the partitions that it gives up now.
			victim.start().waitAlive()
			s.waitShared(standby, victim, survivor)
			recovered, took = s.killUnderLoad(3, survivor, victim)
			t.Logf("reverse takeover: %d read, %v after the kill", recovered, took.Round(time.Millisecond))
			require.Less(t, recovered, whole/20)
			s.drainExact(3 * time.Minute)
		})
	}
}
