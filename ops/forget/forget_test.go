package forget

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/devtest"
	"kudos/integration/refusal"
	"kudos/ops/progress"
	"kudos/schema"
)

const big = uint64(math.MaxUint64)

// populate makes users 1 to 5 like posts 1 to 6, with some exceptions.
func (w *world) populate() {
	then := time.Now().Add(-time.Hour).UnixMilli()
	for post := range uint64(6) {
		for user, action := range []schema.Action{schema.Like, schema.Like, schema.Like, schema.Dislike, schema.Like} {
			w.Write(eventRecord(post+1, uint64(user)+1, action, then))
		}
	}
	w.Write(eventRecord(2, 1, schema.Unlike, then+1), eventRecord(2, big, schema.Like, then),
		eventRecord(big, 2, schema.Like, then))
}

// at runs do when the given step starts.
func at(step string, do func()) func(what, unit string, total int64) *progress.Phase {
	return func(what, _ string, _ int64) *progress.Phase {
		if what == step {
			do()
		}
		return &progress.Phase{}
	}
}

// populateAndFold waits until the state table has everything that populate writes.
func (w *world) populateAndFold() (stop func()) {
	w.populate()
	stop = w.fold()
	w.waitFolded()
	return stop
}

func TestForget(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		want schema.Counts
	}{
		"a post":       {options(Post, 2), schema.Counts{Likes: 4, Dislikes: 1}},
		"posts":        {options(Post, 1, big, 77), schema.Counts{Likes: 5, Dislikes: 1}},
		"a user":       {options(User, 4), schema.Counts{Dislikes: 6}},
		"users":        {options(User, 2, big), schema.Counts{Likes: 8}},
		"unknown user": {options(User, 99), schema.Counts{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "")
			w.populateAndFold()
			before, sent := w.reactions(), len(w.events())
			want, touched := standing(before), standing(before)
			asked := func(k pairKey, _ schema.Reaction) bool {
				return slices.Contains(c.opts.IDs, map[Kind]uint64{Post: k.post, User: k.user}[c.opts.Kind])
			}
			maps.DeleteFunc(want, asked)
			maps.DeleteFunc(touched, func(k pairKey, _ schema.Reaction) bool { return want[k] != schema.NoReaction })

			dry := c.opts
			dry.DryRun = true
			r := w.mustRun(dry)
			require.Equal(t, c.want, r.Left, "what would be withdrawn")
			require.Zero(t, r.Withdrawn)
			require.False(t, r.Complete)
			require.Len(t, w.events(), sent, "a dry run sends nothing")

			r = w.mustRun(c.opts)
			require.Equal(t, c.want, r.Withdrawn)
			require.Zero(t, r.Left)
			require.True(t, r.Complete)
			after := w.reactions()
			require.Equal(t, want, standing(after))
			for k, p := range after {
				if touched[k] == schema.NoReaction {
					require.Equal(t, before[k], p, "%v was not to be withdrawn", k)
				} else {
					require.Equal(t, schema.UnknownRegion, p.Region, "%v: the region is erased", k)
				}
			}
			require.Len(t, w.events(), sent+len(touched), "only current reactions are withdrawn")

			r = w.mustRun(c.opts)
			require.Zero(t, r.Withdrawn)
			require.Zero(t, r.Rounds)
			require.True(t, r.Complete)
			require.Len(t, w.events(), sent+len(touched), "the second run does nothing")
			require.Equal(t, after, w.reactions())
		})
	}
}

// A client's clock may be ahead: its likes are withdrawn even if their offset, from an earlier likes topic, is higher.
func TestWithdrawalIsLaterThanTheReaction(t *testing.T) {
	unlike := schema.Event{PostID: 1, UserID: 2, Action: schema.Unlike, TimeMs: 1000, Region: schema.UnknownRegion}
	require.Equal(t, unlike, withdrawal(pairKey{1, 2}, 999, 1000))
	require.EqualValues(t, 1001, withdrawal(pairKey{1, 2}, 1000, 1000).TimeMs)

	w := newWorld(t, "")
	ahead := time.Now().Add(50 * time.Second).UnixMilli()
	p := schema.Pair{Reaction: schema.Liked, TimeMs: ahead, Offset: 1000, Region: schema.Region{'D', 'E'}}
	w.Write(devtest.PairRecord(schema.PartitionFor(7, testPartitions), 7, 1, p))
	w.fold()
	require.Equal(t, schema.Counts{Likes: 1}, w.mustRun(options(Post, 7)).Withdrawn)
	require.Empty(t, standing(w.reactions()))
}

