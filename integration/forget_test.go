package integration

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// forgotten has the fields of the report of `kudos forget` that these tests check.
type forgotten struct {
	Withdrawn, Left struct{ Likes, Dislikes int64 }
	Complete        bool
	Rounds          int
}

func (s *system) forget(code int, args ...string) (r forgotten) {
	args = append(args, "--yes") // behind the command, or its name would be taken for a value
	s.report(&r, code, append([]string{"forget", "--brokers", s.brokerList(), "--output", "json"}, args...)...)
	return r
}

type somebody struct{ post, user uint64 }

// pairPlace is a pair, and the partition of its record in the state table.
type pairPlace struct {
	somebody
	partition int32
}

func (s *system) pairsInState() map[pairPlace]schema.Pair {
	pairs := map[pairPlace]schema.Pair{}
	s.readAll(schema.TopicState, func(rec *kgo.Record) {
		post, user, ok := schema.ParsePairKey(rec.Key)
		at := pairPlace{somebody{post, user}, rec.Partition}
		delete(pairs, at)
		if !ok || rec.Value == nil {
			return
		}
		var p schema.Pair
		require.NoError(s.t, schema.DecodePair(rec.Value, &p))
		pairs[at] = p
	})
	return pairs
}

// withdrawn is how many likes of a user were withdrawn within the last hour.
func (s *system) withdrawn(user uint64) (n int64) {
	s.readAll(schema.TopicLikes, func(rec *kgo.Record) {
		var e schema.Event
		require.NoError(s.t, schema.DecodeEvent(rec.Key, rec.Value, &e))
		if e.Action == schema.Unlike && e.UserID == user && e.TimeMs > time.Now().Add(-time.Hour).UnixMilli() {
			n++
		}
	})
	return n
}

// killForgetting kills `kudos forget` when it has withdrawn n likes of a user and waits until they are counted.
func (s *system) killForgetting(user uint64, n int64) {
	already := s.withdrawn(user)
	s.killWhen("the withdrawals to be in Kafka", func() bool { return s.withdrawn(user)-already == n },
		"forget", "user", fmt.Sprint(user), "--yes", "--brokers", s.brokerList())
}

// On real data, forgetting a post and a user leaves the counts of the data without them, even if interrupted, repeated.
func TestForgetOnTheRealStack(t *testing.T) {
	const post, user, other = 318, 15, 73 // the most liked film, and two users with many likes
	s := verified(t)
	processor := s.processor("processor").start()
	events := eachPerson.events(t)
	s.produce(events...)
	s.drain(2 * time.Minute)
	want := maps.Clone(eachPerson.counts(t))
	requireSame(t, "like_count", want, s.mysqlCounts())
	before := s.pairsInState()
	ofPost, ofUser := int64(0), int64(0)
	for _, e := range events { // each person rated a film once
		if e.Action != schema.Like {
			continue
		}
		if e.PostID == post {
			ofPost++
		} else if e.UserID == user {
			ofUser++
			c := want[e.PostID]
			c.likes--
			want[e.PostID] = c
		}
	}
	require.Equal(t, count{likes: ofPost}, want[post])
	delete(want, post)
	require.Greater(t, ofPost, int64(100))
	require.Greater(t, ofUser, int64(100))

	r := s.forget(0, "user", fmt.Sprint(user), "--dry-run")
	require.GreaterOrEqual(t, r.Left.Likes, ofUser)
	require.Zero(t, r.Withdrawn)
	requireSame(t, "like_count after a dry run", eachPerson.counts(t), s.mysqlCounts())

	r = s.forget(0, "post", fmt.Sprint(post))
	require.Equal(t, ofPost, r.Withdrawn.Likes)
	require.True(t, r.Complete)

	// No processor runs: the command waits, and is killed. What it has sent is counted nevertheless.
	processor.stop()
	s.killForgetting(user, ofUser)
	r = s.forget(1, "user", fmt.Sprint(user), "--timeout", "1s")
	require.False(t, r.Complete)
	require.Equal(t, ofUser, r.Left.Likes)
	processor.start()
	r = s.forget(0, "user", fmt.Sprint(user))
	require.True(t, r.Complete)
	require.Zero(t, r.Left)

	s.drain(2 * time.Minute)
	requireSame(t, "like_count", want, s.mysqlCounts())
	s.requireExact()
	require.True(t, s.audit(0, "--deep").Equal)
	for who, p := range s.pairsInState() {
		if who.post == post || who.user == user {
			require.Equal(t, schema.NoReaction, p.Reaction, "user %d still reacts to post %d", who.user, who.post)
		} else {
			require.Equal(t, before[who], p, "the reaction of user %d to post %d", who.user, who.post)
		}
	}

	for _, args := range [][]string{{"user", fmt.Sprint(user)}, {"post", fmt.Sprint(post)}} {
		r = s.forget(0, args...)
		require.Zero(t, r.Withdrawn, "second run of forget %v", args)
		require.Zero(t, r.Rounds)
	}
	// Late copies of the old events must not restore the likes.
	s.produce(events...)
	s.drain(2 * time.Minute)
	requireSame(t, "like_count after all events were sent again", want, s.mysqlCounts())
	r = s.forget(0, "user", fmt.Sprint(other))
	require.Positive(t, r.Withdrawn.Likes)
}

// While others toggle, a user who does not is forgotten completely in the first round.
func TestForgetWhileLikesPourIn(t *testing.T) {
	const posts, user, quiet = 50, 100_000, 77
	s := verified(t)
	s.twoProcessors("--set", "processor.max_batch=500")
	var events []schema.Event
	start := time.Now().Add(-time.Hour).UnixMilli()
	for i := range uint64(posts) {
		e := like(1+i, user, start)
		e.Action = []schema.Action{schema.Like, schema.Dislike, schema.Unlike}[i%3]
		events = append(events, e, like(quiet, 1+i, start))
	}
	s.produce(events...)
	stop := s.keepToggling(5, posts, 500)
	r := s.forget(0, "user", fmt.Sprint(user))
	require.LessOrEqual(t, r.Rounds, 2, "one for the events folded at the start, one for the rest")
	require.True(t, r.Complete)
	require.EqualValues(t, 34, r.Withdrawn.Likes+r.Withdrawn.Dislikes, "16 of 50 were already withdrawn")
	r = s.forget(0, "post", fmt.Sprint(quiet))
	require.True(t, r.Complete)
	require.EqualValues(t, posts, r.Withdrawn.Likes)
	t.Logf("%d events of other users meanwhile", stop())
	s.drainExact(2 * time.Minute)
	require.True(t, s.audit(0, "--deep").Equal)
	for who, p := range s.pairsInState() {
		if who.user == user || who.post == quiet {
			require.Equal(t, schema.NoReaction, p.Reaction, "%+v", who)
		}
	}
	require.Zero(t, s.mysqlCounts()[quiet])
}
