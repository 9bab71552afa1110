package stream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// Replicas is a member of a consumer group whose members keep replicas of a topic's partitions. Each partition is kept
// by several of them, in different zones as far as possible, and each member knows by whom. The group consumes nothing.
//
// A replica outlives generations: its member keeps it until a generation assigns it to enough others whose replicas are
// ready. So no partition is without one while members come and go one at a time.
type Replicas struct {
	opts ReplicaOptions
	log  *slog.Logger

	mu struct {
		sync.Mutex
		err  error       // why there is no assignment
		told []int32     // what the group was told last to be ready
		last replication // the assignment of the current generation
	}
}

// ReplicaOptions are all required, except Zone.
type ReplicaOptions struct {
	Kafka          kafka.Options
	Group, Topic   string
	Replicas       int           // of each partition
	ProcessID      string        // the same after a restart on the same disk; see ProcessID
	Address, Zone  string        // of this member
	SessionTimeout time.Duration // how long a member may be away before others replace its replicas

	Ready   func() []int32                             // the partitions that can be read at this member, in order
	Assign  func(context.Context, []int32) error       // makes this member keep these partitions, and drop all others
	Changed func(holders [][]Holder, generation int32) // called with who has which partition
}

// Holder is a member that keeps a partition.
type Holder struct {
	Address string
	Ready   bool // as of the last generation
}

// replicaMember is what a member tells the group of itself.
type replicaMember struct {
	Process string  `json:"process"`
	Address string  `json:"address"`
	Zone    string  `json:"zone,omitempty"`
	Ready   []int32 `json:"ready"`
}

// replication is what each member is assigned: the indexes of the members that have each partition.
type replication struct {
	Members  []replicaMember `json:"members"`
	Replicas [][]int         `json:"replicas"` // by partition
}

const (
	// replicaCheck is how often a member checks whether its replicas have become ready or unreadable. It tells the
	// group, which rebalances.
	replicaCheck = time.Second
	// replicaProtocol names the balancer. A group has one in common.
	replicaProtocol = "kudos-replicas"
)

// NewReplicas returns a member; Run joins the group.
func NewReplicas(opts ReplicaOptions, log *slog.Logger) *Replicas {
	r := &Replicas{opts: opts, log: log.With("group", opts.Group)}
	r.mu.err = errors.New("not started")
	return r
}

// Err returns why the member has no assignment, or nil.
func (r *Replicas) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.err
}

func (r *Replicas) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.err = err
}

// Run is a member of the group until ctx ends; it retries after every error. Its replicas stay.
func (r *Replicas) Run(ctx context.Context) error {
	again(ctx, r.runOnce, func(err error, in time.Duration) {
		r.log.Warn("sharing out replicas failed", "error", err, "retry_in", in)
		r.failed(err)
	})
	return nil
}

func (r *Replicas) runOnce(ctx context.Context) error {
	assigned := make(chan struct{}, 1)
	member, err := r.opts.Kafka.NewClient(r.log,
		kgo.ConsumerGroup(r.opts.Group),
		kgo.InstanceID(r.opts.ProcessID), // a restart is no reason to copy anything
		kgo.ConsumeTopics(r.opts.Topic),
		kgo.Balancers(&replicaBalancer{r}),
		kgo.SessionTimeout(r.opts.SessionTimeout),
		kgo.HeartbeatInterval(min(time.Second, r.opts.SessionTimeout/5)),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { wakeUp(assigned) }),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {}),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {}),
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var polling sync.WaitGroup
	polling.Go(func() {
		watchFailures(member, r.failed)
		cancel(errors.New("the client was closed"))
	})
	defer func() { cancel(nil); member.Close(); polling.Wait() }()
	check := time.NewTicker(replicaCheck)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-assigned:
			if err := r.assign(ctx, member); err != nil {
				return err
			}
		case <-check.C:
			if r.news() {
				member.ForceRebalance()
			}
		}
	}
}

