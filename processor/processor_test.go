package processor_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev"
	"kudos/processor"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
)

const partitions = 4

// system is a broker and a database in this process, with topics and tables made.
type system struct {
	t     testing.TB
	log   *slog.Logger
	kafka stream.KafkaOptions
	mysql sql.Options
	db    *sqlx.DB
}

func newSystem(t testing.TB) *system {
	s := &system{t: t, log: slog.New(slog.DiscardHandler)}
	if os.Getenv("KUDOS_TEST_LOG") != "" {
		s.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "100000000000"}))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	s.kafka = stream.DefaultKafkaOptions()
	s.kafka.Brokers = broker.ListenAddrs()

	s.mysql = sql.DefaultOptions()
	if s.mysql.DSN = os.Getenv("KUDOS_TEST_MYSQL_DSN"); s.mysql.DSN == "" {
		o := dev.DefaultDatabaseOptions()
		o.Address = "127.0.0.1:0"
		database := dev.NewDatabase(o, s.log)
		require.NoError(t, database.Start())
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- database.Run(ctx) }()
		t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
		s.mysql.DSN, s.mysql.MaxOpenConns = database.DSN(), 1
	}
	s.db, err = sqlx.Open("mysql", s.mysql.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { s.db.Close() })
	var tables []string
	require.NoError(t, s.db.Select(&tables, "SHOW TABLES"))
	for _, table := range tables {
		s.db.MustExec("DROP TABLE " + table)
	}
	require.NoError(t, sql.Migrate(context.Background(), s.mysql, s.log))
	_, err = processor.ApplyTopics(context.Background(), s.kafka, partitions, 1, s.log)
	require.NoError(t, err)
	return s
}

// run starts a processor that stops with the test or by the returned function.
func (s *system) run(change func(*processor.Options)) (p *processor.Processor, stop func()) {
	o := processor.DefaultOptions()
	o.StateDir = s.t.TempDir()
	o.ParkInterval = 200 * time.Millisecond
	o.CacheBytes = 16 << 20
	if change != nil {
		change(&o)
	}
	store, err := sql.New(s.mysql, s.log)
	require.NoError(s.t, err)
	p, err = processor.New(o, s.kafka, store, s.log, prometheus.NewRegistry())
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			require.NoError(s.t, err)
		case <-time.After(30 * time.Second):
			s.t.Error("the processor did not stop within 30 s")
		}
		store.Close()
	}
	s.t.Cleanup(stop)
	return p, stop
}

func (s *system) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := s.kafka.NewClient(s.log, opts...)
	require.NoError(s.t, err)
	s.t.Cleanup(cl.Close)
	return cl
}

func (s *system) produce(records ...*kgo.Record) {
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(60<<10))
	require.NoError(s.t, cl.ProduceSync(context.Background(), records...).FirstErr())
}

func record(e schema.Event) *kgo.Record {
	return &kgo.Record{Key: schema.AppendPostKey(nil, e.PostID), Value: schema.AppendEvent(nil, &e)}
}

// waitFor waits for a condition that holds at the latest in 30 s.
func waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *system) counts() map[uint64]schema.Counts {
	var rows []struct {
		PostID   uint64 `db:"post_id"`
		Likes    int64  `db:"count"`
		Dislikes int64  `db:"dislike_count"`
	}
	require.NoError(s.t, s.db.Select(&rows, "SELECT post_id, count, dislike_count FROM like_count"))
	counts := map[uint64]schema.Counts{}
	for _, r := range rows {
		counts[r.PostID] = schema.Counts{Likes: r.Likes, Dislikes: r.Dislikes}
	}
	return counts
}

func TestLikesBecomeCounts(t *testing.T) {
	s := newSystem(t)
	p, _ := s.run(nil)
	r := rand.New(rand.NewPCG(1, 1))
	type pair struct{ post, user uint64 }
	state := map[pair]schema.Action{}
	var records []*kgo.Record
	for i := range 20_000 {
		e := schema.Event{PostID: 1 + r.Uint64N(50), UserID: 1 + r.Uint64N(200), Action: schema.Action(1 + r.IntN(3)), TimeMs: int64(1e12 + i), Region: schema.UnknownRegion}
		state[pair{e.PostID, e.UserID}] = e.Action
		records = append(records, record(e))
	}
	want := map[uint64]schema.Counts{}
	for k, a := range state {
		c := want[k.post]
		switch a {
		case schema.Like:
			c.Likes++
		case schema.Dislike:
			c.Dislikes++
		}
		want[k.post] = c
	}
	s.produce(records...)
	waitFor(t, "the counts", func() bool { return fmt.Sprint(s.counts()) == fmt.Sprint(want) })
	waitFor(t, "readiness", func() bool { return p.Ready() == nil })
	waitFor(t, "no lag", func() bool { return p.Lag() == 0 })
}
