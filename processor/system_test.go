package processor_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/ops/topics"
	"kudos/processor"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

const (
	partitions = 4
	// patience bounds every wait of a test.
	patience = 60 * time.Second
)

func TestMain(m *testing.M) {
	os.Exit(devtest.Main(m))
}

// system is a broker and a database in this process, with topics and tables made.
type system struct {
	t      testing.TB
	log    *slog.Logger
	broker *kfake.Cluster
	kafka  kafka.Options
	mysql  sql.Options // of the processors
	db     *sqlx.DB    // past them, for looking and for breaking things
	cl     *kgo.Client // for whatever a test has to ask
	adm    *kadm.Client

	started []*instance
}

func newSystem(t testing.TB) *system {
	s := newBroker(t)
	s.startDatabase()
	_, err := topics.Apply(t.Context(), s.kafka, schema.Layout{Partitions: partitions}, 1, s.log)
	require.NoError(t, err)
	return s
}

// newBroker is a system of an empty broker alone.
func newBroker(t testing.TB, opts ...kfake.Opt) *system {
	s := &system{t: t, log: devtest.Log()}
	s.broker, s.kafka = devtest.Broker(t, opts...)
	s.cl = s.client()
	s.adm = kadm.NewClient(s.cl)
	return s
}

// startDatabase makes a database for this test alone.
func (s *system) startDatabase() {
	s.db = s.newDatabase()
	s.migrate()
}

// newDatabase makes an empty database for this test alone, and has processors use it.
func (s *system) newDatabase() (db *sqlx.DB) {
	s.mysql, db = devtest.Database(s.t)
	return db
}

func (s *system) migrate() { devtest.Migrate(s.t, s.mysql) }

// instance is a running processor.
type instance struct {
	*processor.Processor
	s      *system
	reg    *prometheus.Registry
	cancel context.CancelFunc // tells it to stop
	stop   func()             // and waits; also at the end of the test
}

// run starts a processor that looks at parked partitions and idle positions often.
func (s *system) run(change ...func(*processor.Options)) *instance {
	o := processor.DefaultOptions()
	o.StateDir = s.t.TempDir()
	o.ParkInterval = 200 * time.Millisecond
	o.PositionCheckInterval = 200 * time.Millisecond
	o.CacheBytes = 16 << 20
	for _, f := range change {
		f(&o)
	}
	store, err := sql.Open(s.mysql, s.log)
	require.NoError(s.t, err)
	p := &instance{s: s, reg: prometheus.NewRegistry()}
	p.Processor, err = processor.New(o, s.kafka, store, s.log, p.reg)
	require.NoError(s.t, err)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		p.cancel()
		select {
		case err := <-done:
			require.NoError(s.t, err)
		case <-time.After(patience):
			s.t.Errorf("the processor did not stop within %s", patience)
		}
		require.NoError(s.t, store.Close())
	}
	s.t.Cleanup(p.stop)
	s.started = append(s.started, p)
	return p
}

func maxBatch(n int) func(*processor.Options) {
	return func(o *processor.Options) { o.MaxBatch = n }
}

func stateDir(dir string) func(*processor.Options) {
	return func(o *processor.Options) { o.StateDir = dir }
}

// metric sums a counter, or how much a histogram has seen, over its labels, or over those
// that have all of these label values.
func (p *instance) metric(name string, label ...string) int {
	families, err := p.reg.Gather()
	require.NoError(p.s.t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			lacks := func(value string) bool {
				return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value })
			}
			if slices.ContainsFunc(label, lacks) {
				continue
			}
			sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return int(sum)
}

// waitIdle waits until no batch is under way: then the metrics tell of all that is
// seen in Kafka and MySQL.
func (p *instance) waitIdle() {
	p.s.t.Helper()
	p.s.waitFor("no lag", func() (bool, any) { return p.Lag() == 0, p.Lag() })
}

// waitReady waits until the processor works on all partitions.
func (p *instance) waitReady() {
	p.s.t.Helper()
	p.s.waitFor("a ready processor", func() (bool, any) {
		err := p.Ready()
		return err == nil, err
	})
}

// waitRebalance waits until the group has the fold give its partitions up. It does so when
// the batches in hand are done, which may still be to come.
func (p *instance) waitRebalance() {
	p.s.t.Helper()
	p.waitParked("group " + schema.GroupFold + ": waits for its group to assign partitions")
}

// waitParked waits until readiness says all of the words.
func (p *instance) waitParked(words ...string) {
	p.s.t.Helper()
	p.s.waitFor("readiness to say "+strings.Join(words, ", "), func() (bool, any) {
		err := p.Ready()
		return !slices.ContainsFunc(words, func(word string) bool {
			return !strings.Contains(fmt.Sprint(err), word)
		}), err
	})
}

// waitFor waits until a condition holds; with it, the condition returns how things are.
func (s *system) waitFor(what string, condition func() (ok bool, now any)) {
	s.t.Helper()
	devtest.WaitFor(s.t, what, condition, func() (text string) {
		for i, p := range s.started {
			text += fmt.Sprintf("processor %d: readiness: %v\n", i, p.Ready())
		}
		return text
	})
}

// client makes a client that is closed at the end of the test.
func (s *system) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := s.kafka.NewClient(s.log, opts...)
	require.NoError(s.t, err)
	s.t.Cleanup(cl.Close)
	return cl
}

// produce writes to likes (or where a record says) with Kafka's default partitioner.
func (s *system) produce(records ...*kgo.Record) {
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)))
	defer cl.Close()
	require.NoError(s.t, cl.ProduceSync(s.t.Context(), records...).FirstErr())
}

// produceTo writes to the partitions that the records name, all in one batch a partition if they fit.
func (s *system) produceTo(records ...*kgo.Record) {
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)), kgo.ManualFlushing(), kgo.MaxBufferedRecords(len(records)+1))
	defer cl.Close()
	var failed kgo.FirstErrPromise
	for _, rec := range records {
		cl.Produce(s.t.Context(), rec, failed.Promise())
	}
	require.NoError(s.t, cl.Flush(s.t.Context()))
	require.NoError(s.t, failed.Err())
}

// record is an event as a writer of ours sends it.
func record(e schema.Event) *kgo.Record {
	return &kgo.Record{Key: schema.AppendPostKey(nil, e.PostID), Value: schema.AppendEvent(nil, &e)}
}

// like is a like of a post that lives in the partition.
func like(partition int32, user uint64) schema.Event {
	return schema.Event{PostID: postIn(partition), UserID: user, Action: schema.Like, TimeMs: 1e12, Region: schema.Region{'U', 'S'}}
}

// postIn returns a post that lives in the partition.
func postIn(partition int32) uint64 {
	for post := uint64(1); ; post++ {
		if schema.PartitionFor(post, partitions) == partition {
			return post
		}
	}
}

// likes are n likes of users from the given one on, in each partition.
func likes(from, n uint64) []*kgo.Record {
	var records []*kgo.Record
	for user := from; user < from+n; user++ {
		for partition := range int32(partitions) {
			records = append(records, record(like(partition, user)))
		}
	}
	return records
}
