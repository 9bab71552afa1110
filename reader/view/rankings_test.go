package view

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

type ranker struct {
	t     *testing.T
	kafka kafka.Options
	cl    *kgo.Client
}

func newRanker(t *testing.T) *ranker {
	cluster, kafka := broker(t, schema.TopicTrending)
	byKey := kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))
	return &ranker{t, kafka, cluster.Client(kgo.DefaultProduceTopic(schema.TopicTrending), byKey)}
}

func (r *ranker) write(region, window string, value []byte) wire.Position {
	rec := &kgo.Record{Key: []byte(schema.RankingKey(region, window)), Value: value}
	require.NoError(r.t, r.cl.ProduceSync(r.t.Context(), rec).FirstErr())
	return wire.Position{Partition: rec.Partition, Offset: rec.Offset + 1}
}

func (r *ranker) rank(region, window string, posts ...uint64) wire.Position {
	ranking := &schema.Ranking{Version: schema.RankingVersion, Region: region, Window: window, Score: "count"}
	for i, post := range posts {
		ranking.Posts = append(ranking.Posts,
			schema.RankedPost{Rank: i + 1, PostID: post, Likes: 1, Score: schema.ScoreOne})
	}
	value, err := schema.EncodeRanking(ranking)
	require.NoError(r.t, err)
	return r.write(region, window, value)
}

// covered waits until all partitions can be read, one of them as of a position.
func (r *ranker) covered(v *Rankings, at wire.Position) {
	r.t.Helper()
	testkit.WaitFor(r.t, at.String(), func() (is bool) {
		err := v.view.Read(at.Partition, func(s *store.Store, _ stream.Copy) error {
			last, _ := s.Offset()
			is = last+1 >= at.Offset
			return nil
		}, nil)
		return err == nil && is && v.Ready() == nil
	})
}

func (r *ranker) follow(dir string) (v *Rankings, stop func()) {
	v = NewRankings(Options{StateDir: dir}, r.kafka, testkit.Log())
	return v, start(r.t, v.Run)
}

func TestNewestRankings(t *testing.T) {
	r := newRanker(t)
	r.rank("DE", "1h", 1, 2)
	de := r.rank("DE", "1h", 2, 1)
	us := r.rank("US", "1h", 3)
	dir := t.TempDir()
	list := func(v *Rankings) (keys []string) {
		all, err := v.List()
		require.NoError(t, err)
		for _, ranking := range all {
			keys = append(keys, fmt.Sprint(ranking.Region, "/", ranking.Window, " ", ranking.Posts[0].PostID, " ",
				ranking.AsOf))
		}
		return keys
	}
	want := []string{fmt.Sprint("DE/1h 2 ", de), fmt.Sprint("US/1h 3 ", us)}

	v, stop := r.follow(dir)
	r.covered(v, de)
	r.covered(v, us)
	require.Equal(t, want, list(v))
	none, err := v.Get("FR", "1h")
	require.NoError(t, err)
	require.Nil(t, none)
	stop()

	global := r.rank("global", "all", 9) // while the view is stopped
	v, _ = r.follow(dir)
	r.covered(v, global)
	r.covered(v, de)
	want = append(want, fmt.Sprint("global/all 9 ", global))
	require.Equal(t, want, list(v), "earlier rankings are in the local store")

	// A later version, or garbage, leaves the ranking; a tombstone deletes it.
	r.covered(v, r.write("DE", "1h", []byte(`{"version":99}`)))
	require.Equal(t, want, list(v))
	r.covered(v, r.write("DE", "1h", nil))
	require.Equal(t, want[1:], list(v))
}

// TestRankingsOfALaterVersionAreReadAfterTheUpgrade: the earlier version has skipped them.
func TestRankingsOfALaterVersionAreReadAfterTheUpgrade(t *testing.T) {
	r, dir := newRanker(t), t.TempDir()
	later := r.write("DE", "1h", []byte(`{"version":99}`))
	run := func(version int) (log string) {
		var out bytes.Buffer
		v := newRankings(Options{StateDir: dir}, r.kafka, slog.New(slog.NewTextHandler(&out, nil)), version)
		stop := start(t, v.Run)
		r.covered(v, later)
		stop()
		return out.String()
	}
	const skipped = "skipped a ranking that cannot be decoded"
	require.Contains(t, run(schema.RankingVersion), skipped)
	require.NotContains(t, run(schema.RankingVersion), skipped, "it has been read")
	require.Contains(t, run(schema.RankingVersion+1), skipped, "it has been read again")
}

func TestWatchRankings(t *testing.T) {
	r := newRanker(t)
	before := r.rank("DE", "1h", 1)
	v := NewRankings(Options{StateDir: t.TempDir()}, r.kafka, testkit.Log())
	told := make(chan *Ranking, 100)
	v.Watch(func(ranking *Ranking) {
		if have, err := v.Get(ranking.Region, ranking.Window); err != nil || have.AsOf.Offset < ranking.AsOf.Offset {
			t.Errorf("notified of %v, but %v (%v) can be read", ranking.AsOf, have, err)
		}
		told <- ranking
	})
	start(t, v.Run)
	next := func() wire.Position { return testkit.Receive(t, told, "a ranking must be published").AsOf }
	require.Equal(t, before, next())
	require.Equal(t, r.rank("US", "1h", 2), next())
	require.Equal(t, r.rank("DE", "1h", 3), next())
	epoch, err := v.Epoch(before.Partition)
	require.NoError(t, err)
	require.Len(t, epoch, 8)
}
