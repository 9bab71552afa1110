package archive

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

const (
	partitions = 4
	// patience bounds every wait of a test.
	patience = 60 * time.Second
)

// world is a broker with like-updates, and who writes there.
type world struct {
	t      *testing.T
	broker *kfake.Cluster
	kafka  kafka.Options
	writer *kgo.Client
	opts   Options
	at     time.Time // of records
	next   [2 * partitions]uint64
	want   []Row
}

func newWorld(t *testing.T) *world {
	w := newEmptyWorld(t)
	w.makeTopic()
	return w
}

func newEmptyWorld(t *testing.T) *world {
	// kfake compacts what is not committed yet: never.
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "100000000000"}))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	w := &world{t: t, broker: broker, kafka: kafka.DefaultOptions(), opts: testOptions(t), at: noon}
	w.kafka.Brokers = broker.ListenAddrs()
	w.opts.RotateInterval, w.opts.ParkInterval = 20*time.Millisecond, 20*time.Millisecond
	w.connect()
	return w
}

// connect makes the writer's client, which knows topics as they are then.
func (w *world) connect() {
	w.writer = w.client(kgo.TransactionalID("fold"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(schema.TopicUpdates))
}

func (w *world) makeTopic() {
	require.NoError(w.t, w.broker.CreateTopic(schema.TopicUpdates, partitions, map[string]string{"cleanup.policy": "compact"}))
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(w.kafka.Brokers...))...)
	require.NoError(w.t, err)
	w.t.Cleanup(cl.Close)
	return cl
}

// transact writes a transaction of n updates to a partition, of two rows each, and its end.
func (w *world) transact(partition int32, n int, end kgo.TransactionEndTry) {
	w.t.Helper()
	require.NoError(w.t, w.writer.BeginTransaction())
	seq := w.next[partition]
	var records []*kgo.Record
	for range n {
		records = append(records, update(0, seq, w.at, 1, -1))
		seq++
	}
	records = append(records, progress(0, seq, w.at))
	for _, rec := range records {
		rec.Partition = partition
	}
	require.NoError(w.t, w.writer.ProduceSync(w.t.Context(), records...).FirstErr())
	require.NoError(w.t, w.writer.EndTransaction(w.t.Context(), end))
	if end == kgo.TryAbort {
		return
	}
	for _, rec := range records[:n] {
		var u schema.Update
		require.NoError(w.t, schema.DecodeUpdate(rec.Value, &u))
		w.want = appendRows(w.want, rec, 7, &u)
	}
	w.next[partition] = seq + 1
}

func (w *world) commit(partition int32, n int) {
	w.t.Helper()
	w.transact(partition, n, kgo.TryCommit)
}

// process is a running archive.
type process struct {
	*Archive
	t      *testing.T
	reg    *prometheus.Registry
	cancel context.CancelFunc
	done   chan struct{} // closed when Run has ended, with err
	err    error
}

func (w *world) start() *process {
	w.t.Helper()
	p := &process{t: w.t, reg: prometheus.NewRegistry(), done: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("KUDOS_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	var err error
	p.Archive, err = New(w.opts, w.kafka, log, p.reg)
	require.NoError(w.t, err)
	p.checkInterval = 20 * time.Millisecond
	require.Error(w.t, p.Ready())
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() { defer close(p.done); p.err = p.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-p.done })
	return p
}

// ended waits for the end of Run and returns its error.
func (p *process) ended() error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		require.FailNow(p.t, "the archive does not end")
		return nil
	}
}

func (p *process) stop() {
	p.t.Helper()
	p.cancel()
	require.NoError(p.t, p.ended())
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		require.True(t, time.Now().Before(deadline), "waited %v for %s", patience, what)
		<-tick.C
	}
}

// waitParked waits for a partition to be parked alone, and to say why.
func (p *process) waitParked(partition, cause, why string) {
	p.t.Helper()
	var ready error
	defer func() {
		if p.t.Failed() {
			p.t.Log("ready: ", ready)
		}
	}()
	waitFor(p.t, partition+" to park", func() bool {
		ready = p.Ready()
		return ready != nil && strings.Contains(ready.Error(), "archive: like-updates/"+partition+" parked: ") && strings.Contains(ready.Error(), why) &&
			strings.Contains(ready.Error(), "(remedy: ") && !strings.Contains(ready.Error(), "; like-updates/")
	})
	require.Equal(p.t, 1.0, p.metric("kudos_parked_partitions", "cause", cause))
}

func (p *process) waitReady() {
	p.t.Helper()
	waitFor(p.t, "the archive to be ready", func() bool { return p.Ready() == nil })
}

// metric is the sum of the series of a metric that have a label.
func (p *process) metric(name, label, value string) (sum float64) {
	p.t.Helper()
	families, err := p.reg.Gather()
	require.NoError(p.t, err)
	has := func(m *dto.Metric) bool {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == value {
				return true
			}
		}
		return label == ""
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && has(m) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

type rowName struct {
	partition int32
	seq       uint64
	index     int32
}

func named(t *testing.T, rows []Row) map[rowName]Row {
	t.Helper()
	all := map[rowName]Row{}
	for _, r := range rows {
		r.Offset = 0
		n := rowName{r.Partition, r.Seq, r.Index}
		require.NotContains(t, all, n, "a row is there twice")
		all[n] = r
	}
	return all
}

// waitArchived waits for all rows to be in files, each once.
func (w *world) waitArchived() {
	w.t.Helper()
	waitFor(w.t, "all rows to be archived", func() bool { return len(rowsOf(w.t, w.opts)) >= len(w.want) })
	require.Equal(w.t, named(w.t, w.want), named(w.t, rowsOf(w.t, w.opts)))
}
