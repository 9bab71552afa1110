package processor_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/devtest"
	"kudos/integration/refusal"
	"kudos/ops/rebuild"
	"kudos/processor"
	"kudos/schema"
	"kudos/stream"
)

// startOver is the action when the state is lost: everything derived from likes is recreated.
func (s *system) startOver() {
	s.recreate(schema.TopicState, schema.TopicUpdates)
	s.emptyTables()
	s.applyTopics()
	s.newOracle()
}

// waitStartedOver waits until the positions in MySQL are of the current like-updates. A processor that was checking
// just then may have started with the previous topic: it parks then, and the tables must be emptied once more.
func (s *system) waitStartedOver() {
	now := fmt.Sprintf("%x", s.Broker.TopicInfo(schema.TopicUpdates).TopicID)
	s.waitFor("the counts to start over", func() (bool, any) {
		var ids []string
		require.NoError(s.t, s.db.Select(&ids, "SELECT DISTINCT topic_id FROM applied_offset"))
		if slices.ContainsFunc(ids, func(id string) bool { return id != now }) {
			s.emptyTables()
		}
		return slices.Equal(ids, []string{now}), ids
	})
}

// `kudos topics apply` was interrupted.
func TestFoldParksWithoutAProgressRecord(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.recreate(schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicDLT)
	s.stopTopics(3)
	p := s.run()
	p.waitParked("likes/3 parked: partition 3 of the state table has no progress record",
		"action: stop the processors, then: kudos topics apply")
	s.othersGoOn(3, 1)
	require.Equal(t, startsAt0(3), s.applyTopics())
	s.waitExact(p)
}

// A missing committed offset is no disagreement: offsets expire.
func TestFoldResumesWhenCommittedOffsetsHaveExpired(t *testing.T) {
	t.Parallel()
	s, p := busySystem(t)
	p.stop()
	_, err := s.adm.DeleteGroup(t.Context(), schema.GroupFold)
	require.NoError(t, err)
	s.produce(likes(100, 3)...)
	s.waitExact(s.run())
}

// A store of what the state table has lost is not continued, also if that has grown beyond it again. After an election
// that has lost nothing, a store is continued.
func TestFoldRebuildsAStoreWhoseLogHasRegrown(t *testing.T) {
	t.Parallel()
	s, dir := newBroker(t, kfake.NumBrokers(2)), t.TempDir()
	s.applyTopics()
	s.db = s.newDatabase()
	s.migrate()
	for _, regrown := range []bool{false, false, true} {
		s.Broker.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			s.Broker.KeepControl()
			state := r.(*kmsg.OffsetForLeaderEpochRequest).Topics[0].Topic == schema.TopicState
			return refusal.EpochEnd(r, 1), nil, regrown && state
		})
		p := s.run(func(o *processor.Options) { o.StateDir = dir })
		s.produce(likes(1, 10)...)
		s.waitExact(p)
		require.Equal(t, regrown, p.metric("kudos_state_replayed_records_total") > partitions)
		for n := range int32(2 * partitions) {
			require.NoError(t, s.Broker.MoveTopicPartition(schema.TopicState, n/2, n%2))
		}
		for i := range uint64(5) { // the clients of both transactional ids hear of the election when they write
			s.produce(likes(10*i+11, 10)...)
			s.waitExact(p)
		}
		p.stop()
	}
}

// Lost events are the cause even if the committed offset is wrong too: accepting the loss fixes that as well.
func TestFoldParksWhenEventsAreGone(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]bool{"only events lost": false, "and a wrong offset": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := busySystem(t, betweenRetries)
			p.stop()
			s.produce(likes(100, 10)...)
			require.NoError(t, s.Broker.DeleteRecords(schema.TopicLikes, 2, 15))
			if reset {
				s.commit(2, 3)
			}
			p = s.run()
			p.waitParked("likes/2 parked", "offset 10 is next, but likes/2 holds 15 to 20",
				"action: if the missing events are permanently lost", "kudos rebuild --accept-loss")
			s.waitLikes(20, 0, 1, 3)
			require.Equal(t, int64(10), s.counts()[postIn(2)].Likes)
			p.stop()
			s.startOver()
			s.waitExact(s.run())
			require.Equal(t, int64(5), s.counts()[postIn(2)].Likes, "likes of the events that are left")
		})
	}
}

// Kafka lost the end of likes, or somebody restored an older copy: neither epoch nor committed offset shows that.
func TestFoldParksPastTheEndOfLikes(t *testing.T) {
	t.Parallel()
	s, p := busySystem(t)
	p.stop()
	progress := s.progress(0)
	right := progress.NextOffset
	stand := func(at int64) {
		progress.NextOffset, progress.LeaderEpoch = at, -1
		s.Write(devtest.ProgressRecord(0, *progress))
		s.commit(0, at)
	}
	stand(right + 5)
	p = s.run()
	p.waitParked("likes/0 parked", fmt.Sprintf("offset %d is next, but likes/0 holds 0 to %d", right+5, right),
		"action: if the missing events are permanently lost", "kudos rebuild --accept-loss")
	p.stop()
	stand(right)
	s.produce(likes(100, 10)...) // more than the position was ahead: the oracle reads to there
	s.waitExact(s.run())
}

// A partition may end with the commit marker of an event forwarded to it. Nothing is lost when retention deletes it.
func TestFoldDoesNotMissMarkers(t *testing.T) {
	t.Parallel()
	s, p := busySystem(t)
	s.produce(mixedBatch(100)...) // one goes to partition 1
	s.waitExact()
	p.stop()
	forwarded := s.Records(schema.TopicLikes, 1)
	require.NoError(t, s.Broker.DeleteRecords(schema.TopicLikes, 1, -1))
	require.Greater(t, s.Broker.PartitionInfo(schema.TopicLikes, 1).LogStartOffset,
		forwarded[len(forwarded)-1].Offset+1, "the log ends with a marker")
	s.run().waitReady()
	s.produce(likes(200, 1)...)
	s.waitExact()
}

