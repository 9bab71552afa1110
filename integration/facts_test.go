package integration

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// Long-term behavior of a real broker, tested by `make facts`. Each test ends by comparing the counts with the oracle.

// TestEpochsRunOut: transactions use up the 32,767 producer epochs; then comes a new producer id. Kills surround that.
func TestEpochsRunOut(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 1, 1, nil)
	s.toggles(1, fromEnv(t, "KUDOS_TEST_EVENTS", 150_000)) // half of them under each transactional id
	p := s.processor("processor", "--set", "processor.max_batch=1").start()
	ids := map[int64]int{} // kills near the end of each producer id's epochs
	waitFor(t, 40*time.Minute, "the log to be folded", func() bool {
		if id, epoch := s.producerEpoch(); id >= 0 {
			kills := ids[id]
			ids[id] = kills
			// Every kill takes some epochs: the last ones are used up without a kill, or by one.
			if left := 32_767 - int(epoch); kills < 6 && left < 40*(6-kills) {
				p.kill()
				p.start()
				ids[id] = kills + 1
			}
		}
		committed, end := s.standing()
		return committed >= end
	})
	t.Logf("kills around the end of the epochs, by producer id: %v", ids)
	require.GreaterOrEqual(t, len(ids), 3, "producer ids")
	s.drainExact(20 * time.Minute)
}

func (s *system) producerEpoch() (id int64, epoch int16) {
	described, err := s.admin().DescribeTransactions(s.t.Context(), schema.FoldTransactionalIDs(0)[0])
	require.NoError(s.t, err)
	d := described[schema.FoldTransactionalIDs(0)[0]]
	if d.Err != nil {
		return -1, 0
	}
	return d.ProducerID, d.ProducerEpoch
}

// TestCoordinatorsMove: under load, the leaders of the topics and of Kafka's internal topics, and with them the
// coordinators of transactions and groups, move between brokers.
func TestCoordinatorsMove(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 4, 3,
		map[string]string{"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4"})
	s.toggles(1, fromEnv(t, "KUDOS_TEST_EVENTS", 1_000_000))
	s.twoProcessors("--set", "processor.max_batch=200")
	moves := 0
	waitFor(t, 30*time.Minute, "the log to be folded", func() bool {
		moves += s.moveLeaders()
		committed, end := s.standing()
		return committed >= end
	})
	t.Logf("leaders moved: %d", moves)
	require.Greater(t, moves, 50)
	s.drainExact(5 * time.Minute)
}

// moveLeaders makes another replica the preferred leader of each partition, and elects it.
func (s *system) moveLeaders() (moved int) {
	ctx := testkit.Within(s.t, time.Minute)
	topics, err := s.admin().ListTopicsWithInternal(ctx, "__transaction_state", "__consumer_offsets", schema.TopicLikes,
		schema.TopicState, schema.TopicUpdates)
	require.NoError(s.t, err)
	var order kadm.AlterPartitionAssignmentsReq
	var set kadm.TopicsSet
	topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Err != nil || len(p.ISR) < 3 {
			return
		}
		order.Assign(p.Topic, p.Partition, append(p.Replicas[1:len(p.Replicas):len(p.Replicas)], p.Replicas[0]))
		set.Add(p.Topic, p.Partition)
	})
	if len(set) == 0 {
		return 0
	}
	_, err = s.admin().AlterPartitionAssignments(ctx, order)
	require.NoError(s.t, err)
	results, err := s.admin().ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	require.NoError(s.t, err)
	for _, partitions := range results {
		for _, r := range partitions {
			if r.Err == nil {
				moved++
			}
		}
	}
	return moved
}

// TestCompactionWhileRunning compacts the state table while it is written, and read without local state.
func TestCompactionWhileRunning(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 4, 1, map[string]string{"log.cleaner.backoff.ms": "200"})
	s.configure(map[string]string{"segment.bytes": "1048576", "segment.ms": "1000",
		"min.cleanable.dirty.ratio": "0.001"}, schema.TopicState, schema.TopicUpdates)
	s.toggles(1, fromEnv(t, "KUDOS_TEST_EVENTS", 2_000_000))
	s.stateDir = filepath.Join(t.TempDir(), "state")
	p := s.processor("processor", "--set", "processor.max_batch=500")
	losses := 0
	for deadline := time.Now().Add(20 * time.Minute); ; losses++ {
		require.True(t, time.Now().Before(deadline), "the log was not folded in time")
		p.start()
		before, end := s.standing()
		if s.waitFolded(2*time.Minute, min(before+200_000, end)) >= end {
			break
		}
		p.kill()
		require.NoError(t, os.RemoveAll(s.stateDir))
	}
	s.drain(5 * time.Minute)
	left, written := int64(0), s.written(t.Context(), schema.TopicState)
	s.readAll(schema.TopicState, func(*kgo.Record) { left++ })
	t.Logf("%d offsets of the state table written, %d records left; local state lost %d times", written, left, losses)
	require.Less(t, left, written/2, "the state table was not compacted")
	require.Positive(t, losses)
	s.requireExact() // includes like-updates: its compaction lag protects it
}