// Events in likes at the start are withdrawn even if not folded yet; a control record after the last is not waited for.
func TestForgetCoversUnfoldedEvents(t *testing.T) {
	for name, ids := range map[string]Options{"post": options(Post, 2), "user": options(User, 4)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "")
			w.populate()
			txn := w.NewClient(kgo.TransactionalID("forwarder"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
				require.NoError(t, txn.BeginTransaction())
				for p := range int32(testPartitions) {
					rec := eventRecord(100, 9, schema.Like, 1) // possibly misrouted
					rec.Partition = p
					require.NoError(t, txn.ProduceSync(t.Context(), rec).FirstErr())
				}
				require.NoError(t, txn.EndTransaction(t.Context(), end))
			}
			ids.Begin = at("waiting for the processors", sync.OnceFunc(func() { w.fold() }))
			r := w.mustRun(ids)
			require.Equal(t, 1, r.Rounds)
			require.True(t, r.Complete)
			for k := range standing(w.reactions()) {
				require.False(t, newAsked(ids.Kind, ids.IDs)(k.post, k.user), "%v is left", k)
			}
		})
	}
}

// Reactions that keep coming are withdrawn again, not forever. (Their clock is ahead, so they outlive a withdrawal.)
func TestReactionsAddedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct{ again, rounds int }{
		"twice":   {2, 3},
		"forever": {maxRounds, maxRounds},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "")
			w.Write(eventRecord(7, 1, schema.Like, 1000), eventRecord(8, 1, schema.Like, 1000))
			stop := w.fold()
			w.waitFolded()
			o, came := options(Post, 7, 8), 0
			o.Begin = at("withdrawing", func() {
				if came < c.again {
					came++
					ahead := 30*time.Second + time.Duration(came)*time.Second
					w.Write(eventRecord(7, 1, schema.Dislike, time.Now().Add(ahead).UnixMilli()))
				}
			})
			r, err := w.run(o)
			stop()
			require.Equal(t, c.rounds, r.Rounds)
			require.Equal(t, schema.Counts{Likes: 2, Dislikes: int64(c.rounds - 1)}, r.Withdrawn)
			if c.again < maxRounds {
				require.NoError(t, err)
				require.True(t, r.Complete)
				require.Empty(t, standing(w.reactions()))
				return
			}
			require.ErrorContains(t, err, "new reactions keep arriving: 1 are left after 5 rounds; stop their writers")
			require.False(t, r.Complete)
			require.Equal(t, schema.Counts{Dislikes: 1}, r.Left)
			require.Equal(t, map[pairKey]schema.Reaction{{7, 1}: schema.Disliked}, standing(w.reactions()))
		})
	}
}

func TestReportsMissingProcessors(t *testing.T) {
	w := newWorld(t, "")
	w.populateAndFold()()
	o := options(User, 2)
	o.Timeout = 100 * time.Millisecond
	r, err := w.run(o)
	require.ErrorContains(t, err, "waited 100ms for the processors")
	require.ErrorContains(t, err, "run this again")
	require.False(t, r.Complete)
	require.Empty(t, r.Remains)
	require.Equal(t, schema.Counts{Likes: 7}, r.Withdrawn)
	require.Equal(t, schema.Counts{Likes: 7}, r.Left, "as of the last folded event")

	w.fold()
	r = w.mustRun(options(User, 2))
	require.True(t, r.Complete)
	require.Zero(t, r.Left)
	for k := range standing(w.reactions()) {
		require.NotEqual(t, uint64(2), k.user)
	}
}

func TestKafkaErrorIsNotTreatedAsSuccess(t *testing.T) {
	w := newWorld(t, "")
	w.populateAndFold()
	w.Broker.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.Broker.KeepControl()
		return refusal.Produce(kreq, kerr.TopicAuthorizationFailed), nil, true
	})
	r, err := w.run(options(Post, 2))
	require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	require.ErrorContains(t, err, "to post 2: not acknowledged by Kafka")
	require.Zero(t, r.Withdrawn)
	require.False(t, r.Complete)
	require.Equal(t, schema.Counts{Likes: 4, Dislikes: 1}, r.Left)
}

