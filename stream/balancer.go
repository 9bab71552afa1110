package stream

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// balancer assigns partitions by nothing but the ids of the group's processes, so that two groups with the same
// processes assign partition n to the same one, and a process that returns gets its former partitions, with its disk.
//
// It keeps the assignment from the client, which would otherwise consume it, or revoke it at each rebalance: see group.
type balancer struct {
	topic, process string
	requests       atomic.Int32 // of a rebalance: Kafka starts one only if the metadata of a member changes
	assigned       []int32      // by the current generation; used by the client's callbacks only
}

// ownsNothing is what older versions, in the group during an upgrade, expect as user data: no partitions and no
// generation. They ignore what follows. They are known by their member ids, having no process id.
const ownsNothing = "\x00\x00\x00\x00\xff\xff\xff\xff" + "kudos "

// ProtocolName is that of older versions.
func (*balancer) ProtocolName() string { return "sticky" }
func (*balancer) IsCooperative() bool  { return false }

func (b *balancer) JoinGroupMetadata(topics []string, _ map[string][]int32, _ int32) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics = 3, topics
	meta.UserData = fmt.Appendf(nil, "%s%s %d", ownsNothing, b.process, b.requests.Load())
	return meta.AppendTo(nil)
}

func (b *balancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	topics, err := kgo.ParseConsumerSyncAssignment(assignment)
	b.assigned = topics[b.topic]
	return nil, err
}

func (b *balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember,
) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	m, err := kgo.NewConsumerBalancer(b, members)
	return m, m.MemberTopics(), err
}

func (*balancer) Balance(m *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	plan, members := m.NewPlan(), map[string]*kmsg.JoinGroupResponseMember{}
	m.EachMember(func(member *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		process := member.MemberID
		if data, ok := bytes.CutPrefix(meta.UserData, []byte(ownsNothing)); ok {
			process, _, _ = strings.Cut(string(data), " ")
		}
		if members[process] != nil {
			process += member.MemberID // a copied disk
		}
		members[process] = member
	})
	for topic, partitions := range topics {
		for n, process := range assign(slices.Collect(maps.Keys(members)), partitions) {
			plan.AddPartition(members[process], topic, int32(n))
		}
	}
	return plan
}

// assign returns the process of each partition: of all pairs of a process and a partition, those with the highest hash,
// as far as the processes' numbers of partitions differ by 1 at most.
func assign(processes []string, partitions int32) []string {
	type pair struct {
		process   string
		partition int32
		weight    uint64
	}
	var pairs []pair
	for _, process := range processes {
		for n := range partitions {
			hash := sha256.Sum256(fmt.Appendf(nil, "%s/%d", process, n))
			pairs = append(pairs, pair{process, n, binary.BigEndian.Uint64(hash[:])})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.process, b.process))
	})
	assigned, counts := make([]string, partitions), map[string]int{}
	share, more := int(partitions)/len(processes), int(partitions)%len(processes)
	for _, p := range pairs {
		switch n := counts[p.process]; {
		case assigned[p.partition] != "", n > share, n == share && more == 0:
			continue
		case n == share:
			more--
		}
		assigned[p.partition] = p.process
		counts[p.process]++
	}
	return assigned
}

// processID is what rand.Text returns. Another id would be a damaged file: JSON replaces bytes that are not UTF-8, so
// that the process would not find itself among the members of its group.
var processID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// ProcessID returns the id of the process with the local state in dir, and creates it if there is none. If it cannot be
// stored, it lasts until the process ends.
func ProcessID(dir string) string {
	file := filepath.Join(dir, "process-id")
	if id, err := os.ReadFile(file); err == nil && processID.Match(id) {
		return string(id)
	}
	id := rand.Text()
	if err := os.MkdirAll(dir, 0o755); err == nil {
		_ = os.WriteFile(file, []byte(id), 0o600)
	}
	return id
}
