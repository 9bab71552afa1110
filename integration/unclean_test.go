package integration

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/integration/stack"
	"kudos/schema"
)

// An unclean leader election takes events away that were folded and counted, and gives
// their offsets to others. Three brokers; likes/2 is on two of them. The second is down
// while the first takes events, then the first is lost, and somebody has the second lead.
func TestParkAfterAnUncleanElection(t *testing.T) {
	s := newOwnSystem(t, partitions, stack.KafkaOptions{Nodes: 3})
	adm := kadm.NewClient(s.client())
	s.configure(adm, map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}, schema.TopicLikes)
	var order kadm.AlterPartitionAssignmentsReq
	order.Assign(schema.TopicLikes, 2, []int32{0, 1})
	_, err := adm.AlterPartitionAssignments(t.Context(), order)
	require.NoError(t, err)
	first, second := s.kafka.Node(0), s.kafka.Node(1)
	var set kadm.TopicsSet
	set.Add(schema.TopicLikes, 2)
	_, err = adm.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, set)
	require.NoError(t, err)
	s.waitReplicas(adm, 2, 0, 2)

	p := newParks(s)
	require.NoError(t, second.Kill())
	s.waitReplicas(adm, 2, 0, 1)
	p.like(20)
	p.waitCounted()

	p.stop()
	require.NoError(t, first.Kill())
	require.NoError(t, second.Start(t.Context()))
	waitFor(t, time.Minute, "the second to lead", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := adm.ElectLeaders(ctx, kadm.ElectLiveReplica, set) // kafka-leader-election.sh --election-type unclean
		return err == nil && s.leaderOf(adm, 2) == 1
	})
	require.NoError(t, first.Start(t.Context()))
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

func (s *system) leaderOf(adm *kadm.Client, partition int32) int32 {
	topics, err := adm.ListTopics(s.t.Context(), schema.TopicLikes)
	if err != nil {
		return -1
	}
	return topics[schema.TopicLikes].Partitions[partition].Leader
}

// waitReplicas waits until a broker leads a partition of likes with so many in sync.
func (s *system) waitReplicas(adm *kadm.Client, partition, leader int32, inSync int) {
	s.t.Helper()
	waitFor(s.t, time.Minute, "the replicas of likes", func() bool {
		topics, err := adm.ListTopics(s.t.Context(), schema.TopicLikes)
		if err != nil {
			return false
		}
		p := topics[schema.TopicLikes].Partitions[partition]
		return p.Leader == leader && len(p.ISR) == inSync && slices.Contains(p.ISR, leader)
	})
}
