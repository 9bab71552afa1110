package ranker_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/dev/testkit/contract"
	"kudos/ranker"
	"kudos/schema"
)

// climbs writes updates of posts whose counts rise and fall, and remembers which milestones they reach.
type climbs struct {
	rng        *rand.Rand
	thresholds []int64
	seq        [partitions]uint64
	likes      map[uint64]*[partitions]int64
	owner      map[uint64]int32
	want       map[string]bool
	records    []*kgo.Record
}

const sharedPost = 1000 // in all partitions

func newClimbs(seed uint64, thresholds []int64) *climbs {
	return &climbs{rng: rand.New(rand.NewPCG(seed, 1)), thresholds: thresholds, likes: map[uint64]*[partitions]int64{},
		owner: map[uint64]int32{}, want: map[string]bool{}}
}

func (c *climbs) counts(post uint64) *[partitions]int64 {
	if c.likes[post] == nil {
		c.likes[post] = &[partitions]int64{}
		c.owner[post] = schema.PartitionFor(post, partitions)
	}
	return c.likes[post]
}

func (c *climbs) update(post uint64, p int32, by int64, moved bool) {
	counts := c.counts(post)
	sum := func() (n int64) {
		for _, likes := range counts {
			n += likes
		}
		return n
	}
	before := sum()
	counts[p] += by
	for _, threshold := range c.thresholds {
		if !moved && before < threshold && threshold <= sum() {
			m := schema.Milestone{PostID: post, Threshold: threshold}
			c.want[m.ID()] = true
		}
	}
	u := schema.Update{Seq: c.seq[p], Counts: schema.Counts{Likes: counts[p]}, Moved: moved, Buckets: 1,
		Deltas: []schema.Delta{{Region: schema.Region{'D', 'E'}, Minute: int64(c.seq[p] / 10), Likes: by}}}
	if post == sharedPost {
		u.Buckets = partitions
	}
	c.seq[p]++
	c.records = append(c.records, devtest.UpdateRecord(p, post, u))
}

// step changes a post, or moves one to another partition, as a repartition does.
func (c *climbs) step() {
	if c.rng.IntN(8) == 0 {
		c.update(sharedPost, c.rng.Int32N(partitions), 1, false)
		return
	}
	post := 1 + c.rng.Uint64N(12)
	has := c.counts(post)[c.owner[post]]
	if c.rng.IntN(20) == 0 {
		c.update(post, c.owner[post], -has, true)
		c.owner[post] = (c.owner[post] + 1) % partitions
		c.update(post, c.owner[post], has, true)
		return
	}
	c.update(post, c.owner[post], max(-has, c.rng.Int64N(9)-3), false)
}

func (a *arena) milestones() (found []*schema.Milestone) {
	a.t.Helper()
	published := contract.Read(a.t, "../schema/json", "milestone")
	for p := range int32(partitions) {
		for _, r := range a.read(schema.TopicMilestones, p) {
			require.NoError(a.t, contract.Obeys(a.t, published, r.Value), "%s", r.Value)
			m, err := schema.DecodeMilestone(r.Value)
			require.NoError(a.t, err)
			require.Equal(a.t, string(schema.AppendPostKey(nil, m.PostID)), string(r.Key))
			found = append(found, m)
		}
	}
	return found
}

// A milestone is published once, however often a count falls and rises, posts move, and rankers restart, on an empty
// disk, too, or start over.
func TestMilestonesAreExact(t *testing.T) {
	t.Parallel()
	a := newArena(t, func(o *ranker.Options) { o.Milestones, o.MaxBatch = []int64{5, 10, 40, 100}, 30 })
	c := newClimbs(1, a.opts.Milestones)
	a.start()
	for i := range 40 {
		for range 50 {
			c.step()
		}
		a.Write(c.records...)
		c.records = nil
		switch i {
		case 10, 20:
			a.start()
		case 15:
			a.opts.StateDir = t.TempDir()
			a.start()
		case 30:
			a.run.stop()
			a.reset(partitions)
			a.start()
		}
	}
	require.Greater(t, len(c.want), 20)
	a.waitFor("the milestones", func() (bool, any) {
		n := len(a.milestones())
		return n >= len(c.want), n
	})
	waitCaughtUp(t, a.run.Ready, a.run.reg)
	var ids []string
	for _, m := range a.milestones() {
		ids = append(ids, m.ID())
		require.GreaterOrEqual(t, m.Likes, m.Threshold, m.ID())
		require.WithinDuration(t, time.Now(), m.Time, time.Minute)
		require.Less(t, m.Offset, a.End(schema.TopicUpdates, m.Partition))
	}
	slices.Sort(ids)
	require.Equal(t, slices.Sorted(maps.Keys(c.want)), ids)
}

func TestNoMilestones(t *testing.T) {
	t.Parallel()
	a := newArena(t, func(o *ranker.Options) { o.Milestones = nil })
	c := newClimbs(2, nil)
	for range 100 {
		c.step()
	}
	a.Write(c.records...)
	a.start()
	waitCaughtUp(t, a.run.Ready, a.run.reg)
	for p := range int32(partitions) {
		require.Zero(t, a.End(schema.TopicMilestonesLocal, p))
	}
}
