package processor_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/ops/audit"
	"kudos/ops/repartition"
	"kudos/ops/topics"
	"kudos/processor/fold"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// repartitioned is a system whose partitions become more, with the reactions that there must be.
type repartitioned struct {
	*system
	random *rand.Rand
	clock  int64
	want   map[fold.PairKey]schema.Event // the last event of each pair
	layout schema.Layout                 // by which writers write
	past   []schema.Event                // all events so far
}

const repartitionPosts, repartitionUsers = 60, 40

func newRepartitioned(t *testing.T) *repartitioned {
	s := &repartitioned{system: newSystem(t), random: rand.New(rand.NewPCG(4, 8)), clock: 1.7e12, want: map[fold.PairKey]schema.Event{}}
	s.layout, _ = schema.NewLayout(partitions, "")
	return s
}

// react writes n random events, by the layout that writers know.
func (s *repartitioned) react(n int) {
	s.t.Helper()
	regions := []string{"DE", "US", "GB-ENG", "ZZ"}
	var records []*kgo.Record
	for range n {
		s.clock += 1 + s.random.Int64N(400_000)
		region, _ := schema.ParseRegion(regions[s.random.IntN(len(regions))])
		e := schema.Event{
			PostID: 1 + s.random.Uint64N(repartitionPosts), UserID: 1 + s.random.Uint64N(repartitionUsers),
			Action: []schema.Action{schema.Like, schema.Like, schema.Dislike, schema.Unlike}[s.random.IntN(4)], TimeMs: s.clock, Region: region,
		}
		s.want[fold.PairKey{PostID: e.PostID, UserID: e.UserID}] = e
		s.past = append(s.past, e)
		records = append(records, s.record(e))
	}
	s.produceTo(records...)
}

func (s *repartitioned) record(e schema.Event) *kgo.Record {
	rec := record(e)
	rec.Partition = s.layout.Home(e.PostID, e.UserID)
	rec.Key = s.layout.AppendKey(nil, e.PostID, e.UserID)
	return rec
}

// wanted are the counts that there must be, of posts that have any.
func (s *repartitioned) wanted() map[uint64]schema.Counts {
	counts := map[uint64]schema.Counts{}
	for key, e := range s.want {
		add(counts, key.PostID, audit.One(e.Action.Reaction()))
	}
	for post, c := range counts {
		if c == (schema.Counts{}) {
			delete(counts, post)
		}
	}
	return counts
}

func (s *repartitioned) waitCounted() {
	s.t.Helper()
	want := s.wanted()
	s.waitFor("the counts", func() (bool, any) {
		have := s.counts()
		return fmt.Sprint(have) == fmt.Sprint(want), have
	})
}

func (s *repartitioned) options(count int32) repartition.Options {
	o := repartition.DefaultOptions()
	o.Layout, o.TempDir, o.MovePairs = schema.Layout{Partitions: count}, s.t.TempDir(), 50
	return o
}

// repartition runs it to its end, or to where ctx ends.
func (s *repartitioned) repartition(ctx context.Context, o repartition.Options) (*repartition.Result, error) {
	db, err := sql.Open(s.mysql, s.log)
	require.NoError(s.t, err)
	defer db.Close()
	r, err := repartition.New(o, s.kafka, db, s.log)
	require.NoError(s.t, err)
	return r.Run(ctx)
}

