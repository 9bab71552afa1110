package processor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/dev/devtest"
	"kudos/ops/audit"
	"kudos/ops/rebuild"
	"kudos/schema"
)

// agreeable confirms a rebuild.
type agreeable struct{}

func (agreeable) Say(string) error           { return nil }
func (agreeable) Show(*audit.Report) error   { return nil }
func (agreeable) Agree(string) (bool, error) { return true, nil }

// commit resets the group's offset, as an operator might.
func (s *system) commit(partition int32, at int64) {
	s.t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: schema.TopicLikes, Partition: partition, At: at, LeaderEpoch: -1})
	require.NoError(s.t, s.adm.CommitAllOffsets(s.t.Context(), schema.GroupFold, offsets))
}

// The action works on a cluster that is older than its retention.
func TestRebuildOffsetsWhenLikesHasLostItsStart(t *testing.T) {
	t.Parallel()
	s, p := busySystem(t)
	for partition := range int32(partitions) {
		require.NoError(t, s.Broker.DeleteRecords(schema.TopicLikes, partition, 5))
	}
	for i, committed := range []int64{0, 7, 1000} {
		p.stop()
		right := s.folded()
		s.commit(0, committed)
		p = s.run()
		p.waitParked("likes/0 parked", fmt.Sprintf("state table is at offset %d of likes/0, "+
			"but the group has committed %d: like-updates agrees with the state table", right, committed),
			"the group's offsets were reset, or Kafka committed a transaction in part", "action: stop the processors, "+
				"then: kudos rebuild --offsets")
		s.othersGoOn(0, uint64(100+i))
		p.stop()
		s.rebuild(rebuild.Offsets, agreeable{})
		p = s.run()
		s.waitExact(p)
	}
}

// The action works after partitions were added: the state table cannot be rebuilt from likes alone.
func TestRebuildOffsetsAfterARepartition(t *testing.T) {
	t.Parallel()
	s, p := newRepartitioned(t, 500)
	p.stop()
	s.grow(6)
	s.react(200)
	p = s.run()
	s.waitCounted()
	p.waitReady()
	p.stop()
	s.commit(0, 1)
	s.commit(5, 0)
	s.react(100)
	p = s.run()
	p.waitParked("likes/0 parked", "but the group has committed 1", "likes/5 parked", "but the group has committed 0",
		"action: stop the processors, then: kudos rebuild --offsets")
	p.stop()
	s.rebuild(rebuild.Offsets, agreeable{})
	s.run().waitReady()
	s.checkExact(1)
}

// The state table is behind like-updates: this has another cause, and the action depends on what likes still has.
func TestFoldParksWhenTheStateTableIsBehind(t *testing.T) {
	t.Parallel()
	s, p := busySystem(t)
	p.stop()
	right := s.folded()
	u := schema.ProgressUpdate(0, false)
	u.Seq, u.SourceOffset = s.progress(0).NextSeq, right+5
	s.Write(devtest.UpdateRecord(0, 0, u))
	s.commit(0, right+5)
	p = s.run()
	why := fmt.Sprintf("the group has committed %d and published up to %d: the state table was lost or rewound",
		right+5, right+5)
	p.waitParked("likes/0 parked", why, "action: stop the processors, then: kudos rebuild --from-events")
	p.stop()
	require.NoError(t, s.Broker.DeleteRecords(schema.TopicLikes, 3, 5))
	s.run().waitParked("likes/0 parked", why, "action: stop the processors, delete like-updates, then: kudos topics "+
		"apply, and kudos rebuild --updates")
	s.othersGoOn(0, 100)
}
