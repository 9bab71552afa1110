package processor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/progress"
	"kudos/ops/rebuild"
	"kudos/ops/topics"
	"kudos/ops/void"
	"kudos/processor/fold"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

func noPhase(string, string, int64) *progress.Phase { return &progress.Phase{} }

// void voids users, or takes that back.
func (s *system) void(voids bool, users ...uint64) *void.Report {
	s.t.Helper()
	r, err := s.tryVoid(voids, noPhase, users...)
	require.NoError(s.t, err)
	require.True(s.t, r.Complete)
	return r
}

func (s *system) tryVoid(voids bool, begin func(string, string, int64) *progress.Phase, users ...uint64,
) (*void.Report, error) {
	o := void.DefaultOptions()
	o.Void, o.Users, o.Timeout, o.Begin = voids, users, patience, begin
	return void.Run(s.t.Context(), o, s.Options, s.log)
}

// voidEvent is an event of a user for a partition, as `kudos void` writes it.
func voidEvent(action schema.Action, partition int32, user uint64) *kgo.Record {
	e := schema.Event{UserID: user, Action: action, Region: schema.UnknownRegion}
	return &kgo.Record{Topic: schema.TopicLikes, Partition: partition, Value: schema.AppendEvent(nil, &e)}
}

func (s *system) voided() *void.List {
	s.t.Helper()
	list, err := void.ReadList(s.t.Context(), s.Options, noPhase, s.log)
	require.NoError(s.t, err)
	return list
}

func users(from, n uint64) (list []uint64) {
	for user := from; user < from+n; user++ {
		list = append(list, user)
	}
	return list
}

func TestVoid(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	all := users(0, partitions)
	everywhere := []int32{0, 1, 2, 3}
	dir := t.TempDir()
	p := s.run(stateDir(dir))
	s.produce(likes(1, 40)...)
	s.waitLikes(40, everywhere...)
	require.Empty(t, s.voided().Users)

	r := s.void(true, users(1, 10)...)
	require.EqualValues(t, 10*len(all), r.Recounts)
	s.waitLikes(30, everywhere...)
	s.waitExact(p)
	require.Len(t, s.voided().Users, 10)
	require.Zero(t, s.void(true, users(1, 10)...).Recounts, "the second run changes nothing")

	// What they do later does not count, either: not after a restart, also without a local state, and in no new post.
	again := func(e schema.Event) *kgo.Record { e.TimeMs += 1000; return record(e) }
	for i, local := range []string{dir, t.TempDir()} {
		p.stop()
		p = s.run(stateDir(local))
		for partition := range int32(partitions) {
			e := like(partition, uint64(i+1))
			e.Action = schema.Dislike
			s.produce(again(e), record(like(partition, uint64(41+i))))
		}
		s.waitLikes(int64(31+i), everywhere...)
		s.waitExact(p)
	}

	// What a rebuild makes of the events is the same.
	p.stop()
	says := &heard{}
	s.rebuild(rebuild.Events, says)
	for partition := range partitions {
		matches := fmt.Sprintf("partition %d: the state table matches likes", partition)
		require.Contains(t, fmt.Sprint(says.said), matches)
	}
	p = s.run(stateDir(dir))

	require.EqualValues(t, 10*len(all), s.void(false, users(1, 10)...).Recounts)
	s.waitLikes(40, everywhere...) // two of 42 are dislikes by now
	s.waitExact(p)
	require.Empty(t, s.voided().Users)
}

// TestVoidWhileLikesPourIn: voids and unvoids are exact while the same users react, whatever is folded already.
func TestVoidWhileLikesPourIn(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run(maxBatch(50))
	pouring, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		random, clock := rand.New(rand.NewPCG(7, 7)), int64(1e12)
		for pouring.Err() == nil {
			var records []*kgo.Record
			for range 100 {
				clock += random.Int64N(20_000)
				e := like(random.Int32N(partitions), 1+random.Uint64N(60))
				e.Action, e.TimeMs = schema.Action(1+random.IntN(3)), clock
				records = append(records, record(e))
			}
			s.produce(records...)
			time.Sleep(5 * time.Millisecond)
		}
	})
	recounts := int64(0)
	for i := range uint64(6) {
		r := s.void(i%3 != 2, users(1+10*(i/2), 20)...)
		recounts += r.Recounts
		if i == 2 {
			p.stop()
			p = s.run(maxBatch(50))
		}
	}
	stop()
	writing.Wait()
	require.NotZero(t, recounts)
	s.waitExact(p)
	list := s.voided()
	require.NotEmpty(t, list.Users)
	require.Empty(t, list.Incomplete)
	for partition := range int32(partitions) {
		for key, pair := range s.checkTable(partition).pairs {
			if pair.Reaction != schema.NoReaction {
				require.Equal(t, slices.Contains(list.Users, fmt.Sprint(key.UserID)), pair.Void, "%v", key)
			}
		}
	}
}

