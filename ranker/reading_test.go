package ranker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// rankingRecord is the nth ranking of a key.
func rankingRecord(t *testing.T, region, window string, n int) *kgo.Record {
	t.Helper()
	value, err := schema.EncodeRanking(&schema.Ranking{
		Version: schema.RankingVersion, Region: region, Window: window, Score: "count", TopN: n,
		Posts: []schema.RankedPost{{Rank: 1, PostID: uint64(n), Likes: int64(n)}},
	})
	require.NoError(t, err)
	return &kgo.Record{Topic: schema.TopicTrending, Key: []byte(schema.RankingKey(region, window)), Value: value}
}

func TestLatestRanking(t *testing.T) {
	_, kafka, cl := newBroker(t, 3, schema.TopicTrending)
	latest := func(region, window string) *WrittenRanking {
		t.Helper()
		r := NewRankings(kafka, region, window, discardLog())
		defer r.Close()
		w, err := r.Latest(t.Context())
		require.NoError(t, err)
		return w
	}
	require.Nil(t, latest("global", "1h"), "an empty topic")

	var records []*kgo.Record
	for n := range 30 {
		for _, region := range []string{"global", "DE", "US-CA"} {
			for _, window := range []string{"10m", "1h"} {
				records = append(records, rankingRecord(t, region, window, n))
			}
		}
	}
	produce(t, cl, records...)
	for _, region := range []string{"global", "DE", "US-CA"} {
		w := latest(region, "1h")
		require.NotNil(t, w, region)
		require.Equal(t, region, w.Region)
		require.Equal(t, "1h", w.Window)
		require.Equal(t, 29, w.TopN)
		require.WithinDuration(t, time.Now(), w.At, patience)
	}
	require.Nil(t, latest("FR", "1h"))
}

// TestLatestRankingFarBack: rankings that do not change are not written again.
func TestLatestRankingFarBack(t *testing.T) {
	const others = 6000 // several steps back
	cluster, kafka, cl := newBroker(t, 1, schema.TopicTrending)
	records := []*kgo.Record{rankingRecord(t, "DE", "all", 1), rankingRecord(t, "DE", "all", 2)}
	for n := range others {
		records = append(records, rankingRecord(t, "global", "1h", n))
	}
	produce(t, cl, records...)
	r := NewRankings(kafka, "DE", "all", discardLog())
	defer r.Close()
	read, all := int64(0), int64(0)
	r.Progress = func(n, of int64) {
		require.GreaterOrEqual(t, n, read)
		read, all = n, of
	}
	w, err := r.Latest(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, w.TopN)
	require.Equal(t, int64(1), w.Offset)
	require.EqualValues(t, others+2, read, "each record is looked at once")
	require.EqualValues(t, others+2, all)

	r.Progress = nil

	// The log's start is gone, and the ranking with it.
	require.NoError(t, cluster.DeleteRecords(schema.TopicTrending, 0, 2))
	w, err = r.Latest(t.Context())
	require.NoError(t, err)
	require.Nil(t, w)
	any, err := r.Any(t.Context())
	require.NoError(t, err)
	require.True(t, any)
}

// TestLatestRankingSkipsAborted: what was not committed was never said.
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
	r := NewRankings(kafka, "global", "1h", discardLog())
	defer r.Close()
	w, err := r.Latest(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10, w.TopN)
}

func TestFollowHandsOnEachRankingOnce(t *testing.T) {
	t.Parallel()
	_, kafka, cl := newBroker(t, 3, schema.TopicTrending)
	produce(t, cl, rankingRecord(t, "DE", "1h", 1), rankingRecord(t, "DE", "1h", 2))
	r := NewRankings(kafka, "DE", "1h", discardLog())
	defer r.Close()
	w, err := r.Latest(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, w.TopN)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var seen []int
	idle := 0
	err = r.Follow(ctx, func(w *WrittenRanking) error {
		if w != nil {
			seen = append(seen, w.TopN)
			if w.TopN == 6 {
				cancel()
			}
			return nil
		}
		if idle++; idle == 2 {
			for n := 3; n <= 6; n++ {
				produce(t, cl, rankingRecord(t, "DE", "1h", n), rankingRecord(t, "DE", "10m", n), rankingRecord(t, "FR", "1h", n))
			}
		}
		return nil
	})
	require.NoError(t, err, "the end of ctx is no failure")
	require.Equal(t, []int{3, 4, 5, 6}, seen)
}

// TestFollowFindsItsWayBack: the position was deleted while nobody read.
func TestFollowFindsItsWayBack(t *testing.T) {
	cluster, kafka, cl := newBroker(t, 1, schema.TopicTrending)
	produce(t, cl, rankingRecord(t, "DE", "1h", 1))
	r := NewRankings(kafka, "DE", "1h", discardLog())
	defer r.Close()
	_, err := r.Latest(t.Context())
	require.NoError(t, err)
	for n := 2; n < 10; n++ {
		produce(t, cl, rankingRecord(t, "DE", "1h", n))
	}
	require.NoError(t, cluster.DeleteRecords(schema.TopicTrending, 0, 5))
	stop := errors.New("enough")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = r.Follow(ctx, func(w *WrittenRanking) error {
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
	r := NewRankings(kafka, "DE", "1h", discardLog())
	defer r.Close()
	_, err := r.Latest(t.Context())
	require.ErrorContains(t, err, "trending/0 offset 0: decoding a ranking: version 2 is not known")
}

func TestRankingsNeedTheirTopic(t *testing.T) {
	_, kafka, _ := newBroker(t, 1, schema.TopicLikes)
	r := NewRankings(kafka, "DE", "1h", discardLog())
	defer r.Close()
	_, err := r.Latest(t.Context())
	require.ErrorContains(t, err, `topic trending does not exist`)
	require.ErrorContains(t, err, `kudos topics apply`)
}
