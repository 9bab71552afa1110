package processor_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/devtest"
	"kudos/ops/repartition"
	"kudos/processor"
	"kudos/processor/fold"
	"kudos/schema"
	"kudos/sql"
)

// repartitioned is a system whose partition count grows, with the reactions that it must have.
type repartitioned struct {
	*system
	random *rand.Rand
	clock  int64
	want   map[fold.PairKey]schema.Event // the last event of each pair
	layout schema.Layout                 // by which writers write
	past   []schema.Event                // all events so far
	bots   []uint64                      // voided users
}

const repartitionPosts, repartitionUsers = 60, 40

// newRepartitioned returns a system that has counted some random events.
func newRepartitioned(t *testing.T, events int, change ...func(*processor.Options)) (*repartitioned, *instance) {
	s := &repartitioned{system: newSystem(t), random: rand.New(rand.NewPCG(4, 8)), clock: 1.7e12,
		want: map[fold.PairKey]schema.Event{}}
	s.layout, _ = schema.NewLayout(partitions, "")
	p := s.run(append(change, betweenRetries)...)
	s.react(events)
	s.waitCounted()
	return s, p
}

// betweenRetries leaves a tool time for its transaction, under the race detector too: each retry of a parked partition
// takes the transactional id over. The default leaves 5 s.
func betweenRetries(o *processor.Options) { o.ParkInterval = 2 * time.Second }

// react writes n random events, by the layout that writers know.
func (s *repartitioned) react(n int) {
	s.t.Helper()
	regions := []string{"DE", "US", "GB-ENG", "ZZ"}
	var records []*kgo.Record
	for range n {
		s.clock += 1 + s.random.Int64N(400_000)
		region, _ := schema.ParseRegion(regions[s.random.IntN(len(regions))])
		e := schema.Event{PostID: 1 + s.random.Uint64N(repartitionPosts),
			UserID: 1 + s.random.Uint64N(repartitionUsers),
			Action: []schema.Action{schema.Like, schema.Like, schema.Dislike, schema.Unlike}[s.random.IntN(4)],
			TimeMs: s.clock, Region: region}
		s.want[fold.PairKey{PostID: e.PostID, UserID: e.UserID}] = e
		s.past = append(s.past, e)
		records = append(records, s.record(e))
	}
	s.produce(records...)
}

func (s *repartitioned) record(e schema.Event) *kgo.Record {
	rec := record(e)
	rec.Partition = s.layout.PartitionOf(e.PostID, e.UserID)
	rec.Key = s.layout.AppendKey(nil, e.PostID, e.UserID)
	return rec
}

// wanted returns the expected counts of posts that have any.
func (s *repartitioned) wanted() map[uint64]schema.Counts {
	counts := map[uint64]schema.Counts{}
	for key, e := range s.want {
		if !slices.Contains(s.bots, key.UserID) {
			add(counts, key.PostID, e.Action.Reaction().Counts())
		}
	}
	return counts
}

func (s *repartitioned) waitCounted() {
	s.t.Helper()
	want := s.wanted()
	s.waitFor("the expected counts", func() (bool, any) {
		have := s.counts()
		return fmt.Sprint(have) == fmt.Sprint(want), have
	})
}

func (s *repartitioned) options(count int32) repartition.Options {
	o := repartition.DefaultOptions()
	o.Layout, o.TempDir, o.MovePairs = schema.Layout{Partitions: count}, s.t.TempDir(), 50
	return o
}

func (s *repartitioned) repartition(ctx context.Context, o repartition.Options) (*repartition.Result, error) {
	db, err := sql.Open(s.mysql, s.log)
	require.NoError(s.t, err)
	defer db.Close()
	return repartition.Run(ctx, o, s.Options, db, s.log)
}

// grow repartitions; writers know the new layout afterward.
func (s *repartitioned) grow(count int32) *repartition.Result {
	s.t.Helper()
	result, err := s.repartition(s.t.Context(), s.options(count))
	require.NoError(s.t, err)
	s.layout.Partitions = count
	return result
}