// checkHomes holds the state table against what it must be: each pair where it lives, each post's counts with it.
func (s *repartitioned) checkHomes(layout schema.Layout, layouts uint32) {
	s.t.Helper()
	seen := map[fold.PairKey]bool{}
	sums := map[uint64]schema.Counts{}
	for p := range layout.Partitions {
		table := map[string][]byte{}
		s.readAll(schema.TopicState, p, func(rec *kgo.Record) { table[string(rec.Key)] = rec.Value })
		var progress schema.Progress
		require.NoError(s.t, schema.DecodeProgress(table[schema.StateProgressKey], &progress))
		require.Equal(s.t, layout, progress.Layout())
		require.Equal(s.t, layouts, progress.Layouts)
		require.False(s.t, progress.Moving)
		counts, stored := map[uint64]schema.Counts{}, map[uint64]schema.Counts{}
		for key, value := range table {
			if value == nil {
				continue
			}
			if post, user, ok := schema.ParsePairKey([]byte(key)); ok {
				var pair schema.Pair
				require.NoError(s.t, schema.DecodePair(value, &pair))
				at := fold.PairKey{PostID: post, UserID: user}
				require.Equal(s.t, layout.Home(post, user), p, "%v is not at home", at)
				require.Equal(s.t, s.want[at].Action.Reaction(), pair.Reaction, "%v", at)
				require.Equal(s.t, s.want[at].TimeMs, pair.TimeMs, "%v", at)
				seen[at] = true
				add(counts, post, audit.One(pair.Reaction))
			} else if post, ok := schema.ParseCountsKey([]byte(key)); ok {
				c, err := schema.DecodeCounts(value)
				require.NoError(s.t, err)
				add(stored, post, c)
				require.Contains(s.t, layout.Homes(post), p, "counts of post %d", post)
			}
		}
		for post, c := range counts {
			require.Equal(s.t, c, stored[post], "post %d in partition %d", post, p)
			add(sums, post, c)
		}
		require.Equal(s.t, progress.NextSeq, s.checkUpdates(p, counts), "partition %d", p)
	}
	for key := range s.want {
		require.True(s.t, seen[key], "%v is lost", key)
	}
	for post, c := range s.wanted() {
		require.Equal(s.t, c, sums[post], "post %d", post)
	}
}

// checkUpdates holds the updates of a partition against its counts: numbered without a gap, the last of each post with
// its counts, all together coming to them.
func (s *repartitioned) checkUpdates(p int32, counts map[uint64]schema.Counts) (next uint64) {
	last, sums := map[uint64]schema.Counts{}, map[uint64]schema.Counts{}
	key := ""
	s.readAll(schema.TopicUpdates, p, func(rec *kgo.Record) {
		var u schema.Update
		require.NoError(s.t, schema.DecodeUpdate(rec.Value, &u))
		require.Equal(s.t, next, u.Seq, "like-updates/%d offset %d", p, rec.Offset)
		next++
		if key = string(rec.Key); key == schema.ProgressKey {
			return
		}
		post, err := schema.ParsePostKey(rec.Key)
		require.NoError(s.t, err)
		last[post] = u.Counts
		for _, d := range u.Deltas {
			add(sums, post, schema.Counts{Likes: d.Likes, Dislikes: d.Dislikes})
		}
	})
	if next > 0 {
		require.Equal(s.t, schema.ProgressKey, key, "what a transaction ends with")
	}
	for post := range last {
		require.Equal(s.t, counts[post], last[post], "the last counts of post %d in partition %d", post, p)
		require.Equal(s.t, counts[post], sums[post], "the deltas of post %d in partition %d", post, p)
	}
	return next
}

func (s *repartitioned) readAll(topic string, p int32, each func(*kgo.Record)) {
	s.t.Helper()
	err := kafka.ReadLog(s.t.Context(), s.cl, topic, p, 0, func(c kafka.LogChunk) (bool, error) {
		for _, rec := range c.Records {
			each(rec)
		}
		return c.Next < c.End, nil
	})
	require.NoError(s.t, err)
}

