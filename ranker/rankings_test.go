package ranker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/refusal"
	"kudos/schema"
	"kudos/stream/kafka"
)

func rankingRecord(t *testing.T, region, window string, n int) *kgo.Record {
	t.Helper()
	value, err := schema.EncodeRanking(&schema.Ranking{
		Version: schema.RankingVersion, Region: region, Window: window, Score: "count", TopN: n,
		Posts: []schema.RankedPost{{Rank: 1, PostID: uint64(n), Likes: int64(n)}},
	})
	require.NoError(t, err)
	return &kgo.Record{Topic: schema.TopicTrending, Key: []byte(schema.RankingKey(region, window)), Value: value}
}

func openRankings(t *testing.T, kafka kafka.Options, region, window string) *Rankings {
	t.Helper()
	r, err := OpenRankings(t.Context(), kafka, region, window, discardLog())
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// requireLatest requires that the latest ranking is the nth, or that there is none if n is 0.
func requireLatest(t *testing.T, r *Rankings, n int) (w *WrittenRanking) {
	t.Helper()
	w, err := r.Latest(t.Context())
	require.NoError(t, err)
	if n == 0 {
		require.Nil(t, w)
		return nil
	}
	require.NotNil(t, w)
	require.Equal(t, n, w.TopN)
	return w
}

func TestLatestRanking(t *testing.T) {
	_, kafka, cl := newBroker(t, 3, schema.TopicTrending)
	requireLatest(t, openRankings(t, kafka, "global", "1h"), 0)

	regions := []string{"global", "DE", "US-CA"}
	var records []*kgo.Record
	for n := range 30 {
		for _, region := range regions {
			for _, window := range []string{"10m", "1h"} {
				records = append(records, rankingRecord(t, region, window, n))
			}
		}
	}
	produce(t, cl, records...)
	for _, region := range regions {
		w := requireLatest(t, openRankings(t, kafka, region, "1h"), 29)
		require.Equal(t, region+"/1h", w.Region+"/"+w.Window)
		require.WithinDuration(t, time.Now(), w.At, patience)
	}
	requireLatest(t, openRankings(t, kafka, "FR", "1h"), 0)
}

// TestLatestRankingFarBack: rankings that do not change are not written again.
func TestLatestRankingFarBack(t *testing.T) {
	const others = 6000 // several search steps back
	cluster, kafka, cl := newBroker(t, 1, schema.TopicTrending)
	records := []*kgo.Record{rankingRecord(t, "DE", "all", 1), rankingRecord(t, "DE", "all", 2)}
	for n := range others {
		records = append(records, rankingRecord(t, "global", "1h", n))
	}
	produce(t, cl, records...)
	r := openRankings(t, kafka, "DE", "all")
	read, all := int64(0), int64(0)
	r.Progress = func(n, of int64) { require.GreaterOrEqual(t, n, read); read, all = n, of }
	require.Equal(t, int64(1), requireLatest(t, r, 2).Offset)
	require.EqualValues(t, others+2, read, "each record is read once")
	require.EqualValues(t, others+2, all)

	// Retention has deleted the start of the log, and the ranking with it.
	require.NoError(t, cluster.DeleteRecords(schema.TopicTrending, 0, 2))
	read = 0
	requireLatest(t, r, 0)
	any, err := r.Any(t.Context())
	require.NoError(t, err)
	require.True(t, any)
}

// TestLatestRankingSkipsAborted: aborted records do not count.
func TestLatestRankingSkipsAborted(t *testing.T) {
	_, kafka, cl := newBroker(t, 1, schema.TopicTrending)
	produce(t, cl, rankingRecord(t, "global", "1h", 1))
	txn, err := kafka.NewClient(discardLog(), kgo.TransactionalID("trending-0"))
	require.NoError(t, err)
	defer txn.Close()
	for n, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, txn.BeginTransaction())
		produce(t, txn, rankingRecord(t, "global", "1h", 10+n))
		require.NoError(t, txn.EndTransaction(t.Context(), end))
	}
	requireLatest(t, openRankings(t, kafka, "global", "1h"), 10)
}

