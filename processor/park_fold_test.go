package processor_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/ops/topics"
	"kudos/schema"
)

// applyTopics is `kudos topics apply`.
func (s *system) applyTopics() (*topics.Report, error) {
	return topics.Apply(s.t.Context(), s.kafka, schema.Layout{Partitions: partitions}, 1, s.log)
}

// startOver is the remedy when the state is lost: all that was made of likes is made
// anew.
func (s *system) startOver() *tape {
	s.recreate(schema.TopicState, schema.TopicUpdates)
	s.emptyTables()
	_, err := s.applyTopics()
	require.NoError(s.t, err)
	return s.tape()
}

// waitStartedOver waits until the positions in MySQL are of the like-updates of now. A
// processor that was just looking may have begun with the topic before it: it parks
// then, and the tables have to be emptied once more.
func (s *system) waitStartedOver() {
	now := fmt.Sprintf("%x", s.broker.TopicInfo(schema.TopicUpdates).TopicID)
	s.waitFor("the counts to begin anew", func() (bool, any) {
		var ids []string
		require.NoError(s.t, s.db.Select(&ids, "SELECT DISTINCT topic_id FROM applied_offset"))
		if slices.ContainsFunc(ids, func(id string) bool { return id != now }) {
			s.emptyTables()
		}
		return slices.Equal(ids, []string{now}), ids
	})
}

// `kudos topics apply` was stopped halfway.
func TestFoldParksWithoutAProgressRecord(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.recreate(schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicDLT)
	s.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: schema.FoldTransactionalID(3), Err: kerr.UnknownServerError, Count: 1})
	_, err := s.applyTopics()
	require.ErrorContains(t, err, "partition 3")
	p := s.run()
	p.waitParked("likes/3 parked: partition 3 of the state table has no progress record", "remedy: stop the processors, then: kudos topics apply")
	s.othersGoOn(3, 1)
	report, err := s.applyTopics()
	require.NoError(t, err)
	require.Equal(t, []string{"partition 3 starts at offset 0 of likes"}, report.Lines)
	tape := s.tape()
	tape.waitDrained()
	p.waitReady()
	tape.checkExact()
}

// No committed offset is no disagreement: they expire.
func TestFoldGoesOnWhenCommittedOffsetsHaveExpired(t *testing.T) {
	t.Parallel()
	s, tape, p := busySystem(t)
	p.stop()
	_, err := s.adm.DeleteGroup(t.Context(), schema.GroupFold)
	require.NoError(t, err)
	s.produce(likes(100, 3)...)
	p = s.run()
	tape.waitDrained()
	p.waitReady()
	tape.checkExact()
}

func TestFoldParksWhenEventsAreGone(t *testing.T) {
	t.Parallel()
	s, _, p := busySystem(t)
	p.stop()
	s.produce(likes(100, 10)...)
	require.NoError(t, s.broker.DeleteRecords(schema.TopicLikes, 2, 15))
	p = s.run()
	p.waitParked("likes/2 parked", "offset 10 is next, but likes/2 holds 15 to 20", "remedy: if the missing events are lost for good", "kudos rebuild --accept-loss")
	s.waitFor("the other partitions to go on", func() (bool, any) {
		counts := s.counts()
		return counts[postIn(0)].Likes == 20 && counts[postIn(1)].Likes == 20 && counts[postIn(3)].Likes == 20, counts
	})
	require.Equal(t, int64(10), s.counts()[postIn(2)].Likes)
	p.stop()
	tape := s.startOver()
	p = s.run()
	tape.waitDrained()
	p.waitReady()
	tape.checkExact()
	require.Equal(t, int64(5), s.counts()[postIn(2)].Likes, "of the events that are left")
}

// The log is shorter than what was folded of it: Kafka lost its end, or somebody brought an
// older copy back. Neither leader epoch nor committed offset tells.
func TestFoldParksPastTheEndOfLikes(t *testing.T) {
	t.Parallel()
	s, tape, p := busySystem(t)
	p.stop()
	progress := tape.progress()[0]
	right := progress.NextOffset
	stand := func(at int64) {
		progress.NextOffset, progress.LeaderEpoch = at, -1
		s.produceTo(&kgo.Record{Topic: schema.TopicState, Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &progress)})
		offsets := kadm.Offsets{}
		offsets.AddOffset(schema.TopicLikes, 0, at, -1)
		require.NoError(t, s.adm.CommitAllOffsets(t.Context(), schema.GroupFold, offsets))
	}
	stand(right + 5)
	p = s.run()
	p.waitParked("likes/0 parked", fmt.Sprintf("offset %d is next, but likes/0 holds 0 to %d", right+5, right), "remedy: if the missing events are lost for good", "kudos rebuild --accept-loss")
	p.stop()
	stand(right)
	s.produce(likes(100, 3)...)
	p = s.run()
	tape.waitDrained()
	p.waitReady()
	tape.checkExact()
}