// checkExact has all be counted, MySQL included, with what was sent before sent once more: it changes nothing.
func (s *repartitioned) checkExact(layouts uint32) {
	s.t.Helper()
	s.waitCounted()
	for _, e := range s.past {
		s.again(e)
	}
	s.react(50)
	s.waitCounted()
	// An event that waits somewhere would still be to come: none does once all is folded.
	s.waitFor("all to be folded", func() (bool, any) {
		var behind []string
		for p := range s.layout.Partitions {
			progress, err := table.LastProgress(s.t.Context(), s.cl, p)
			require.NoError(s.t, err)
			end := int64(0) // behind the last event: the marker of one that was forwarded is nothing to fold
			s.readAll(schema.TopicLikes, p, func(rec *kgo.Record) { end = rec.Offset + 1 })
			if progress.NextOffset < end {
				behind = append(behind, fmt.Sprintf("%d: %d of %d", p, progress.NextOffset, end))
			}
		}
		return len(behind) == 0, behind
	})
	s.waitCounted()
	s.checkHomes(s.layout, layouts)
	var buried int
	for p := range int32(partitions) {
		s.readAll(schema.TopicDLT, p, func(*kgo.Record) { buried++ })
	}
	require.Zero(s.t, buried, "dead letters")
	s.checkHourly()
}

func (s *repartitioned) again(e schema.Event) {
	if s.want[fold.PairKey{PostID: e.PostID, UserID: e.UserID}] == e && s.random.IntN(5) == 0 {
		s.produceTo(s.record(e))
	}
}

// checkHourly: like_hourly has in all partitions together what the reactions come to.
func (s *repartitioned) checkHourly() {
	s.t.Helper()
	have := schema.Counts{}
	for _, c := range s.hourly() {
		have = schema.Counts{Likes: have.Likes + c.Likes, Dislikes: have.Dislikes + c.Dislikes}
	}
	want := schema.Counts{}
	for _, c := range s.wanted() {
		want = schema.Counts{Likes: want.Likes + c.Likes, Dislikes: want.Dislikes + c.Dislikes}
	}
	require.Equal(s.t, want, have)
}

// More partitions while events come in that their writers still send to the old ones: nothing is lost, nothing counts
// twice, and all of it is where it belongs.
func TestRepartition(t *testing.T) {
	t.Parallel()
	for _, count := range []int32{8, 6} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			s := newRepartitioned(t)
			p := s.run(maxBatch(100))
			s.react(3000)
			s.waitCounted()
			before := maps.Clone(s.want)
			s.react(300) // some are in flight
			result, err := s.repartition(t.Context(), s.options(count))
			require.NoError(t, err)
			require.Equal(t, int32(partitions), result.From)
			require.Equal(t, count, result.To)
			require.Positive(t, result.Posts)
			require.Greater(t, result.Pairs, result.Posts)
			require.Zero(t, result.Mended)
			s.react(300) // by writers that do not know yet
			s.layout, _ = schema.NewLayout(count, "")
			s.waitCounted() // what was in flight has been forwarded
			s.changeTheirMinds(before)
			s.react(300)
			s.waitCounted()
			p.waitReady()
			s.checkExact(1)

			_, err = s.repartition(t.Context(), s.options(count))
			require.ErrorContains(t, err, fmt.Sprintf("there is nothing to do: %d partitions is what there are", count))
			_, err = s.repartition(t.Context(), s.options(count-1))
			require.ErrorContains(t, err, "Kafka takes none away: set topics.partitions to")
			_, err = s.repartition(t.Context(), s.options(2*count+1))
			require.NoError(t, err, "and once more")
			s.layout, _ = schema.NewLayout(2*count+1, "")
			s.checkExact(2)
			report, err := topics.Apply(t.Context(), s.kafka, schema.Layout{Partitions: 2*count + 1}, 1, s.log)
			require.NoError(t, err)
			require.Empty(t, report.Lines)
			report, err = topics.Check(t.Context(), s.kafka, schema.Layout{Partitions: 2*count + 1}, 1, s.log)
			require.NoError(t, err)
			require.Empty(t, report.Lines)
		})
	}
}

