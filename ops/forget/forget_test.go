package forget

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/refusal"
	"kudos/schema"
)

const big = uint64(math.MaxUint64)

// populate has users 1 to 5 like posts 1 to 6, but for some.
func (w *world) populate() {
	w.t.Helper()
	then := time.Now().Add(-time.Hour).UnixMilli()
	for post := range uint64(6) {
		for user := range uint64(5) {
			action := schema.Like
			if user == 3 {
				action = schema.Dislike
			}
			w.react(post+1, user+1, action, then)
		}
	}
	w.react(2, 1, schema.Unlike, then+1)
	w.react(2, big, schema.Like, then)
	w.react(big, 2, schema.Like, then)
}

// waitFolded waits until the state table has all that is in likes.
func (w *world) waitFolded() {
	w.t.Helper()
	folded := func() bool {
		want, have := map[pairKey]bool{}, w.reactions()
		for _, e := range w.events() {
			want[pairKey{e.PostID, e.UserID}] = true
		}
		if len(have) != len(want) {
			return false
		}
		return have[pairKey{2, 1}].Reaction == schema.NoReaction
	}
	require.Eventually(w.t, folded, patience, 20*time.Millisecond, "the events are not folded")
}

func TestForget(t *testing.T) {
	for name, c := range map[string]struct {
		opts      Options
		forgotten func(pairKey) bool
		want      Reactions
	}{
		"a post":       {options(Post, 2), func(k pairKey) bool { return k.post == 2 }, Reactions{4, 1}},
		"posts":        {options(Post, 1, big, 77), func(k pairKey) bool { return k.post == 1 || k.post == big }, Reactions{5, 1}},
		"a user":       {options(User, 4), func(k pairKey) bool { return k.user == 4 }, Reactions{0, 6}},
		"users":        {options(User, 2, big), func(k pairKey) bool { return k.user == 2 || k.user == big }, Reactions{8, 0}},
		"nobody known": {options(User, 99), func(pairKey) bool { return false }, Reactions{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.populate()
			w.fold()
			w.waitFolded()
			before, sent := w.reactions(), len(w.events())
			want := standing(before)
			touched := map[pairKey]bool{}
			for k := range before {
				if c.forgotten(k) && before[k].Reaction != schema.NoReaction {
					touched[k] = true
					delete(want, k)
				}
			}

			dry := c.opts
			dry.DryRun = true
			r, err := w.run(dry)
			require.NoError(t, err)
			require.Equal(t, c.want, r.Left, "what would be withdrawn")
			require.Zero(t, r.Withdrawn)
			require.False(t, r.Complete)
			require.Len(t, w.events(), sent, "a dry run sends nothing")

			r, err = w.run(c.opts)
			require.NoError(t, err)
			require.Equal(t, c.want, r.Withdrawn)
			require.Zero(t, r.Left)
			require.True(t, r.Complete)
			after := w.reactions()
			require.Equal(t, want, standing(after))
			for k, p := range after {
				if !touched[k] {
					require.Equal(t, before[k], p, "%v was not asked for", k)
				} else {
					require.Equal(t, schema.UnknownRegion, p.Region, "%v: where somebody was is no longer known", k)
				}
			}
			require.Len(t, w.events(), sent+len(touched), "only what stands is withdrawn")

			r, err = w.run(c.opts)
			require.NoError(t, err)
			require.Zero(t, r.Withdrawn)
			require.Zero(t, r.Rounds)
			require.True(t, r.Complete)
			require.Len(t, w.events(), sent+len(touched), "the second time there is nothing to do")
			require.Equal(t, after, w.reactions())
		})
	}
}

// Clients may be ahead of this machine: their likes have to be withdrawn all the same,
// also if the reaction's place in an earlier likes was further on.
func TestAWithdrawalIsLaterThanTheReaction(t *testing.T) {
	require.Equal(t, schema.Event{PostID: 1, UserID: 2, Action: schema.Unlike, TimeMs: 1000, Region: schema.UnknownRegion}, withdrawal(pairKey{1, 2}, 999, 1000))
	require.EqualValues(t, 1001, withdrawal(pairKey{1, 2}, 1000, 1000).TimeMs)

	w := newWorld(t)
	p := schema.Pair{Reaction: schema.Liked, TimeMs: time.Now().Add(50 * time.Second).UnixMilli(), Offset: 1000, Region: schema.Region{'D', 'E'}}
	w.produce(&kgo.Record{Topic: schema.TopicState, Partition: schema.PartitionFor(7, testPartitions), Key: schema.AppendPairKey(nil, 7, 1), Value: schema.AppendPair(nil, &p)})
	w.fold()
	r, err := w.run(options(Post, 7))
	require.NoError(t, err)
	require.Equal(t, Reactions{Likes: 1}, r.Withdrawn)
	require.Empty(t, standing(w.reactions()))
}