// What ends a partition may be a commit marker, by which an event was forwarded there.
// Nothing is lost when it goes with the retention of the log.
func TestFoldDoesNotMissMarkers(t *testing.T) {
	t.Parallel()
	s, tape, p := busySystem(t)
	s.produceTo(mixedBatch(100)...) // one goes to partition 1
	tape.waitDrained()
	p.stop()
	require.NoError(t, s.broker.DeleteRecords(schema.TopicLikes, 1, -1))
	require.Greater(t, s.broker.PartitionInfo(schema.TopicLikes, 1).LogStartOffset, end(tape.read(schema.TopicLikes)[1]), "a marker ends the log")
	p = s.run()
	p.waitReady()
	s.produce(likes(200, 1)...)
	tape.waitDrained()
	tape.checkExact()
}

func TestFoldParksAtTopicsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		topics  []string
		running bool // the processor, all the time
		says    string
		remedy  string
	}{
		{"likes", []string{schema.TopicLikes}, false, "topic likes was deleted and created again since partition 2 was folded", "kudos rebuild --accept-loss"},
		{"state", []string{schema.TopicState}, false, "partition 2 of the state table has no progress record", "kudos topics apply"},
		{"updates", []string{schema.TopicUpdates}, false, "topic like-updates was deleted and created again since partition 2 was folded", "kudos rebuild --updates"},
		{"all three", []string{schema.TopicLikes, schema.TopicState, schema.TopicUpdates}, false, "partition 2 of the state table has no progress record", "kudos topics apply"},
		{"state, under a running processor", []string{schema.TopicState}, true, "partition 2 of the state table has no progress record", "kudos topics apply"},
		// The client takes some 10 s to be sure.
		{"all three, under a running processor", []string{schema.TopicLikes, schema.TopicState, schema.TopicUpdates}, true, "partition 2 of the state table has no progress record", "kudos topics apply"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _, p := busySystem(t)
			restart := func(between func()) {
				if !c.running {
					p.stop()
				}
				between()
				if !c.running {
					p = s.run()
				}
			}
			restart(func() {
				s.recreate(c.topics...)
				s.produce(likes(100, 2)...)
			})
			p.waitParked("likes/2 parked", c.says, "remedy: ", "stop the processors, then: "+c.remedy)
			if slices.Contains(c.topics, schema.TopicUpdates) {
				p.waitParked("like-updates/2 parked", "the counts in MySQL come from topic id")
			}
			var tape *tape
			restart(func() { tape = s.startOver() })
			s.waitStartedOver()
			tape.waitDrained()
			p.waitReady()
			tape.checkExact()
		})
	}
}

// With another count, posts live elsewhere: nothing may go on.
func TestAnotherPartitionCountStopsEverything(t *testing.T) {
	t.Parallel()
	all := []string{schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicDLT}
	const likesGrew = "topic likes has 6 partitions, the state table was made for 4"
	for _, c := range []struct {
		name    string
		topics  []string
		running bool
		says    string
	}{
		{"of likes", []string{schema.TopicLikes}, false, likesGrew},
		{"of the state table", []string{schema.TopicState}, false, "topic latest-like-action-table has 6 partitions, the state table was made for 4"},
		{"of all", all, false, likesGrew},
		// The group notices by itself after some seconds, or at a rebalance.
		{"of all, under a running processor", all, true, likesGrew},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _, p := busySystem(t)
			if !c.running {
				p.stop()
			}
			counts := s.counts()
			_, err := s.adm.CreatePartitions(t.Context(), 2, c.topics...)
			require.NoError(t, err)
			says := []string{c.says, "remedy: kudos topics repartition --set topics.partitions=6"}
			second := s.run()
			second.waitParked(says...)
			if c.running {
				p.waitParked(says...)
			}
			require.Equal(t, counts, s.counts())
		})
	}
}

// What the readiness says is to be done when topics have grown, done, while the processor waits for it.
func TestTopicsThatHaveGrownAreFoldedOn(t *testing.T) {
	t.Parallel()
	for _, topics := range [][]string{
		{schema.TopicLikes}, {schema.TopicState, schema.TopicTrendingLocalTable}, {schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicDLT},
	} {
		t.Run(topics[0], func(t *testing.T) {
			t.Parallel()
			s := newRepartitioned(t)
			p := s.run()
			s.react(500)
			s.waitCounted()
			_, err := s.adm.CreatePartitions(t.Context(), 2, topics...)
			require.NoError(t, err)
			s.react(100)
			p.stop()
			p = s.run()
			p.waitParked("remedy: kudos topics repartition --set topics.partitions=6")
			_, err = s.repartition(t.Context(), s.options(6))
			require.NoError(t, err)
			s.layout.Partitions = 6
			p.waitReady()
			s.checkExact(1)
		})
	}
}