// TestVoidedUsersInAddedPartitions: they are void there, too, and what was moved counts neither more nor less.
func TestVoidedUsersInAddedPartitions(t *testing.T) {
	t.Parallel()
	s, _ := newRepartitioned(t, 1500)
	s.bots = users(1, repartitionUsers/2)
	s.void(true, s.bots...)
	s.waitCounted()
	const inFirst = 1 << 40 // a run was stopped
	s.produce(voidEvent(schema.Void, 0, inFirst))
	s.waitFor("the first partition to void one more user", func() (bool, any) {
		list := s.voided()
		return len(list.Incomplete) == 1, list
	})
	s.grow(partitions + 3)
	s.waitCounted()
	s.checkHomes(s.layout, 1)
	require.Equal(t, []string{fmt.Sprint(uint64(inFirst))}, s.voided().Incomplete, "partitions without an event")
	s.react(500)
	s.waitCounted()
	for post := range uint64(3 * partitions) { // posts that only exist there
		e := schema.Event{PostID: 1000 + post, UserID: s.bots[0], Action: schema.Like, TimeMs: s.clock}
		s.want[fold.PairKey{PostID: e.PostID, UserID: e.UserID}] = e
		s.produce(s.record(e))
	}
	s.react(100)
	s.waitCounted()
	require.Len(t, s.voided().Users, len(s.bots)+1)

	o := void.DefaultOptions()
	o.Users, o.Layout, o.Timeout = s.bots, s.layout, patience
	o.Begin = noPhase
	r, err := void.Run(t.Context(), o, s.Options, s.log)
	require.NoError(t, err)
	require.True(t, r.Complete)
	s.bots = nil
	s.waitCounted()
	require.Len(t, s.voided().Users, 1)
}

// TestVoidAgainstUnvoid: a run that another one undoes meanwhile says so.
func TestVoidAgainstUnvoid(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.run()
	s.produce(likes(1, 5)...)
	s.waitLikes(5, 0, 1, 2, 3)
	_, err := s.tryVoid(true, func(what, unit string, total int64) *progress.Phase {
		if what == "reading the state table" { // all partitions have been told
			s.produce(voidEvent(schema.Unvoid, 2, 3))
		}
		return noPhase(what, unit, total)
	}, users(1, 5)...)
	require.ErrorContains(t, err, "another run has changed the same users")
	s.void(true, users(1, 5)...)
	s.waitLikes(0, 0, 1, 2, 3)
}

// TestVoidsAreAllowedInTopicsOfEarlierVersions: from the next event on, and not while reactions move.
func TestVoidsAreAllowedInTopicsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run()
	s.produce(likes(1, 5)...)
	s.waitLikes(5, 0, 1, 2, 3)
	p.stop()
	found, err := kafka.LookUpTopics(t.Context(), s.Client, schema.TopicLikes, schema.TopicState, schema.TopicUpdates,
		schema.TopicCounts)
	require.NoError(t, err)
	last, err := table.LastProgress(t.Context(), s.Client, 1)
	require.NoError(t, err)
	require.True(t, last.Voids, "new topics allow them")
	write := func(p schema.Progress) {
		value := schema.AppendProgress(nil, &p)
		key := []byte(schema.StateProgressKey)
		s.produce(&kgo.Record{Topic: schema.TopicState, Partition: 1, Key: key, Value: value})
	}
	allow := func() error { return topics.AllowVoids(t.Context(), s.Options, s.Client, found, 1, s.log) }
	earlier := *last
	earlier.Voids, earlier.Migrating = false, true
	write(earlier)
	require.ErrorContains(t, allow(), "reactions are moving to partition 1")
	earlier.Migrating = false
	write(earlier)
	require.NoError(t, allow())
	now, err := table.LastProgress(t.Context(), s.Client, 1)
	require.NoError(t, err)
	earlier.Voids, earlier.VoidsFrom = true, earlier.NextOffset
	require.Equal(t, &earlier, now)
	require.NoError(t, allow(), "again")
}