// TestCommittedOffsetsExpire: a group without members loses its offsets; the progress record has the position.
func TestCommittedOffsetsExpire(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 4, 1,
		map[string]string{"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"})
	s.toggles(1, 20_000)
	p := s.processor("processor").start()
	s.drain(time.Minute)
	known := func() int {
		offsets, err := s.admin().FetchOffsets(t.Context(), schema.GroupFold)
		require.NoError(t, err)
		n := 0
		offsets.Each(func(o kadm.OffsetResponse) {
			if o.At >= 0 {
				n++
			}
		})
		return n
	}
	begin := time.Now()
	pause(t, 90*time.Second) // without events
	require.Equal(t, s.partitions, known(), "committed offsets of an idle group with members")
	p.stop()
	waitFor(t, 5*time.Minute, "the committed offsets to expire", func() bool { return known() == 0 })
	t.Logf("expired %v after the group became idle", time.Since(begin).Round(time.Second))
	s.toggles(2, 20_000)
	p.start()
	s.drainExact(time.Minute)
	require.Equal(t, s.partitions, known(), "committed again")
}

// twoReplicas has a partition on the first two of three brokers, led by the first, with unclean elections allowed.
type twoReplicas struct {
	*system
	topic         string
	partition     int32
	first, second *stack.Server
}

func newTwoReplicas(t *testing.T, topic string, partition int32) *twoReplicas {
	parallel(t, tier.Verify)
	r := &twoReplicas{system: newOwnSystem(t, partitions, 3, nil), topic: topic, partition: partition}
	r.first, r.second = r.kafka.Node(0), r.kafka.Node(1)
	r.configure(map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}, topic)
	var order kadm.AlterPartitionAssignmentsReq
	order.Assign(topic, partition, []int32{0, 1})
	_, err := r.admin().AlterPartitionAssignments(t.Context(), order)
	require.NoError(t, err)
	_, err = r.admin().ElectLeaders(t.Context(), kadm.ElectPreferredReplica, r.set())
	require.NoError(t, err)
	r.waitReplicas(0, 2)
	return r
}

func (r *twoReplicas) set() kadm.TopicsSet {
	var set kadm.TopicsSet
	set.Add(r.topic, r.partition)
	return set
}

// electUncleanly makes the second broker, which was down, the leader, without the records that only the first has.
func (r *twoReplicas) electUncleanly() {
	require.NoError(r.t, r.first.Kill())
	require.NoError(r.t, r.second.Start(r.t.Context()))
	waitFor(r.t, time.Minute, "the second broker to lead", func() bool {
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
		defer cancel()
		// Like kafka-leader-election.sh --election-type unclean.
		_, err := r.admin().ElectLeaders(ctx, kadm.ElectLiveReplica, r.set())
		return err == nil && r.now().Leader == 1
	})
}

// now returns the current state of the partition, without a leader if no broker answers.
func (r *twoReplicas) now() kadm.PartitionDetail {
	topics, err := r.admin().ListTopics(r.t.Context(), r.topic)
	if err != nil {
		return kadm.PartitionDetail{Leader: -1}
	}
	return topics[r.topic].Partitions[r.partition]
}

func (r *twoReplicas) waitReplicas(leader int32, inSync int) {
	waitFor(r.t, time.Minute, "the leader and in-sync replicas of "+r.topic, func() bool {
		p := r.now()
		return p.Leader == leader && len(p.ISR) == inSync && slices.Contains(p.ISR, leader)
	})
}

// An unclean leader election loses events that have been folded and counted, and assigns their offsets to others. There
// are three brokers; likes/2 is on two of them. The second is down while the first takes events; then the first dies
// and an operator makes the second the leader.
func TestParkAfterAnUncleanElection(t *testing.T) {
	r := newTwoReplicas(t, schema.TopicLikes, 2)
	p := newParks(r.system)
	require.NoError(t, r.second.Kill())
	r.waitReplicas(0, 1)
	p.like(20)
	p.waitCounted()

	p.stop()
	r.electUncleanly()
	require.NoError(t, r.first.Start(t.Context()))
	p.like(30) // past the folded offset: the offset alone does not reveal the loss
	p.start()
	p.waitParked("likes/2", "data was lost by an unclean leader election", "kudos rebuild --accept-loss")
	p.othersGoOn(2)
	require.Contains(t, p.repair("--accept-loss"), // counted likes stay counted
		"partition 2: offsets 20 to 39 were folded, and then truncated by an unclean leader election")
}