func TestFoldParksAtRecreatedTopics(t *testing.T) {
	t.Parallel()
	const (
		noProgress = "partition 2 of the state table has no progress record"
		recreated  = "was deleted and recreated since partition 2 was folded"
	)
	likesTopic, state, updates := schema.TopicLikes, schema.TopicState, schema.TopicUpdates
	for _, c := range []struct {
		topics       []string
		running      bool // the processor, all the time
		says, action string
	}{
		{[]string{likesTopic}, false, "topic likes " + recreated, "kudos rebuild --accept-loss"},
		{[]string{state}, false, noProgress, "kudos topics apply"},
		{[]string{updates}, false, "topic like-updates " + recreated, "kudos rebuild --updates"},
		{[]string{likesTopic, state, updates}, false, noProgress, "kudos topics apply"},
		{[]string{state}, true, noProgress, "kudos topics apply"},
		// The client takes some 10 s to detect it.
		{[]string{likesTopic, state, updates}, true, noProgress, "kudos topics apply"},
	} {
		t.Run(fmt.Sprint(c.topics, c.running), func(t *testing.T) {
			t.Parallel()
			s, p := busySystem(t, betweenRetries)
			restart := func(between func()) {
				if c.running {
					between()
					return
				}
				p.stop()
				between()
				p = s.run()
			}
			restart(func() { s.recreate(c.topics...); s.produce(likes(100, 2)...) })
			p.waitParked("likes/2 parked", c.says, "action: ", "stop the processors, then: "+c.action)
			if slices.Contains(c.topics, updates) {
				p.waitParked("like-updates/2 parked", "the counts in MySQL come from topic id")
			}
			restart(s.startOver)
			s.waitStartedOver()
			s.waitExact(p)
		})
	}
}

// With another partition count, other partitions own posts: everything must stop.
func TestOtherPartitionCountStopsEverything(t *testing.T) {
	t.Parallel()
	all := []string{schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicDLT}
	for _, c := range []struct {
		topics  []string
		running bool
		says    string
	}{
		{[]string{schema.TopicLikes}, false, "topic likes has 6"},
		{[]string{schema.TopicState}, false, "topic latest-like-action-table has 6"},
		{all, false, "topic likes has 6"},
		// The group notices after some seconds, or at a rebalance.
		{all, true, "topic likes has 6"},
	} {
		t.Run(fmt.Sprint(c.topics, c.running), func(t *testing.T) {
			t.Parallel()
			s, p := busySystem(t)
			if !c.running {
				p.stop()
			}
			counts := s.counts()
			_, err := s.adm.CreatePartitions(t.Context(), 2, c.topics...)
			require.NoError(t, err)
			says := []string{c.says + " partitions, but the state table was created for 4",
				"action: kudos topics repartition --set topics.partitions=6"}
			s.run().waitParked(says...)
			if c.running {
				p.waitParked(says...)
			}
			require.Equal(t, counts, s.counts())
		})
	}
}

// The action that readiness names after topics have grown works while the processor waits for it.
func TestFoldContinuesInGrownTopics(t *testing.T) {
	t.Parallel()
	for _, topics := range [][]string{
		{schema.TopicLikes}, {schema.TopicState, schema.TopicTrendingLocalTable},
		{schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicDLT},
	} {
		t.Run(topics[0], func(t *testing.T) {
			t.Parallel()
			s, p := newRepartitioned(t, 500)
			_, err := s.adm.CreatePartitions(t.Context(), 2, topics...)
			require.NoError(t, err)
			s.react(100)
			p.stop()
			p = s.run(betweenRetries)
			p.waitParked("action: kudos topics repartition --set topics.partitions=6")
			s.grow(6)
			p.waitReady()
			s.checkExact(1)
		})
	}
}

// A value that this version cannot decode is not an unavailable server.
func TestFoldParksAtUndecodableState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first        byte
		cause        stream.Cause
		says, action string
	}{
		"of a later version": {9, stream.CauseRecord, "reaction has version 9, but this program knows only versions up",
			"(action: run the version of kudos that wrote it, or a later one)"},
		"damaged": {2, stream.CauseState, "reaction of version 2 has 3 bytes and is malformed",
			"stop the processors, then: kudos rebuild --from-events)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := busySystem(t)
			p.stop()
			pair := s.latest(schema.TopicState, 2)[string(schema.AppendPairKey(nil, postIn(2), 1))]
			write := func(value []byte) {
				s.Write(&kgo.Record{Topic: schema.TopicState, Partition: 2,
					Key: schema.AppendPairKey(nil, postIn(2), 1), Value: value})
			}
			write([]byte{c.first, 1, 1})
			s.produce(likes(1, 1)...)
			p = s.run()
			p.waitParked("likes/2 parked: ", c.says, c.action)
			s.waitFor("the cause", func() (bool, any) {
				causes := p.causes()
				return maps.Equal(causes, map[stream.Cause]bool{c.cause: true}), causes
			})
			s.othersGoOn(2, 100)
			p.stop()
			if c.cause == stream.CauseRecord {
				write(pair) // as a later version understands it
			} else {
				s.rebuild(rebuild.Events, agreeable{})
			}
			p = s.run()
			s.waitLikes(11, 0, 1, 2, 3)
			p.waitReady()
		})
	}
}