func TestFollowDeliversEachRankingOnce(t *testing.T) {
	t.Parallel()
	_, kafka, cl := newBroker(t, 3, schema.TopicTrending)
	produce(t, cl, rankingRecord(t, "DE", "1h", 1), rankingRecord(t, "DE", "1h", 2))
	r := openRankings(t, kafka, "DE", "1h")
	requireLatest(t, r, 2)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var seen []int
	idle := 0
	err := r.Follow(ctx, func(w *WrittenRanking) error {
		if w != nil {
			seen = append(seen, w.TopN)
			if w.TopN == 6 {
				cancel()
			}
			return nil
		}
		if idle++; idle == 2 {
			for n := 3; n <= 6; n++ {
				produce(t, cl, rankingRecord(t, "DE", "1h", n),
					rankingRecord(t, "DE", "10m", n), rankingRecord(t, "FR", "1h", n))
			}
		}
		return nil
	})
	require.NoError(t, err, "a canceled context is not an error")
	require.Equal(t, []int{3, 4, 5, 6}, seen)
}

// TestFollowRecovers: retention deletes the position while nobody reads.
func TestFollowRecovers(t *testing.T) {
	cluster, kafka, cl := newBroker(t, 1, schema.TopicTrending)
	produce(t, cl, rankingRecord(t, "DE", "1h", 1))
	r := openRankings(t, kafka, "DE", "1h")
	requireLatest(t, r, 1)
	for n := 2; n < 10; n++ {
		produce(t, cl, rankingRecord(t, "DE", "1h", n))
	}
	require.NoError(t, cluster.DeleteRecords(schema.TopicTrending, 0, 5))
	stop := errors.New("enough")
	err := r.Follow(testkit.Context(t), func(w *WrittenRanking) error {
		if w == nil {
			return nil
		}
		return fmt.Errorf("%d: %w", w.TopN, stop)
	})
	require.ErrorIs(t, err, stop)
	require.ErrorContains(t, err, "9:")
}

func TestRankingsOfALaterVersionAreRefused(t *testing.T) {
	_, kafka, cl := newBroker(t, 1, schema.TopicTrending)
	produce(t, cl, &kgo.Record{Topic: schema.TopicTrending, Key: []byte("DE/1h"), Value: []byte(`{"version":2}`)})
	_, err := openRankings(t, kafka, "DE", "1h").Latest(t.Context())
	require.ErrorContains(t, err, "trending/0 offset 0: decoding a ranking: unknown version 2")
}

func exclusionRecord(key, value string) *kgo.Record {
	return &kgo.Record{Topic: schema.TopicExclusions, Key: []byte(key), Value: []byte(value)}
}

const excluded, included = `{"excluded":true}`, `{"excluded":false}`

// TestExclusionsAreFollowed: every change is reported once, and polls are limited to one per interval. A topic that is
// shorter than what was read is an error, after which the reopened worker reads it from its start.
func TestExclusionsAreFollowed(t *testing.T) {
	_, _, cl := newBroker(t, 1, schema.TopicExclusions)
	e, now := newExclusions(), time.Unix(1_000_000, 0)
	var told []uint64
	poll := func() error {
		return e.poll(t.Context(), cl, now, discardLog(), func(post uint64, excluded bool) {
			require.Equal(t, e.has(post), excluded)
			told = append(told, post)
		})
	}
	require.NoError(t, poll())
	produce(t, cl, exclusionRecord("1", excluded), exclusionRecord("1", excluded), exclusionRecord("2", excluded))
	require.NoError(t, poll())
	require.Empty(t, told, "the poll interval has not passed")
	now = now.Add(time.Second)
	require.NoError(t, poll())
	require.Equal(t, []uint64{1, 2}, told)
	produce(t, cl, exclusionRecord("1", included))
	now = now.Add(time.Second)
	require.NoError(t, poll())
	require.Equal(t, []uint64{1, 2, 1}, told)
	require.False(t, e.has(1))
	require.True(t, e.has(2))
	require.EqualValues(t, 4, e.next)

	e.next++
	now = now.Add(time.Second)
	require.ErrorIs(t, poll(), kerr.OffsetOutOfRange)
}