func wakeUp(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// watchFailures reports why a client could not join its group or stay in it, until the client is closed.
func watchFailures(member *kgo.Client, failed func(error)) {
	for {
		fetches := member.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		for _, f := range fetches.Errors() {
			if failure, ok := errors.AsType[*kgo.ErrGroupSession](f.Err); ok {
				failed(failure.Err)
			}
		}
	}
}

// news reports whether the group has been told something else than what is kept now.
func (r *Replicas) news() bool {
	ready := r.opts.Ready()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.last.Members != nil && !slices.Equal(ready, r.mu.told)
}

// assign follows the assignment of the current generation.
func (r *Replicas) assign(ctx context.Context, member *kgo.Client) error {
	r.mu.Lock()
	last := r.mu.last
	r.mu.err = nil
	r.mu.Unlock()
	_, generation := member.GroupMetadata()
	holders, own := make([][]Holder, len(last.Replicas)), []int32{}
	for p, members := range last.Replicas {
		for _, i := range members {
			m := &last.Members[i]
			holders[p] = append(holders[p], Holder{m.Address, slices.Contains(m.Ready, int32(p))})
			if m.Process == r.opts.ProcessID {
				own = append(own, int32(p))
			}
		}
		slices.SortStableFunc(holders[p], func(a, b Holder) int { return readyFirst[a.Ready] - readyFirst[b.Ready] })
	}
	r.log.Info("replicas assigned", "event", "replicas_assigned", "generation", generation,
		"members", len(last.Members), "partitions", own)
	r.opts.Changed(holders, generation)
	return r.opts.Assign(ctx, own)
}

var readyFirst = map[bool]int{true: -1} // the order of holders

// replicaBalancer is the client's view of Replicas.
type replicaBalancer struct{ *Replicas }

func (*replicaBalancer) ProtocolName() string { return replicaProtocol }
func (*replicaBalancer) IsCooperative() bool  { return false }

func (b *replicaBalancer) JoinGroupMetadata(topics []string, _ map[string][]int32, _ int32) []byte {
	own := replicaMember{b.opts.ProcessID, b.opts.Address, b.opts.Zone, b.opts.Ready()}
	b.mu.Lock()
	b.mu.told = own.Ready
	b.mu.Unlock()
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics = 3, topics
	meta.UserData, _ = json.Marshal(own) // always possible
	return meta.AppendTo(nil)
}

// ParseSyncAssignment keeps the assignment from the client, which would otherwise consume it.
func (b *replicaBalancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(assignment); err != nil {
		return nil, fmt.Errorf("decoding the assignment of replicas: %w", err)
	}
	var all replication
	if err := json.Unmarshal(a.UserData, &all); err != nil {
		return nil, fmt.Errorf("decoding who has which replica: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.last = all
	return nil, nil
}

func (b *replicaBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember,
) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	m, err := kgo.NewConsumerBalancer(b, members)
	return m, m.MemberTopics(), err
}

type syncAssignment []kmsg.SyncGroupRequestGroupAssignment

func (s syncAssignment) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment { return s }

func (b *replicaBalancer) Balance(m *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	var all replication
	var ids []string
	m.EachMember(func(member *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		own := replicaMember{Process: member.MemberID}
		if err := json.Unmarshal(meta.UserData, &own); err != nil {
			b.log.Error("a member of the group cannot be understood", "member", member.MemberID, "error", err)
		}
		all.Members, ids = append(all.Members, own), append(ids, member.MemberID)
	})
	all.Replicas = placeReplicas(all.Members, topics[b.opts.Topic], b.opts.Replicas)
	data, _ := json.Marshal(all) // always possible
	var assignments syncAssignment
	for i, id := range ids {
		a, t := kmsg.NewConsumerMemberAssignment(), kmsg.NewConsumerMemberAssignmentTopic()
		a.UserData, t.Topic = data, b.opts.Topic
		for p, members := range all.Replicas {
			if slices.Contains(members, i) {
				t.Partitions = append(t.Partitions, int32(p))
			}
		}
		a.Topics = append(a.Topics, t)
		assignment := kmsg.NewSyncGroupRequestGroupAssignment()
		assignment.MemberID, assignment.MemberAssignment = id, a.AppendTo(nil)
		assignments = append(assignments, assignment)
	}
	return assignments
}

// placeReplicas returns the indexes of the members that keep each partition: so many owners, and as long as fewer of
// them are ready, all others that are.
func placeReplicas(members []replicaMember, partitions int32, replicas int) [][]int {
	replicas = min(replicas, len(members))
	placed := owners(members, partitions, replicas)
	for p := range partitions {
		ready := func(i int) bool { return slices.Contains(members[i].Ready, p) }
		if !slices.ContainsFunc(placed[p], func(i int) bool { return !ready(i) }) {
			continue
		}
		for i := range members {
			if ready(i) && !slices.Contains(placed[p], i) {
				placed[p] = append(placed[p], i)
			}
		}
	}
	return placed
}

// owners depends on nothing but the members' ids and zones, so that one that returns gets its former partitions. Each
// partition goes to the members with the highest hashes with it, in as many zones as there are; then those that have
// the most pass partitions on to those that have the least.
func owners(members []replicaMember, partitions int32, replicas int) [][]int {
	weight, order := make([][]uint64, len(members)), make([]int, len(members))
	for i := range members {
		order[i], weight[i] = i, make([]uint64, partitions)
		for p := range partitions {
			hash := sha256.Sum256(fmt.Appendf(nil, "%s/%d", members[i].Process, p))
			weight[i][p] = binary.BigEndian.Uint64(hash[:])
		}
	}
	byProcess := func(a, b int) int { return cmp.Compare(members[a].Process, members[b].Process) }
	placed, load := make([][]int, partitions), make([]int, len(members))
	for p := range placed {
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(weight[b][p], weight[a][p]), byProcess(a, b))
		})
		for _, anyZone := range []bool{false, true} {
			for _, i := range order {
				if len(placed[p]) < replicas && !slices.Contains(placed[p], i) &&
					(anyZone || !sameZone(members, placed[p], i)) {
					placed[p] = append(placed[p], i)
					load[i]++
				}
			}
		}
	}
	for passOn(members, placed, load, weight) {
	}
	return placed
}

func sameZone(members []replicaMember, of []int, i int) bool {
	return slices.ContainsFunc(of, func(other int) bool {
		return members[i].Zone != "" && members[i].Zone == members[other].Zone
	})
}

// passOn gives a replica of a member to one that has at least two fewer, unless no zone allows that.
func passOn(members []replicaMember, placed [][]int, load []int, weight [][]uint64) bool {
	type move struct {
		partition, replica, from, to int
	}
	var best move
	most := func(m move) int { return load[m.from] - load[m.to] }
	for p, of := range placed {
		for k, from := range of {
			others := slices.Delete(slices.Clone(of), k, k+1)
			for to := range members {
				m := move{p, k, from, to}
				if most(m) < 2 || slices.Contains(of, to) ||
					sameZone(members, others, to) && !sameZone(members, others, from) {
					continue
				}
				if best.from == best.to || cmp.Or(cmp.Compare(most(m), most(best)),
					cmp.Compare(weight[to][p], weight[best.to][best.partition]),
					cmp.Compare(members[best.from].Process, members[from].Process)) > 0 {
					best = m
				}
			}
		}
	}
	if best.from == best.to {
		return false
	}
	placed[best.partition][best.replica] = best.to
	load[best.from]--
	load[best.to]++
	return true
}
