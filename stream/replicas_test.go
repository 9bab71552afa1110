package stream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
)

func replicaMembers(n int, zones ...string) (members []replicaMember) {
	for i := range n {
		m := replicaMember{Process: fmt.Sprintf("process-%d", i)}
		if len(zones) > 0 {
			m.Zone = zones[i%len(zones)]
		}
		members = append(members, m)
	}
	return members
}

func loads(placed [][]int, members int) (load []int) {
	load = make([]int, members)
	for _, of := range placed {
		for _, i := range of {
			load[i]++
		}
	}
	return load
}

// Each partition has as many owners as there are members, up to the number of replicas, in different zones if there
// are several, and no member has many more than others.
func TestReplicasAreSpread(t *testing.T) {
	for range 200 {
		n, partitions, replicas := 1+rand.IntN(7), int32(1+rand.IntN(64)), 1+rand.IntN(3)
		members := replicaMembers(n)
		placed := owners(members, partitions, min(replicas, n))
		for p, of := range placed {
			require.Len(t, of, min(replicas, n), "partition %d", p)
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(of))), len(of), "all are different")
		}
		load := loads(placed, n)
		require.LessOrEqual(t, slices.Max(load)-slices.Min(load), 1, "%d members, %d partitions: %v", n,
			partitions, load)

		rand.Shuffle(n, func(i, j int) { members[i], members[j] = members[j], members[i] })
		for p, of := range owners(members, partitions, min(replicas, n)) {
			for k, i := range of {
				require.Equal(t, fmt.Sprintf("process-%d", placed[p][k]), members[i].Process, "whatever the order is")
			}
		}
	}
	members := replicaMembers(5, "a", "a", "b")
	for p, of := range owners(members, 32, 2) {
		require.NotEqual(t, members[of[0]].Zone, members[of[1]].Zone, "partition %d", p)
	}
	for _, of := range owners(members, 32, 3) {
		require.Len(t, of, 3, "although there are two zones")
	}
}

// A member that leaves is replaced where it was, and few others move.
func TestReplicasStayWhereTheyAre(t *testing.T) {
	const partitions, replicas, n = 32, 2, 4
	members := replicaMembers(n)
	before, after := owners(members, partitions, replicas), owners(members[:n-1], partitions, replicas)
	moved := 0
	for p := range before {
		for _, i := range before[p] {
			if i < n-1 && !slices.Contains(after[p], i) {
				moved++
			}
		}
	}
	require.Less(t, moved, partitions*replicas/4)
	require.Equal(t, before, owners(members, partitions, replicas))
}

// Whoever can be read keeps its replica until all owners can.
func TestReplicasAreKeptUntilOthersAreReady(t *testing.T) {
	members := replicaMembers(4)
	of := owners(members, 1, 2)[0]
	var others []int
	for i := range members {
		if !slices.Contains(of, i) {
			others = append(others, i)
		}
	}
	placed := func() []int { return placeReplicas(members, 1, 2)[0] }
	require.Equal(t, of, placed(), "nobody is ready")
	members[others[0]].Ready = []int32{0}
	require.Equal(t, append(slices.Clone(of), others[0]), placed())
	members[of[0]].Ready = []int32{0}
	require.Equal(t, append(slices.Clone(of), others[0]), placed(), "one of two is ready")
	members[of[1]].Ready = []int32{0}
	require.Equal(t, of, placed())
}

// replicaRig is a member whose replicas become ready on command.
type replicaRig struct {
	*Replicas
	id   string
	stop func()

	mu      sync.Mutex
	own     []int32
	ready   []int32
	holders [][]Holder
}

