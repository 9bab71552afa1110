package ranker_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/integration/testrun"
	"kudos/ranker"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
)

const (
	partitions = 4
	patience   = 2 * time.Minute // bounds the wait for a group to stop
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m)) }

// system is an in-process broker and database, with the topic trending and its tables.
type system struct {
	*devtest.Kafka
	t      testing.TB
	log    *slog.Logger
	mysql  sql.Options // of the writers
	db     *sqlx.DB    // of the test, to inspect and break the tables
	writer *writer     // the running one
}

func newSystem(t testing.TB) *system {
	s := &system{t: t, log: devtest.Log()}
	s.Kafka = devtest.NewKafka(t, kfake.SeedTopics(partitions, schema.TopicTrending))
	s.mysql, s.db = devtest.Database(t)
	devtest.Migrate(t, s.mysql)
	return s
}

type writer struct {
	*stream.Processor
	reg  *prometheus.Registry
	stop func() // and waits; the end of the test calls it, too
}

// run starts the group, with short intervals for parked partitions and idle checks.
func (s *system) run() *writer {
	store, err := sql.Open(s.mysql, s.log)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, store.Close()) })
	w := &writer{reg: prometheus.NewRegistry()}
	w.Processor = stream.NewProcessor(stream.ProcessorOptions{
		Group: schema.GroupTrendingMySQL, Input: schema.TopicTrending, CommitPositions: true,
		Kafka: s.Options, MaxBatch: ranker.MySQLMaxBatch,
		TickInterval: 50 * time.Millisecond, ParkInterval: 200 * time.Millisecond,
		SessionTimeout: 10 * time.Second, ShutdownTimeout: 10 * time.Second,
	}, ranker.NewMySQLWriters(s.Options, store, w.reg, s.log, 100*time.Millisecond), s.log)
	w.reg.MustRegister(stream.NewCollector(w.Processor))
	w.stop = testrun.Start(s.t, "the group", patience, w.Run)
	s.writer = w
	return w
}

// waitFor waits until condition is true; it also returns the current state, for the failure message.
func (s *system) waitFor(what string, condition func() (ok bool, now any)) {
	s.t.Helper()
	devtest.WaitFor(s.t, what, condition, func() string { return fmt.Sprintf("readiness: %v", s.writer.Ready()) })
}

// produce writes rankings in order, each to the partition of its key.
func (s *system) produce(rankings ...schema.Ranking) {
	s.t.Helper()
	for _, r := range rankings {
		s.produceTo(partitionOf(r.Region, r.Window), schema.RankingKey(r.Region, r.Window), encode(s.t, r))
	}
}

func (s *system) produceTo(partition int32, key, value string) {
	s.t.Helper()
	s.Write(&kgo.Record{Topic: schema.TopicTrending, Partition: partition, Key: []byte(key), Value: []byte(value)})
}

func encode(t testing.TB, r schema.Ranking) string {
	t.Helper()
	value, err := schema.EncodeRanking(&r)
	require.NoError(t, err)
	return string(value)
}

func partitionOf(region, window string) int32 {
	return schema.KeyPartition([]byte(schema.RankingKey(region, window)), partitions)
}

// watermark of the rankings made by ranking.
const watermark = schema.Minute(29_700_000) // 2026-06-21 00:00 UTC

// ranking has these posts; the last one has 1 like, and each one before it one more.
func ranking(region, window string, posts ...uint64) schema.Ranking {
	r := schema.Ranking{
		Version: schema.RankingVersion, Region: region, Window: window, Score: "decay", TopN: 100, MinLikes: 1,
	}
	r.Watermark, r.From, r.To = watermark, schema.NoMinute, schema.NoMinute
	for i, post := range posts {
		likes := int64(len(posts) - i)
		r.Posts = append(r.Posts, schema.RankedPost{
			Rank: i + 1, PostID: post, Score: schema.Score(likes) * schema.ScoreOne / 4, Likes: likes,
		})
	}
	return r
}

// table returns both tables: by key, the posts in rank order.
func (s *system) table() map[string][]uint64 {
	s.t.Helper()
	all := map[string][]uint64{}
	for _, query := range []string{
		"SELECT CONCAT(region, '/', `window`) k, `rank` r, post_id p FROM trending ORDER BY region, `window`, `rank`",
		"SELECT CONCAT(region, '/', period) k, `rank` r, post_id p FROM leaderboard ORDER BY region, period, `rank`",
	} {
		var rows []struct {
			K string
			R int
			P uint64
		}
		require.NoError(s.t, s.db.Select(&rows, query))
		for _, row := range rows {
			all[row.K] = append(all[row.K], row.P)
			require.Len(s.t, all[row.K], row.R, "ranks of %s have no gap", row.K)
		}
	}
	return all
}

func (s *system) waitTable(want map[string][]uint64) {
	s.t.Helper()
	s.waitFor(fmt.Sprintf("the rankings %v", want), func() (bool, any) {
		have := s.table()
		return fmt.Sprint(have) == fmt.Sprint(want), have
	})
}

// waitWritten waits until the tables have the rankings and all partitions are running.
func (s *system) waitWritten(want map[string][]uint64) {
	s.t.Helper()
	s.waitTable(want)
	devtest.WaitReady(s.t, s.writer.Ready)
}

func (s *system) position(partition int32) (next int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.Get(&next, "SELECT next_offset FROM trending_position WHERE partition_id = ?", partition))
	return next
}