// TestExclusionsBeginWhereTheLogDoes: records may have been deleted, or have expired.
func TestExclusionsBeginWhereTheLogDoes(t *testing.T) {
	_, _, cl := newBroker(t, 1, schema.TopicExclusions)
	produce(t, cl, exclusionRecord("1", excluded), exclusionRecord("2", excluded))
	cut := kadm.Offsets{}
	cut.AddOffset(schema.TopicExclusions, 0, 1, -1)
	_, err := kadm.NewClient(cl).DeleteRecords(t.Context(), cut)
	require.NoError(t, err)
	e := newExclusions()
	require.NoError(t, e.poll(t.Context(), cl, time.Now(), discardLog(), func(uint64, bool) {}))
	require.False(t, e.has(1))
	require.True(t, e.has(2))
}

func TestExcludeAndInclude(t *testing.T) {
	_, kafka, cl := newBroker(t, 1, schema.TopicExclusions)
	requireListed := func(want map[uint64]string) {
		t.Helper()
		list, err := Exclusions(t.Context(), kafka, discardLog())
		require.NoError(t, err)
		reasons := map[uint64]string{}
		for i, e := range list {
			require.False(t, e.At.IsZero())
			require.True(t, i == 0 || list[i-1].PostID < e.PostID, "sorted by post")
			reasons[e.PostID] = e.Reason
		}
		require.Equal(t, want, reasons)
	}
	exclude := func(x schema.Exclusion, posts ...uint64) {
		t.Helper()
		done, err := Exclude(t.Context(), kafka, posts, x, discardLog())
		require.NoError(t, err)
		require.Equal(t, posts, done)
	}
	requireListed(map[uint64]string{})
	exclude(schema.Exclusion{Excluded: true, Reason: "spam"}, 42, 7, math.MaxUint64)
	requireListed(map[uint64]string{7: "spam", 42: "spam", math.MaxUint64: "spam"})
	exclude(schema.Exclusion{Excluded: true, Reason: "worse"}, 7)
	exclude(schema.Exclusion{Reason: "appeal"}, 42, 43)
	requireListed(map[uint64]string{7: "worse", math.MaxUint64: "spam"})
	produce(t, cl, &kgo.Record{Topic: schema.TopicExclusions, Key: []byte("7")}) // a tombstone
	requireListed(map[uint64]string{math.MaxUint64: "spam"})

	// The records are a contract: other programs such as kcat may write them.
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{schema.TopicExclusions: {0: kgo.NewOffset().AtStart()}})
	fetches := cl.PollFetches(t.Context())
	require.NoError(t, fetches.Err())
	require.Len(t, fetches.Records(), 7)
	first := fetches.Records()[0]
	require.Equal(t, "42", string(first.Key))
	require.Equal(t, `{"excluded":true,"reason":"spam"}`, string(first.Value))
}

func TestInvalidExclusionsAreLoggedAndSkipped(t *testing.T) {
	_, kafka, cl := newBroker(t, 1, schema.TopicExclusions)
	produce(t, cl, exclusionRecord("1", excluded), exclusionRecord("all", excluded), exclusionRecord("2", "yes"))
	var text bytes.Buffer
	list, err := Exclusions(t.Context(), kafka, slog.New(slog.NewTextHandler(&text, nil)))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, uint64(1), list[0].PostID)
	require.Contains(t, text.String(), "offset=1")
	require.Contains(t, text.String(), "offset=2")
}

// TestExcludeWaitsForKafka: a post that Kafka did not acknowledge is not reported as done.
func TestExcludeWaitsForKafka(t *testing.T) {
	cluster, kafka, _ := newBroker(t, 1, schema.TopicExclusions)
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return refusal.Produce(kreq, kerr.TopicAuthorizationFailed), nil, true
	})
	done, err := Exclude(t.Context(), kafka, []uint64{1, 2}, schema.Exclusion{Excluded: true}, discardLog())
	require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	require.ErrorContains(t, err, "0 of 2")
	require.Empty(t, done)
}