func TestWatcherCanBeStopped(t *testing.T) {
	for step, c := range map[string]struct {
		withdrawn schema.Counts
		want      string
	}{
		"reading the state table":    {schema.Counts{}, "enough"},
		"withdrawing":                {schema.Counts{}, "stopped after 0 of 5 withdrawals; run this again"},
		"waiting for the processors": {schema.Counts{Likes: 4, Dislikes: 1}, "enough"},
	} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t, "")
			w.populateAndFold()()
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			o := options(Post, 2)
			o.Begin = at(step, func() { cancel(enough) })
			r, err := Run(ctx, o, w.Options, devtest.Log())
			require.ErrorIs(t, err, enough)
			require.ErrorContains(t, err, c.want)
			require.False(t, r.Complete)
			require.Equal(t, c.withdrawn, r.Withdrawn)
		})
	}
}

func TestMissingSettingsAreNamed(t *testing.T) {
	for _, missing := range []string{schema.TopicLikes, schema.TopicState, schema.TopicDLT} {
		w := newWorld(t, "")
		require.NoError(t, w.Broker.DeleteTopic(missing))
		_, err := w.run(options(Post, 2))
		require.ErrorContains(t, err, "topic "+missing+" does not exist on ["+w.Options.Brokers[0]+"]; "+
			`create the topics with "kudos topics apply"`)
	}
	for _, c := range []struct {
		topic      string
		partitions int32
		want       string
	}{
		{schema.TopicState, testPartitions, `has no progress record; run "kudos topics apply"`},
		{schema.TopicLikes, testPartitions, "belongs to an earlier topic likes, which was deleted and recreated"},
		{schema.TopicLikes, 3, "likes has 3 partitions and latest-like-action-table has 4"},
	} {
		w := newWorld(t, "")
		require.NoError(t, w.Broker.DeleteTopic(c.topic))
		require.NoError(t, w.Broker.CreateTopic(c.topic, c.partitions, nil))
		_, err := w.run(options(Post, 2))
		require.ErrorContains(t, err, c.want)
	}
	w := newWorld(t, "")
	rec := devtest.PairRecord(schema.PartitionFor(2, testPartitions), 2, 1, schema.Pair{})
	rec.Value = []byte{9}
	w.Write(rec)
	_, err := w.run(options(Post, 2))
	require.ErrorContains(t, err, "reaction has version 9")
	require.ErrorContains(t, err, "latest-like-action-table/")
}

func TestUnreachableKafkaIsNamed(t *testing.T) {
	w := &world{Kafka: &devtest.Kafka{}, t: t}
	w.Options.Brokers = []string{"127.0.0.1:1"} // nobody listens there
	w.Options.DialTimeout, w.Options.RequestTimeout = time.Second, time.Second
	_, err := w.run(options(Post, 2))
	require.ErrorContains(t, err, "querying Kafka at ["+w.Options.Brokers[0]+"]")
}

func TestOptionsAreChecked(t *testing.T) {
	require.ErrorContains(t, Options{}.Validate(), "timeout")
	require.NoError(t, DefaultOptions().Validate())
}

// A post with user buckets is in several partitions; a setting unlike the state table would read the wrong ones.
func TestForgetAPostWithUserBuckets(t *testing.T) {
	layout, err := schema.NewLayout(testPartitions, "7:64")
	require.NoError(t, err)
	w := newWorld(t, layout.UserBuckets())
	for user := uint64(1); user <= 40; user++ {
		rec := eventRecord(7, user, schema.Like, 1)
		rec.Key, rec.Partition = layout.AppendKey(nil, 7, user), layout.PartitionOf(7, user)
		w.Write(rec)
	}
	w.fold()
	w.waitFolded()
	require.Len(t, w.reactions(), 40)

	opts := options(Post, 7)
	_, err = w.run(opts)
	require.ErrorContains(t, err, `is laid out with user buckets "7:64", but topics.user_buckets is ""`)
	opts.Layout = layout
	r := w.mustRun(opts)
	require.Equal(t, schema.Counts{Likes: 40}, r.Withdrawn)
	require.True(t, r.Complete)
	require.Empty(t, standing(w.reactions()))
}