// changeTheirMinds has reactions that have come to new partitions be others, of the same time: the later event decides, and
// there each event is later than what came from elsewhere, though its offset is smaller.
func (s *repartitioned) changeTheirMinds(before map[fold.PairKey]schema.Event) {
	s.t.Helper()
	var records []*kgo.Record
	for key, e := range before {
		if s.want[key] != e || s.layout.Home(e.PostID, e.UserID) < partitions || len(records) == 40 {
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
	s.produceTo(records...)
}

// A reaction that is in its new partition already has been put there by something else: it is not written over.
func TestRepartitionMovesNothingOver(t *testing.T) {
	t.Parallel()
	s := newRepartitioned(t)
	p := s.run()
	s.react(500)
	s.waitCounted()
	p.stop()
	target := schema.Layout{Partitions: 6}
	for key := range s.want {
		from, to := s.layout.Home(key.PostID, key.UserID), target.Home(key.PostID, key.UserID)
		if to < partitions && to != from {
			s.produceTo(&kgo.Record{
				Topic: schema.TopicState, Partition: to, Key: schema.AppendPairKey(nil, key.PostID, key.UserID),
				Value: schema.AppendPair(nil, &schema.Pair{Reaction: schema.Liked}),
			})
			_, err := s.repartition(t.Context(), s.options(6))
			require.ErrorContains(t, err, fmt.Sprintf("the reaction of user %d to post %d is in two partitions of the state table", key.UserID, key.PostID))
			return
		}
	}
	t.Fatal("no reaction moves from one of the partitions that there were to another one")
}

// after is for the request after n others.
func after(n int32) func(kmsg.Request) bool {
	var seen atomic.Int32
	return func(kmsg.Request) bool { return seen.Add(1) > n }
}

// A run that ends anywhere leaves what the next one goes on with; in between nothing is folded, and everybody says so.
func TestRepartitionGoesOnWhereItWasStopped(t *testing.T) {
	t.Parallel()
	s := newRepartitioned(t)
	p := s.run(maxBatch(100))
	s.react(2000)
	s.waitCounted()
	p.stop() // it would meet the first faults itself
	stood := s.counts()
	stops := []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: schema.RepartitionTransactionalID},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.FoldTransactionalID(2)},
		{Keys: []kmsg.Key{kmsg.CreatePartitions}, Topic: schema.TopicUpdates},
		{Keys: []kmsg.Key{kmsg.CreatePartitions}, Topic: schema.TopicLikes},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.FoldTransactionalID(5)},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.RepartitionTransactionalID},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.RepartitionTransactionalID, When: after(4)},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.RepartitionTransactionalID, When: after(9)},
	}
	for i, stop := range stops {
		stop.Count, stop.Err = 1, kerr.UnknownServerError
		faults := s.broker.Fault(stop)
		_, err := s.repartition(t.Context(), s.options(8))
		require.Error(t, err, "stop %d", i)
		require.Equal(t, 1, int(faults.Hits()), "stop %d: %v", i, err)
		s.react(20)
		if i < 2 {
			continue // some partition is not locked, and would be folded
		}
		switch i {
		case 2: // one that is started finds some topics grown, and not all
			p = s.run(maxBatch(100))
			p.waitParked("partitions, the state table was made for 4 (remedy: kudos topics repartition")
			continue
		case 3:
			continue
		}
		p.waitParked("likes/0 parked: a repartition to 8 partitions has not ended; nothing is folded until it has", "remedy: kudos topics repartition")
		require.Equal(t, stood, s.counts(), "stop %d", i)
		_, err = topics.Apply(t.Context(), s.kafka, schema.Layout{Partitions: 8}, 1, s.log)
		require.ErrorContains(t, err, "a repartition to 8 partitions has not ended; finish it first: kudos topics repartition")
		report, err := topics.Check(t.Context(), s.kafka, schema.Layout{Partitions: 8}, 1, s.log)
		require.NoError(t, err)
		require.True(t, slices.Contains(report.Lines, "a repartition to 8 partitions has not ended; run: kudos topics repartition"), "%v", report.Lines)
		_, err = s.repartition(t.Context(), s.options(9))
		require.ErrorContains(t, err, "a repartition to topics.partitions=8 has not ended; finish that one first")
	}
	_, err := s.repartition(t.Context(), s.options(8))
	require.NoError(t, err)
	s.layout, _ = schema.NewLayout(8, "")
	s.checkExact(1)
	p.waitReady()
}