// checkHomes checks the state table: each pair is in the partition that owns it, and so are each post's counts.
func (s *repartitioned) checkHomes(layout schema.Layout, layouts uint32) {
	s.t.Helper()
	seen, sums := map[fold.PairKey]bool{}, map[uint64]schema.Counts{}
	for p := range layout.Partitions {
		table := s.checkTable(p)
		require.Equal(s.t, layout, table.progress.Layout())
		require.Equal(s.t, layouts, table.progress.Layouts)
		require.False(s.t, table.progress.Migrating)
		counts := map[uint64]schema.Counts{}
		for key, pair := range table.pairs {
			require.Equal(s.t, layout.PartitionOf(key.PostID, key.UserID), p, "%v is in the wrong partition", key)
			require.Equal(s.t, s.want[key].Action.Reaction(), pair.Reaction, "%v", key)
			require.Equal(s.t, s.want[key].TimeMs, pair.TimeMs, "%v", key)
			seen[key] = true
			add(counts, key.PostID, pair.Counts())
		}
		for post, c := range table.counts {
			require.Contains(s.t, layout.PartitionsOf(post), p, "counts of post %d", post)
			require.Equal(s.t, counts[post], c, "post %d in partition %d", post, p)
		}
		for post, c := range counts {
			require.Equal(s.t, c, table.counts[post], "post %d in partition %d", post, p)
			add(sums, post, c)
		}
	}
	for key := range s.want {
		require.True(s.t, seen[key], "%v is lost", key)
	}
	for post, c := range s.wanted() {
		require.Equal(s.t, c, sums[post], "post %d", post)
	}
}

// checkExact checks that all is counted, MySQL included, after sending some events again, which must change nothing.
func (s *repartitioned) checkExact(layouts uint32) {
	s.t.Helper()
	s.waitCounted()
	for _, e := range s.past {
		if s.want[fold.PairKey{PostID: e.PostID, UserID: e.UserID}] == e && s.random.IntN(5) == 0 {
			s.produce(s.record(e))
		}
	}
	s.react(50)
	s.waitCounted()
	s.waitFolded() // events in flight must be folded before the check
	s.waitCounted()
	s.checkHomes(s.layout, layouts)
	require.Zero(s.t, s.seen()[schema.TopicDLT], "dead letters")
	// like_hourly, summed over all partitions, equals the reactions.
	var have, want schema.Counts
	for _, c := range s.hourly() {
		have = have.Plus(c)
	}
	for _, c := range s.wanted() {
		want = want.Plus(c)
	}
	require.Equal(s.t, want, have)
}

// While writers still send to old partitions, nothing is lost or counted twice, and all ends up in its partition.
func TestRepartition(t *testing.T) {
	t.Parallel()
	for _, count := range []int32{8, 6} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			s, p := newRepartitioned(t, 3000, maxBatch(100))
			before := maps.Clone(s.want)
			s.react(300) // some are in flight
			result, err := s.repartition(t.Context(), s.options(count))
			require.NoError(t, err)
			require.Equal(t, int32(partitions), result.From)
			require.Equal(t, count, result.To)
			require.Positive(t, result.Posts)
			require.Greater(t, result.Pairs, result.Posts)
			require.Zero(t, result.Repaired)
			s.react(300) // by writers that do not know the new layout yet
			s.layout, _ = schema.NewLayout(count, "")
			s.waitCounted() // what was in flight has been forwarded
			s.changeTheirMinds(before)
			s.react(300)
			s.waitCounted()
			p.waitReady()
			s.checkExact(1)

			done, said := s.options(count), heard{}
			done.Say = said.Say
			result, err = s.repartition(t.Context(), done)
			require.NoError(t, err, "it may be run again after any error")
			require.Zero(t, result.Transactions)
			require.Contains(t, said.said[0], fmt.Sprintf("nothing to do: there are already %d partitions", count))
			_, err = s.repartition(t.Context(), s.options(count-1))
			require.ErrorContains(t, err, "Kafka cannot remove any: set topics.partitions to")
			// And once more, with a post that moves to several partitions.
			s.layout, _ = schema.NewLayout(2*count+1, "1:16")
			again := s.options(2*count + 1)
			again.Layout = s.layout
			_, err = s.repartition(t.Context(), again)
			require.NoError(t, err)
			s.checkExact(2)
			report, err := s.tryTopics(s.layout)
			require.NoError(t, err)
			require.Empty(t, report.Lines)
			require.Empty(t, s.checkLayout(s.layout, 1))
		})
	}
}

