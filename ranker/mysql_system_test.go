package ranker_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/integration/testrun"
	"kudos/ranker"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
)

const (
	partitions = 4
	// patience bounds the end of what a test runs.
	patience = 2 * time.Minute
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m)) }

// system is a broker and a database in this process, with the topic trending and tables.
type system struct {
	t      testing.TB
	log    *slog.Logger
	broker *kfake.Cluster
	kafka  kafka.Options
	mysql  sql.Options // of the writers
	db     *sqlx.DB    // past them, for looking and for breaking things
	cl     *kgo.Client
	writer *writer // the one that runs
}

func newSystem(t testing.TB) *system {
	s := &system{t: t, log: devtest.Log()}
	s.broker, s.kafka = devtest.Broker(t, kfake.SeedTopics(partitions, schema.TopicTrending))
	s.connect()
	s.mysql, s.db = devtest.Database(t)
	devtest.Migrate(t, s.mysql)
	return s
}

// writer is the running group trending-mysql.
type writer struct {
	*stream.Processor
	reg  *prometheus.Registry
	stop func() // and waits; also at the end of the test
}

// run starts the group; parked partitions and idle positions are looked at often.
func (s *system) run() *writer {
	store, err := sql.Open(s.mysql, s.log)
	require.NoError(s.t, err)
	w := &writer{reg: prometheus.NewRegistry()}
	w.Processor = stream.NewProcessor(stream.ProcessorOptions{
		Group: schema.GroupTrendingMySQL, Input: schema.TopicTrending, CommitPositions: true,
		Kafka: s.kafka, MaxBatch: ranker.MySQLMaxBatch, TickInterval: 50 * time.Millisecond, ParkInterval: 200 * time.Millisecond,
		SessionTimeout: 10 * time.Second, ShutdownTimeout: 10 * time.Second,
	}, ranker.NewMySQLWriters(s.kafka, store, w.reg, s.log, 100*time.Millisecond), s.log)
	stop := testrun.Start(s.t, "the group", patience, w.Run)
	w.stop = sync.OnceFunc(func() {
		stop()
		assert.NoError(s.t, store.Close()) // FailNow would have OnceFunc panic
	})
	s.t.Cleanup(w.stop)
	s.writer = w
	return w
}

// waitIdle waits until all that was read is worked off, and counted.
func (w *writer) waitIdle(s *system) {
	s.waitFor("no lag", func() (bool, any) {
		statuses, err := w.Status()
		lag := int64(0)
		for _, p := range statuses {
			lag += p.Lag
		}
		return err == nil && lag == 0, lag
	})
}

func (w *writer) metric(t testing.TB, name string) int {
	families, err := w.reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// waitFor waits until a condition holds; with it, the condition returns how things are.
func (s *system) waitFor(what string, condition func() (ok bool, now any)) {
	s.t.Helper()
	devtest.WaitFor(s.t, what, condition, func() string { return fmt.Sprintf("readiness: %v", s.writer.Ready()) })
}

func (s *system) waitReady() {
	s.t.Helper()
	s.waitFor("readiness", func() (bool, any) { err := s.writer.Ready(); return err == nil, err })
}

// waitParked waits until readiness says all of the words.
func (s *system) waitParked(words ...string) {
	s.t.Helper()
	s.waitFor("readiness to say "+strings.Join(words, ", "), func() (bool, any) {
		err := s.writer.Ready()
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(fmt.Sprint(err), word) }), err
	})
}

// connect makes the client that produces; again after a topic was created anew.
func (s *system) connect() {
	s.t.Helper()
	cl, err := s.kafka.NewClient(s.log, kgo.DefaultProduceTopic(schema.TopicTrending), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(s.t, err)
	s.t.Cleanup(cl.Close)
	s.cl = cl
}

// produce writes rankings, in order, each to the partition of its key.
func (s *system) produce(rankings ...schema.Ranking) {
	s.t.Helper()
	for _, r := range rankings {
		s.produceTo(partitionOf(r.Region, r.Window), schema.RankingKey(r.Region, r.Window), encode(s.t, r))
	}
}

func (s *system) produceTo(partition int32, key, value string) {
	s.t.Helper()
	require.NoError(s.t, s.cl.ProduceSync(s.t.Context(), &kgo.Record{Partition: partition, Key: []byte(key), Value: []byte(value)}).FirstErr())
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

// ranking has these posts, each with as many likes as there are places from it to the end.
func ranking(region, window string, posts ...uint64) schema.Ranking {
	r := schema.Ranking{Version: schema.RankingVersion, Region: region, Window: window, Score: "decay", TopN: 100, MinLikes: 1}
	r.Watermark, r.From, r.To = watermark, schema.NoMinute, schema.NoMinute
	for i, post := range posts {
		likes := int64(len(posts) - i)
		r.Posts = append(r.Posts, schema.RankedPost{Rank: i + 1, PostID: post, Score: schema.Score(likes) * schema.ScoreOne / 4, Likes: likes})
	}
	return r
}

// table is both tables: by key, the posts in the order of their ranks.
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

// position is how far MySQL says that a partition is.
func (s *system) position(partition int32) (next int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.Get(&next, "SELECT next_offset FROM trending_position WHERE partition_id = ?", partition))
	return next
}

// proxy stands between the writers and MySQL, and can keep it away.
type proxy struct {
	listener net.Listener
	server   string
	conns    sync.WaitGroup

	mu struct {
		sync.Mutex
		away, closed bool
		open         []net.Conn
	}
}

// throughProxy has all writers that are started from now on reach MySQL through a proxy.
func (s *system) throughProxy() *proxy {
	config, err := mysql.ParseDSN(s.mysql.DSN)
	require.NoError(s.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	p := &proxy{listener: listener, server: config.Addr}
	p.conns.Go(p.accept)
	s.t.Cleanup(func() {
		p.listener.Close()
		p.set(true, true)
		p.conns.Wait()
	})
	config.Addr = listener.Addr().String()
	s.mysql.DSN = config.FormatDSN()
	return p
}

func (p *proxy) setAway(away bool) { p.set(away, false) }

func (p *proxy) set(away, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.away, p.mu.closed = away, p.mu.closed || closed
	if away {
		for _, c := range p.mu.open {
			c.Close()
		}
		p.mu.open = nil
	}
}

// track keeps a connection to be cut; it closes one that must not be.
func (p *proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.away || p.mu.closed {
		c.Close()
		return false
	}
	p.mu.open = append(p.mu.open, c)
	return true
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.track(client) {
			continue
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil || !p.track(server) {
			client.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			p.conns.Go(func() {
				_, _ = io.Copy(way[1], way[0]) // until one of them is closed
				way[0].Close()
				way[1].Close()
			})
		}
	}
}