// What was in likes when it began is withdrawn as well, though nobody has folded it yet,
// and a marker behind the last event is not waited for.
func TestWhatIsNotFoldedYet(t *testing.T) {
	for name, ids := range map[string]Options{"post": options(Post, 2), "user": options(User, 4)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.populate()
			txn := w.client(kgo.TransactionalID("forwarder"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
				require.NoError(t, txn.BeginTransaction())
				for p := range int32(testPartitions) {
					post := uint64(100)
					for schema.PartitionFor(post, testPartitions) != p {
						post++
					}
					require.NoError(t, txn.ProduceSync(t.Context(), eventRecord(schema.Event{PostID: post, UserID: 9, Action: schema.Like, TimeMs: 1})).FirstErr())
				}
				require.NoError(t, txn.EndTransaction(t.Context(), end))
			}
			start := sync.OnceFunc(func() { w.fold() })
			ids.Begin = func(what, _ string, _ int64) (func(int64), func()) {
				if what == "waiting for the processors" {
					start()
				}
				return func(int64) {}, func() {}
			}
			r, err := w.run(ids)
			require.NoError(t, err)
			require.Equal(t, 1, r.Rounds)
			require.True(t, r.Complete)
			for k := range standing(w.reactions()) {
				require.False(t, newAsked(ids.Kind, ids.IDs).has(k.post, k.user), "%v is left", k)
			}
		})
	}
}

// Whoever goes on writing is withdrawn again, but not for ever. (Here from a clock that is
// ahead: the reaction stands, though the withdrawal is behind it in the log.)
func TestReactionsThatComeMeanwhile(t *testing.T) {
	for name, c := range map[string]struct{ again, rounds int }{
		"twice":    {2, 3},
		"for ever": {maxRounds, maxRounds},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.react(7, 1, schema.Like, 1000)
			w.react(8, 1, schema.Like, 1000)
			f := w.fold()
			require.Eventually(t, func() bool { return len(w.reactions()) == 2 }, patience, 10*time.Millisecond)
			o, came := options(Post, 7, 8), 0
			o.Begin = func(what, _ string, _ int64) (func(int64), func()) {
				if what == "withdrawing" && came < c.again {
					came++
					w.react(7, 1, schema.Dislike, time.Now().Add(30*time.Second+time.Duration(came)*time.Second).UnixMilli())
				}
				return func(int64) {}, func() {}
			}
			r, err := w.run(o)
			f.stop()
			require.Equal(t, c.rounds, r.Rounds)
			require.Equal(t, Reactions{2, int64(c.rounds - 1)}, r.Withdrawn)
			if c.again < maxRounds {
				require.NoError(t, err)
				require.True(t, r.Complete)
				require.Empty(t, standing(w.reactions()))
				return
			}
			require.ErrorContains(t, err, "reactions keep coming: 1 are there after 5 rounds; stop what writes them")
			require.False(t, r.Complete)
			require.Equal(t, Reactions{Dislikes: 1}, r.Left)
			require.Equal(t, map[pairKey]schema.Reaction{{7, 1}: schema.Disliked}, standing(w.reactions()))
		})
	}
}

func TestWithoutProcessorsItSaysSo(t *testing.T) {
	w := newWorld(t)
	w.populate()
	f := w.fold()
	w.waitFolded()
	f.stop()
	o := options(User, 2)
	o.Timeout = 100 * time.Millisecond
	r, err := w.run(o)
	require.ErrorContains(t, err, "waited 100ms for the processors")
	require.ErrorContains(t, err, "run this again")
	require.False(t, r.Complete)
	require.Empty(t, r.Remains)
	require.Equal(t, Reactions{Likes: 7}, r.Withdrawn)
	require.Equal(t, Reactions{Likes: 7}, r.Left, "as far as anybody has counted")

	w.fold()
	r, err = w.run(options(User, 2))
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.Zero(t, r.Left)
	require.NotContains(t, usersOf(standing(w.reactions())), uint64(2))
}

func usersOf(standing map[pairKey]schema.Reaction) map[uint64]bool {
	users := map[uint64]bool{}
	for k := range standing {
		users[k.user] = true
	}
	return users
}

func TestKafkaThatRefusesIsNotTakenForDone(t *testing.T) {
	w := newWorld(t)
	w.populate()
	w.fold()
	w.waitFolded()
	w.cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		return refusal.Produce(kreq, kerr.TopicAuthorizationFailed), nil, true
	})
	r, err := w.run(options(Post, 2))
	require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	require.ErrorContains(t, err, "to post 2: not acknowledged by Kafka")
	require.Zero(t, r.Withdrawn)
	require.False(t, r.Complete)
	require.Equal(t, Reactions{4, 1}, r.Left)
}