// changeTheirMinds changes reactions that have moved to new partitions, with the same event time: the later offset
// wins, and in the new partition each event is later than what was moved there, though its offset is smaller.
func (s *repartitioned) changeTheirMinds(before map[fold.PairKey]schema.Event) {
	s.t.Helper()
	var records []*kgo.Record
	for key, e := range before {
		if s.want[key] != e || s.layout.PartitionOf(e.PostID, e.UserID) < partitions || len(records) == 40 {
			continue
		}
		if e.Action == schema.Like {
			e.Action = schema.Unlike
		} else {
			e.Action = schema.Like
		}
		s.want[key] = e
		records = append(records, s.record(e))
	}
	s.produce(records...)
}

// A reaction that is in its new partition already was written by something else: it is not overwritten.
func TestRepartitionMovesNothingOver(t *testing.T) {
	t.Parallel()
	s, p := newRepartitioned(t, 500)
	p.stop()
	target := schema.Layout{Partitions: 6}
	for key := range s.want {
		from, to := s.layout.PartitionOf(key.PostID, key.UserID), target.PartitionOf(key.PostID, key.UserID)
		if to < partitions && to != from {
			s.Write(devtest.PairRecord(to, key.PostID, key.UserID, schema.Pair{Reaction: schema.Liked}))
			_, err := s.repartition(t.Context(), s.options(6))
			require.ErrorContains(t, err,
				fmt.Sprintf("the reaction of user %d to post %d is in two partitions of the state table", key.UserID,
					key.PostID))
			return
		}
	}
	t.Fatal("no reaction moves between two of the old partitions")
}

func after(n int32) func(kmsg.Request) bool {
	var seen atomic.Int32
	return func(kmsg.Request) bool { return seen.Add(1) > n }
}

// A run may end anywhere, and the next one continues; in between nothing is folded, and every process says so.
func TestRepartitionResumesWhereItWasStopped(t *testing.T) {
	t.Parallel()
	s, p := newRepartitioned(t, 2000, maxBatch(100))
	p.stop() // it would run into the first faults itself
	stood := s.counts()
	stops := []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: schema.RepartitionTransactionalID},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.FoldTransactionalIDs(2)[0]},
		{Keys: []kmsg.Key{kmsg.CreatePartitions}, Topic: schema.TopicUpdates},
		{Keys: []kmsg.Key{kmsg.CreatePartitions}, Topic: schema.TopicLikes},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.FoldTransactionalIDs(5)[0]},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.RepartitionTransactionalID},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.RepartitionTransactionalID, When: after(4)},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.RepartitionTransactionalID, When: after(9)},
	}
	for i, stop := range stops {
		stop.Count, stop.Err = 1, kerr.UnknownServerError
		faults := s.Broker.Fault(stop)
		_, err := s.repartition(t.Context(), s.options(8))
		require.Error(t, err, "stop %d", i)
		require.Equal(t, 1, int(faults.Hits()), "stop %d: %v", i, err)
		s.react(20)
		if i < 2 {
			continue // some partition is not locked yet and would be folded
		}
		switch i {
		case 2: // a new processor finds that some topics have grown, not all
			p = s.run(maxBatch(100))
			p.waitParked("partitions, but the state table was created for 4 (action: kudos topics repartition")
			continue
		case 3:
			continue
		}
		p.waitParked("likes/0 parked: a repartition to 8 partitions has not ended; nothing is folded until it has",
			"action: kudos topics repartition")
		require.Equal(t, stood, s.counts(), "stop %d", i)
		eight := schema.Layout{Partitions: 8}
		s.refuseTopics(eight, "a repartition to 8 partitions has not ended; finish it first: kudos topics repartition")
		require.Contains(t, s.checkLayout(eight, 1),
			"a repartition to 8 partitions has not ended; run: kudos topics repartition")
		_, err = s.repartition(t.Context(), s.options(9))
		require.ErrorContains(t, err, "a repartition to topics.partitions=8 has not ended; finish that one first")
	}
	s.grow(8)
	s.checkExact(1)
	p.waitReady()
}