func (c *cluster) joinReplicas(id string) *replicaRig {
	r := &replicaRig{id: id}
	r.Replicas = NewReplicas(ReplicaOptions{Kafka: c.kafka, Group: "copies", Topic: testkit.Table, Replicas: 2,
		ProcessID: id, Address: "http://" + id, SessionTimeout: 6 * time.Second,
		Ready: func() []int32 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Clone(r.ready)
		},
		Assign: func(_ context.Context, own []int32) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.own = own
			r.ready = slices.DeleteFunc(r.ready, func(p int32) bool { return !slices.Contains(own, p) })
			return nil
		},
		Changed: func(holders [][]Holder, _ int32) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.holders = holders
		}}, testkit.Log())
	r.stop = testrun.Start(c.t, "member "+id, testkit.Patience, r.Run)
	return r
}

func (r *replicaRig) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = slices.Sorted(slices.Values(r.own))
}

func (r *replicaRig) now() (own []int32, holders [][]Holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own, r.holders
}

// Members share out the partitions, and all know who has which. One that joins gets some; those that had them keep
// theirs until it is ready.
func TestReplicasOfAGroup(t *testing.T) {
	t.Parallel()
	const partitions = 8
	c := newCluster(t)
	c.Topic(testkit.Table, partitions)
	a, b := c.joinReplicas("a"), c.joinReplicas("b")
	all := func(rigs ...*replicaRig) func() bool {
		lacks := func(r *replicaRig) bool {
			own, holders := r.now()
			return len(own) != partitions || len(holders) != partitions || r.Err() != nil
		}
		return func() bool { return !slices.ContainsFunc(rigs, lacks) }
	}
	testkit.WaitFor(t, "two members to have everything", all(a, b))
	a.finish()
	b.finish()
	readyBy := func(of *replicaRig, n int, who ...string) func() bool {
		return func() bool {
			_, holders := of.now()
			count := 0
			for _, partition := range holders {
				for _, h := range partition {
					if h.Ready && slices.Contains(who, h.Address) {
						count++
					}
				}
			}
			return count == n
		}
	}
	testkit.WaitFor(t, "all to hear that they are ready", readyBy(a, 2*partitions, "http://a", "http://b"))

	third := c.joinReplicas("c")
	testkit.WaitFor(t, "the third member to get some", func() bool { own, _ := third.now(); return len(own) > 0 })
	require.True(t, all(a, b)(), "nothing is dropped while the new one is not ready")
	third.finish()
	testkit.WaitFor(t, "the others to drop what it has", func() bool {
		total := 0
		for _, r := range []*replicaRig{a, b, third} {
			own, _ := r.now()
			total += len(own)
		}
		return total == 2*partitions
	})
}

// A view of some partitions reads these only, and deletes what it does not keep.
func TestViewOfSomePartitions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 3)
	for p := range int32(3) {
		c.Produce(testkit.Record(testkit.Table, p, "a", fmt.Sprint(p)), testkit.Record(testkit.Table, p, "end", "1"))
	}
	v := c.runView(t.TempDir(), func(v *View) { v.KeepNone() })
	keep := func(wanted ...int32) {
		t.Helper()
		require.NoError(t, v.Keep(t.Context(), func(p int32) bool { return slices.Contains(wanted, p) }))
		testkit.WaitFor(t, fmt.Sprintf("partitions %v", wanted),
			func() bool { return slices.Equal(v.Readable(), wanted) })
		require.Equal(t, wanted, slices.Sorted(slices.Values(v.opts.Stores.OnDisk(testkit.Table))))
		require.NoError(t, v.Ready())
	}
	testkit.WaitFor(t, "the number of partitions",
		func() bool { n, err := v.Partitions(); return err == nil && n == 3 })
	require.Empty(t, v.Readable())
	keep(0, 2)
	var notReady *ViewNotReadyError
	require.ErrorAs(t, v.Read(1, nil, nil), &notReady)
	require.True(t, notReady.NotKept)
	keep(1, 2)
	c.Produce(testkit.Record(testkit.Table, 1, "a", "new"), testkit.Record(testkit.Table, 1, "end", "1"))
	keep(0, 1)
	keep(0, 1, 2)
}
