package processor_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/dev/testkit"
	"kudos/integration/mysqlproxy"
	"kudos/integration/oracle"
	"kudos/integration/testrun"
	"kudos/processor"
	"kudos/processor/fold/foldtest"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
)

const (
	partitions = foldtest.Partitions
	patience   = 60 * time.Second // bounds every wait of a test
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m)) }

// system is an in-process broker and a database, with topics and tables.
type system struct {
	*devtest.Kafka
	t      testing.TB
	log    *slog.Logger
	mysql  sql.Options // of the processors
	db     *sqlx.DB    // a direct connection, for checks and for damage
	adm    *kadm.Client
	oracle *oracle.Oracle

	started []*instance
}

func newSystem(t testing.TB) *system {
	s := newTopics(t)
	s.db = s.newDatabase()
	s.migrate()
	return s
}

// newBroker returns a system of an empty broker alone.
func newBroker(t testing.TB, opts ...kfake.Opt) *system {
	s := &system{Kafka: devtest.NewKafka(t, opts...), t: t, log: devtest.Log()}
	s.adm = kadm.NewClient(s.Client)
	s.newOracle()
	return s
}

// newDatabase creates an empty database for this test, which processors then use.
func (s *system) newDatabase() (db *sqlx.DB) { s.mysql, db = devtest.Database(s.t); return db }

func (s *system) migrate() { devtest.Migrate(s.t, s.mysql) }

type instance struct {
	*processor.Processor
	s      *system
	reg    *prometheus.Registry
	cancel context.CancelFunc // tells it to stop
	stop   func()             // cancels and waits; also called at the end of the test
}

// newProcessor returns a processor that retries parked partitions and checks idle positions often.
func (s *system) newProcessor(change ...func(*processor.Options)) *instance {
	o := processor.DefaultOptions()
	o.StateDir = s.t.TempDir()
	o.ParkInterval, o.PositionCheckInterval = 200*time.Millisecond, 200*time.Millisecond
	o.CacheBytes = 16 << 20
	for _, f := range change {
		f(&o)
	}
	store, err := sql.Open(s.mysql, s.log)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, store.Close()) })
	p := &instance{s: s, reg: prometheus.NewRegistry()}
	p.Processor, err = processor.New(o, s.Options, store, s.log, p.reg)
	require.NoError(s.t, err)
	return p
}

func (s *system) run(change ...func(*processor.Options)) *instance {
	p := s.newProcessor(change...)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.stop = testrun.Start(s.t, "the processor", patience, func(stopped context.Context) error {
		context.AfterFunc(stopped, cancel)
		return p.Run(ctx)
	})
	s.started = append(s.started, p)
	return p
}

func (s *system) runToEnd() error {
	return s.newProcessor().Run(testkit.Context(s.t))
}

func maxBatch(n int) func(*processor.Options) { return func(o *processor.Options) { o.MaxBatch = n } }

func stateDir(dir string) func(*processor.Options) {
	return func(o *processor.Options) { o.StateDir = dir }
}

// metric returns the sum of a counter, or the count of a histogram.
func (p *instance) metric(name string, labels ...string) int {
	p.s.t.Helper()
	return int(testrun.Metric(p.s.t, p.reg, name, labels...))
}

func (p *instance) gauge(name string, labels ...string) float64 {
	p.s.t.Helper()
	require.Len(p.s.t, testrun.Series(p.s.t, p.reg, name, labels...), 1, "%s of %v", name, labels)
	return testrun.Metric(p.s.t, p.reg, name, labels...)
}

// waitIdle waits until no batch is in flight: then the metrics include everything that is in Kafka and MySQL.
func (p *instance) waitIdle() {
	p.s.t.Helper()
	p.s.waitFor("no lag", func() (bool, any) { return p.Lag() == 0, p.Lag() })
}

func (p *instance) waitReady() { p.s.t.Helper(); devtest.WaitReady(p.s.t, p.Ready) }

func (p *instance) waitAssigned() {
	p.s.t.Helper()
	p.s.waitFor("an assignment", func() (bool, any) {
		d := p.Detail().([]stream.GroupStatus)
		return len(d[0].Partitions) > 0, d
	})
}

// waitParked waits until the readiness error contains all of the words.
func (p *instance) waitParked(words ...string) {
	p.s.t.Helper()
	devtest.WaitReadiness(p.s.t, p.Ready, words...)
}

// waitFor waits until condition returns true; now is the state, for the error.
func (s *system) waitFor(what string, condition func() (ok bool, now any)) {
	s.t.Helper()
	devtest.WaitFor(s.t, what, condition, func() (text string) {
		for i, p := range s.started {
			text += fmt.Sprintf("processor %d: readiness: %v\n", i, p.Ready())
		}
		return text
	})
}

func (s *system) waitLikes(n int64, partitions ...int32) {
	s.t.Helper()
	s.waitFor("likes to be counted", func() (bool, any) {
		counts := s.counts()
		return !slices.ContainsFunc(partitions, func(p int32) bool { return counts[postIn(p)].Likes != n }), counts
	})
}

// throughProxy makes all processors that start later use MySQL through a proxy.
func (s *system) throughProxy() *mysqlproxy.Proxy { return testrun.ProxyMySQL(s.t, &s.mysql.DSN) }

// produce writes to likes or the record's topic, to the records' partitions, in one batch each if they fit.
func (s *system) produce(records ...*kgo.Record) {
	cl := s.NewClient(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)), kgo.ManualFlushing(),
		kgo.MaxBufferedRecords(len(records)+1))
	defer cl.Close()
	var failed kgo.FirstErrPromise
	for _, rec := range records {
		cl.Produce(s.t.Context(), rec, failed.Promise())
	}
	require.NoError(s.t, cl.Flush(s.t.Context()))
	require.NoError(s.t, failed.Err())
}

// record returns an event as our producer sends it, in its partition.
func record(e schema.Event) *kgo.Record {
	return &kgo.Record{Partition: schema.PartitionFor(e.PostID, partitions), Key: schema.AppendPostKey(nil, e.PostID),
		Value: schema.AppendEvent(nil, &e)}
}

func like(partition int32, user uint64) schema.Event {
	return schema.Event{PostID: postIn(partition), UserID: user, Action: schema.Like, TimeMs: 1e12,
		Region: schema.Region{'U', 'S'}}
}

func postIn(partition int32) uint64 { return foldtest.PostAt(partition, 0) }

// likes returns likes of n users, starting with from, in each partition.
func likes(from, n uint64) []*kgo.Record {
	var records []*kgo.Record
	for user := from; user < from+n; user++ {
		for partition := range int32(partitions) {
			records = append(records, record(like(partition, user)))
		}
	}
	return records
}
