package integration

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// metered is a processor that is asked for its metrics.
type metered struct {
	*stack.Server
	t     testing.TB
	admin string
}

func (s *system) meteredProcessor(name string, args ...string) *metered {
	s.t.Helper()
	s.admin = s.address()
	p := &metered{s.processor(name, args...), s.t, s.admin}
	p.start()
	return p
}

func (p *metered) start() {
	p.t.Helper()
	require.NoError(p.t, p.Start(p.t.Context()))
	waitFor(p.t, time.Minute, p.Server.String()+" to answer", func() bool { return answers(p.t, "http://"+p.admin+"/livez") })
}

// samplesOf are the samples of a metric with these labels.
func (p *metered) samplesOf(name string, labels map[string]string) (found []*dto.Metric) {
	for _, m := range scrape(p.t, p.admin)[name].GetMetric() {
		fits := 0
		for _, l := range m.GetLabel() {
			if labels[l.GetName()] == l.GetValue() {
				fits++
			}
		}
		if fits == len(labels) {
			found = append(found, m)
		}
	}
	return found
}

// running are the partitions of likes that it works on.
func (p *metered) running() (partitions []int32) {
	for _, m := range p.samplesOf("kudos_partition_state", map[string]string{"group": schema.GroupFold, "state": "running"}) {
		for _, l := range m.GetLabel() {
			if l.GetName() == "partition" {
				n, err := strconv.Atoi(l.GetValue())
				require.NoError(p.t, err)
				partitions = append(partitions, int32(n))
			}
		}
	}
	return partitions
}

// follows tells whether it has n standby copies, none of them behind.
func (p *metered) follows(n int) bool {
	following := p.samplesOf("kudos_standby_copies", map[string]string{"group": schema.GroupFold, "state": "following"})
	atTheEnd := 0
	for _, m := range p.samplesOf("kudos_standby_behind_records", map[string]string{"group": schema.GroupFold}) {
		if m.GetGauge().GetValue() == 0 {
			atTheEnd++
		}
	}
	return len(following) == 1 && following[0].GetGauge().GetValue() == float64(n) && atTheEnd == n
}

// recovered is how many records of the changelog it has read to open partitions.
func (p *metered) recovered() int {
	samples := p.samplesOf("kudos_state_replayed_records_total", map[string]string{"role": "processor"})
	require.Len(p.t, samples, 1)
	return int(samples[0].GetCounter().GetValue())
}

// waitShared waits until two processors have half of the partitions each, and with copies also
// a copy of the other half.
func (s *system) waitShared(copies bool, a, b *metered) {
	s.t.Helper()
	half := s.partitions / 2
	waitFor(s.t, 2*time.Minute, "the processors to share the partitions", func() bool {
		return len(a.running()) == half && len(b.running()) == half && (!copies || a.follows(half) && b.follows(half))
	})
}

// changelog counts the records of the state table of partitions.
func (s *system) changelog(partitions []int32) (n int) {
	s.t.Helper()
	s.readAll(schema.TopicState, func(rec *kgo.Record) {
		if slices.Contains(partitions, rec.Partition) {
			n++
		}
	})
	return n
}

// killUnderLoad kills a processor in the middle of a log, and returns how many records of the
// changelog the other one has read, and after which time, when it works on all partitions.
func (s *system) killUnderLoad(seed uint64, victim, survivor *metered) (recovered int, took time.Duration) {
	s.t.Helper()
	before := survivor.recovered()
	s.toggles(seed, 40_000)
	require.NoError(s.t, victim.Kill())
	killed := time.Now()
	committed, end := s.standing(kadm.NewClient(s.client()))
	require.Less(s.t, committed, end, "the log was used up before")
	waitFor(s.t, 2*time.Minute, "the takeover", func() bool { return len(survivor.running()) == s.partitions })
	return survivor.recovered() - before, time.Since(killed)
}

// TestATakeoverReadsWhatWasNotFollowed: of two processors one is killed under load. With standby
// copies the other one reads next to nothing to take its partitions over, and all of their state
// tables without; the counts are exact with both. What was given up is followed, too.
func TestATakeoverReadsWhatWasNotFollowed(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	pairs := fromEnv(t, "KUDOS_TEST_EVENTS", 300_000)
	for _, standby := range []bool{false, true} {
		t.Run(fmt.Sprintf("standby=%v", standby), func(t *testing.T) {
			s := newRealSystem(t)
			likes := make([]*kgo.Record, pairs)
			for i := range likes {
				likes[i] = record(&schema.Event{PostID: 1 + uint64(i%5000), UserID: 1 + uint64(i), Action: schema.Like, TimeMs: time.Now().UnixMilli(), Region: schema.UnknownRegion})
			}
			s.produce(likes)
			loader := s.processor("loader")
			require.NoError(t, loader.Start(t.Context()))
			s.drain(3 * time.Minute)
			require.NoError(t, loader.Stop())

			// Batches so small that the log lasts until the kill.
			args := []string{"--set", "processor.max_batch=50", "--set", fmt.Sprintf("processor.standby=%v", standby)}
			victim := s.meteredProcessor("processor-0", args...)
			survivor := s.meteredProcessor("processor-1", args...)
			s.waitShared(standby, victim, survivor)
			whole := s.changelog(victim.running())
			require.Greater(t, whole, pairs/4)
			all := s.changelog(slices.Concat(victim.running(), survivor.running()))

			recovered, took := s.killUnderLoad(2, victim, survivor)
			t.Logf("takeover of %d records of the changelog: %d read, %v after the kill (session timeout %s)", whole, recovered, took.Round(time.Millisecond), s.sessionTimeout)
			if !standby {
				require.GreaterOrEqual(t, survivor.recovered(), all) // since its start: it may have had some of the victim's before
				s.drain(3 * time.Minute)
				s.requireExact()
				return
			}
			require.Less(t, recovered, whole/20)
			s.drain(3 * time.Minute)

			// The other way round: of what the survivor gives up now it keeps a copy.
			victim.start()
			s.waitShared(standby, victim, survivor)
			recovered, took = s.killUnderLoad(3, survivor, victim)
			t.Logf("the other way round: %d read, %v after the kill", recovered, took.Round(time.Millisecond))
			require.Less(t, recovered, whole/20)
			s.drain(3 * time.Minute)
			s.requireExact()
		})
	}
}
