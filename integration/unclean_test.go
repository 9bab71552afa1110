package integration

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// twoReplicas has a partition of a topic on the first two of three brokers, led by the first, with
// unclean elections allowed.
type twoReplicas struct {
	*system
	adm           *kadm.Client
	topic         string
	partition     int32
	first, second *stack.Server
}

func newTwoReplicas(t *testing.T, topic string, partition int32) *twoReplicas {
	r := &twoReplicas{system: newOwnSystem(t, partitions, stack.KafkaOptions{Nodes: 3}), topic: topic, partition: partition}
	r.adm = kadm.NewClient(r.client())
	r.first, r.second = r.kafka.Node(0), r.kafka.Node(1)
	r.configure(r.adm, map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}, topic)
	var order kadm.AlterPartitionAssignmentsReq
	order.Assign(topic, partition, []int32{0, 1})
	_, err := r.adm.AlterPartitionAssignments(t.Context(), order)
	require.NoError(t, err)
	_, err = r.adm.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, r.set())
	require.NoError(t, err)
	r.waitReplicas(0, 2)
	return r
}

func (r *twoReplicas) set() kadm.TopicsSet {
	var set kadm.TopicsSet
	set.Add(r.topic, r.partition)
	return set
}

// electUncleanly has the second, which was down, lead without what only the first has.
func (r *twoReplicas) electUncleanly() {
	r.t.Helper()
	require.NoError(r.t, r.first.Kill())
	require.NoError(r.t, r.second.Start(r.t.Context()))
	waitFor(r.t, time.Minute, "the second to lead", func() bool {
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
		defer cancel()
		_, err := r.adm.ElectLeaders(ctx, kadm.ElectLiveReplica, r.set()) // kafka-leader-election.sh --election-type unclean
		return err == nil && r.leader() == 1
	})
}

func (r *twoReplicas) leader() int32 {
	topics, err := r.adm.ListTopics(r.t.Context(), r.topic)
	if err != nil {
		return -1
	}
	return topics[r.topic].Partitions[r.partition].Leader
}

// waitReplicas waits until a broker leads with so many in sync.
func (r *twoReplicas) waitReplicas(leader int32, inSync int) {
	r.t.Helper()
	waitFor(r.t, time.Minute, "the replicas of "+r.topic, func() bool {
		topics, err := r.adm.ListTopics(r.t.Context(), r.topic)
		if err != nil {
			return false
		}
		p := topics[r.topic].Partitions[r.partition]
		return p.Leader == leader && len(p.ISR) == inSync && slices.Contains(p.ISR, leader)
	})
}

// An unclean leader election takes events away that were folded and counted, and gives
// their offsets to others. Three brokers; likes/2 is on two of them. The second is down
// while the first takes events, then the first is lost, and somebody has the second lead.
func TestParkAfterAnUncleanElection(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	r := newTwoReplicas(t, schema.TopicLikes, 2)
	p := newParks(r.system)
	require.NoError(t, r.second.Kill())
	r.waitReplicas(0, 1)
	p.like(20)
	p.waitCounted()

	p.stop()
	r.electUncleanly()
	require.NoError(t, r.first.Start(t.Context()))
	p.like(30) // to beyond where it was folded to: the offset alone does not tell
	p.start()
	p.waitParked("likes/2", "data was lost by an unclean leader election", "kudos rebuild --accept-loss")
	p.othersGoOn(2)
	p.stop()
	out := p.rebuild("--accept-loss")
	require.Contains(t, out.stdout, "partition 2: offsets 20 to 39 were folded, and then cut off by an unclean leader election")
	p.start()
	p.mended() // what was counted stays counted
}