func TestItCanBeStopped(t *testing.T) {
	for step, c := range map[string]struct {
		withdrawn Reactions
		want      string
	}{
		"reading the state table":    {Reactions{}, "enough"},
		"withdrawing":                {Reactions{}, "stopped after 0 of 5 withdrawals, run this again"},
		"waiting for the processors": {Reactions{4, 1}, "enough"},
	} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.populate()
			f := w.fold()
			w.waitFolded()
			f.stop()
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			o := options(Post, 2)
			o.Begin = func(what, _ string, _ int64) (func(int64), func()) {
				if what == step {
					cancel(enough)
				}
				return func(int64) {}, func() {}
			}
			run, err := New(o, w.kafka, discardLog())
			require.NoError(t, err)
			r, err := run.Run(ctx)
			require.ErrorIs(t, err, enough)
			require.ErrorContains(t, err, c.want)
			require.False(t, r.Complete)
			require.Equal(t, c.withdrawn, r.Withdrawn)
		})
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	for _, missing := range []string{schema.TopicLikes, schema.TopicState, schema.TopicDLT} {
		w := newWorld(t)
		w.deleteTopic(missing)
		_, err := w.run(options(Post, 2))
		require.ErrorContains(t, err, "topic "+missing+" does not exist on ["+w.kafka.Brokers[0]+`]; create the topics with "kudos topics apply"`)
	}
	for _, c := range []struct {
		topic      string
		partitions int32
		want       string
	}{
		{schema.TopicState, testPartitions, `has no progress record; run "kudos topics apply"`},
		{schema.TopicLikes, testPartitions, "belongs to another topic likes, which was deleted and made anew"},
		{schema.TopicLikes, 3, "likes has 3 partitions and latest-like-action-table has 4"},
	} {
		w := newWorld(t)
		w.deleteTopic(c.topic)
		_, err := kadm.NewClient(w.cl).CreateTopic(t.Context(), c.partitions, 1, nil, c.topic)
		require.NoError(t, err)
		_, err = w.run(options(Post, 2))
		require.ErrorContains(t, err, c.want)
	}
	w := newWorld(t)
	w.produce(&kgo.Record{Topic: schema.TopicState, Partition: schema.PartitionFor(2, testPartitions), Key: schema.AppendPairKey(nil, 2, 1), Value: []byte{9}})
	_, err := w.run(options(Post, 2))
	require.ErrorContains(t, err, "pair has version 9")
	require.ErrorContains(t, err, "latest-like-action-table/")
}

func (w *world) deleteTopic(name string) {
	w.t.Helper()
	_, err := kadm.NewClient(w.cl).DeleteTopic(w.t.Context(), name)
	require.NoError(w.t, err)
}

func TestUnreachableKafkaIsNamed(t *testing.T) {
	w := &world{t: t}
	w.kafka.Brokers, w.kafka.DialTimeout, w.kafka.RequestTimeout = []string{"127.0.0.1:1"}, time.Second, time.Second // nobody listens there
	_, err := w.run(options(Post, 2))
	require.ErrorContains(t, err, "ask Kafka at ["+w.kafka.Brokers[0]+"]")
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := New(Options{Kind: "place", IDs: []uint64{0}}, newWorld(t).kafka, discardLog())
	require.ErrorContains(t, err, `kind "place"`)
	require.ErrorContains(t, err, "0 is no id")
	require.ErrorContains(t, err, "timeout")
	_, err = New(options(Post), newWorld(t).kafka, discardLog())
	require.ErrorContains(t, err, "no id is given")
}

// A post with user buckets is in several partitions, all of which are looked through; the
// setting must be that of the state table, or withdrawals would be looked for elsewhere.
func TestForgetAPostWithUserBuckets(t *testing.T) {
	layout, err := schema.NewLayout(testPartitions, "7:64")
	require.NoError(t, err)
	w := newWorldOf(t, layout.UserBuckets())
	for user := uint64(1); user <= 40; user++ {
		e := schema.Event{PostID: 7, UserID: user, Action: schema.Like, TimeMs: 1, Region: schema.UnknownRegion}
		rec := eventRecord(e)
		rec.Key, rec.Partition = layout.AppendKey(nil, 7, user), layout.Home(7, user)
		w.produce(rec)
	}
	w.fold()
	require.Eventually(t, func() bool { return len(w.reactions()) == 40 }, patience, 20*time.Millisecond)

	opts := options(Post, 7)
	_, err = w.run(opts)
	require.ErrorContains(t, err, `is laid out with user buckets "7:64", but topics.user_buckets says ""`)
	opts.Layout = layout
	r, err := w.run(opts)
	require.NoError(t, err)
	require.Equal(t, Reactions{Likes: 40}, r.Withdrawn)
	require.True(t, r.Complete)
	require.Empty(t, standing(w.reactions()))
}
