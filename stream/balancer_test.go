package stream

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shuffled returns the members that processes are to a leader of a group, with random ids.
func shuffled(topic string, processes ...string) (members []kmsg.JoinGroupResponseMember) {
	for _, process := range processes {
		b := &balancer{topic: topic, process: process}
		members = append(members, kmsg.JoinGroupResponseMember{
			MemberID:         fmt.Sprintf("%016x", rand.Uint64()),
			ProtocolMetadata: b.JoinGroupMetadata([]string{topic}, nil, 5),
		})
	}
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return members
}

// balance has a balancer balance, and returns the partitions of each member.
func balance(
	t *testing.T, b kgo.GroupBalancer, members []kmsg.JoinGroupResponseMember, topic string, partitions int32,
) map[string][]int32 {
	mb, topics, err := b.MemberBalancer(members)
	require.NoError(t, err)
	require.Equal(t, map[string]struct{}{topic: {}}, topics)
	into, err := mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{topic: partitions})
	require.NoError(t, err)
	shares, seen := map[string][]int32{}, map[int32]bool{}
	for _, a := range into.IntoSyncAssignment() {
		own := &balancer{topic: topic}
		consumes, err := own.ParseSyncAssignment(a.MemberAssignment)
		require.NoError(t, err)
		require.Empty(t, consumes, "the client itself")
		for _, n := range own.assigned {
			require.False(t, seen[n], "partition %d has two owners", n)
			seen[n] = true
		}
		require.LessOrEqual(t, len(own.assigned), (int(partitions)+len(members)-1)/len(members))
		require.GreaterOrEqual(t, len(own.assigned), int(partitions)/len(members))
		shares[a.MemberID] = own.assigned
	}
	require.Len(t, seen, int(partitions))
	return shares
}

// byProcess returns the process of each partition, as the balancer of any member assigns them.
func byProcess(t *testing.T, topic string, partitions int32, processes ...string) (owners []string) {
	members := shuffled(topic, processes...)
	owners = make([]string, partitions)
	for id, share := range balance(t, &balancer{topic: topic}, members, topic, partitions) {
		i := slices.IndexFunc(members, func(m kmsg.JoinGroupResponseMember) bool { return m.MemberID == id })
		for _, process := range processes {
			b := &balancer{topic: topic, process: process}
			if string(b.JoinGroupMetadata([]string{topic}, nil, 0)) == string(members[i].ProtocolMetadata) {
				for _, n := range share {
					owners[n] = process
				}
			}
		}
	}
	return owners
}

// Groups with the same processes assign the same, whatever their topics, leaders and the order of members are.
func TestBalancerAlignsGroups(t *testing.T) {
	for round := range 50 {
		partitions, processes := int32(1+rand.IntN(64)), make([]string, 1+rand.IntN(6))
		for i := range processes {
			processes[i] = fmt.Sprintf("process-%d-%d", round, i)
		}
		want := byProcess(t, "likes", partitions, processes...)
		slices.Reverse(processes)
		require.Equal(t, want, byProcess(t, "like-updates", partitions, processes...))
	}
}

// A process that leaves moves its own partitions and few others, and none if it leaves one. Once it returns, all is as
// before.
func TestBalancerMovesFew(t *testing.T) {
	moved, rounds := 0, 100
	for round := range rounds {
		for _, n := range []int{2, 3, 4} {
			var processes []string
			for i := range n {
				processes = append(processes, fmt.Sprintf("process-%d-%d", round, i))
			}
			before, after := byProcess(t, input, 8, processes...), byProcess(t, input, 8, processes[1:]...)
			for p := range before {
				if before[p] != processes[0] && before[p] != after[p] {
					require.Greater(t, n, 2, "the other half stays")
					moved++
				}
			}
			require.Equal(t, before, byProcess(t, input, 8, processes...))
		}
	}
	require.Less(t, moved, rounds*2, "of 24 partitions a round")
}

// A version before this balancer may be in the group, as a leader or not. Its leader understands our metadata.
func TestBalancerAmongOlderVersions(t *testing.T) {
	older := kgo.StickyBalancer()
	require.Equal(t, older.ProtocolName(), (&balancer{}).ProtocolName())
	members := shuffled(input, "a", "b")
	members = append(members, kmsg.JoinGroupResponseMember{MemberID: "older",
		ProtocolMetadata: older.JoinGroupMetadata([]string{input}, map[string][]int32{input: {0, 1, 2, 3, 4, 5}}, 4)})
	balance(t, &balancer{topic: input}, members, input, 8)
	shares := balance(t, older, members, input, 8)
	require.Len(t, slices.DeleteFunc(shares["older"], func(n int32) bool { return n > 5 }), len(shares["older"]),
		"it reads that nothing is owned by others")
	balance(t, &balancer{topic: input}, shuffled(input, "a", "a"), input, 8) // a copied disk
}

func TestProcessIDStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	id := ProcessID(dir)
	require.NotEmpty(t, id)
	require.Equal(t, id, ProcessID(dir))
	require.NotEqual(t, id, ProcessID(t.TempDir()))
	for _, damaged := range []string{"", id[:20], id[:20] + "\xe9\x93\x71\xb5\xfa\x81", id + id} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "process-id"), []byte(damaged), 0o600))
		repaired := ProcessID(dir)
		require.Regexp(t, "^[A-Z2-7]{26}$", repaired)
		require.Equal(t, repaired, ProcessID(dir))
	}
	require.NotEmpty(t, ProcessID("/dev/null/none"), "until the process ends")
}
