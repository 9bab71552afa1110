package archive

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/schema"
	"kudos/stream/kafka"
)

const partitions = 4

// world is a broker with like-updates and a writer.
type world struct {
	t      *testing.T
	broker *testkit.Cluster
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
	w := &world{t: t, broker: testkit.NewCluster(t), kafka: kafka.DefaultOptions(), opts: testOptions(t), at: noon}
	w.kafka.Brokers = w.broker.ListenAddrs()
	w.opts.RotateInterval, w.opts.ParkInterval = 20*time.Millisecond, 20*time.Millisecond
	w.connect()
	return w
}

// connect creates the writer's client, with the topics' current metadata.
func (w *world) connect() {
	w.writer = w.broker.Client(kgo.TransactionalID("fold"), kgo.DefaultProduceTopic(schema.TopicUpdates))
}

func (w *world) makeTopic() {
	config := map[string]string{"cleanup.policy": "compact"}
	require.NoError(w.t, w.broker.CreateTopic(schema.TopicUpdates, partitions, config))
}

// transact writes a transaction of n updates with two rows each, and ends it.
func (w *world) transact(partition int32, n int, end kgo.TransactionEndTry) {
	seq := w.next[partition]
	var records []*kgo.Record
	for range n {
		records = append(records, update(0, seq, w.at, 1, -1))
		seq++
	}
	w.write(partition, end, append(records, progress(0, seq, w.at))...)
	if end == kgo.TryAbort {
		return
	}
	for _, rec := range records {
		var u schema.Update
		require.NoError(w.t, schema.DecodeUpdate(rec.Value, &u))
		w.want = appendRows(w.want, rec, 7, &u)
	}
	w.next[partition] = seq + 1
}

func (w *world) write(partition int32, end kgo.TransactionEndTry, records ...*kgo.Record) {
	for _, rec := range records {
		rec.Partition = partition
	}
	require.NoError(w.t, w.writer.BeginTransaction())
	require.NoError(w.t, w.writer.ProduceSync(w.t.Context(), records...).FirstErr())
	require.NoError(w.t, w.writer.EndTransaction(w.t.Context(), end))
}

// commitLost commits updates that must not be archived.
func (w *world) commitLost(partition int32, n int) {
	want := w.want
	w.commit(partition, n)
	w.want = want
}

func (w *world) commit(partition int32, n int) { w.transact(partition, n, kgo.TryCommit) }

type process struct {
	*Archive
	t    *testing.T
	reg  *prometheus.Registry
	stop func()
}

// archive creates a process that does not run yet.
func (w *world) archive() *process {
	p := &process{t: w.t, reg: prometheus.NewRegistry()}
	var err error
	p.Archive, err = New(w.opts, w.kafka, testkit.Log(), p.reg)
	require.NoError(w.t, err)
	require.Error(w.t, p.Ready())
	return p
}

func (w *world) start() *process {
	p := w.archive()
	p.stop = testrun.Start(w.t, "the archive", testkit.Patience, p.Run)
	return p
}

func (p *process) waitParked(partition, cause, why string) {
	p.t.Helper()
	testkit.WaitFor(p.t, partition+" to park", func() bool {
		ready := fmt.Sprint(p.Ready())
		return strings.Contains(ready, "archive: like-updates/"+partition+" parked: ") &&
			strings.Contains(ready, why) && strings.Contains(ready, "(action: ") &&
			!strings.Contains(ready, "; like-updates/")
	})
	require.Equal(p.t, 1.0, p.metric("kudos_parked_partitions", cause))
}

// waitAllParked waits until all partitions are parked, because they are of another topic.
func (p *process) waitAllParked() {
	p.t.Helper()
	testkit.WaitFor(p.t, "all partitions to park", func() bool {
		return p.metric("kudos_parked_partitions", "topics") == partitions
	})
}

func (p *process) waitReady() {
	p.t.Helper()
	testkit.WaitFor(p.t, "the archive to be ready", func() bool { return p.Ready() == nil })
}

func (p *process) metric(name string, labels ...string) float64 {
	return testrun.Metric(p.t, p.reg, name, labels...)
}

// named returns rows by partition, seq and index, without their offsets.
func named(t *testing.T, rows []Row) map[string]Row {
	all := map[string]Row{}
	for _, r := range rows {
		r.Offset = 0
		name := fmt.Sprint(r.Partition, r.Seq, r.Index)
		require.NotContains(t, all, name, "duplicate row")
		all[name] = r
	}
	return all
}

// waitArchived waits until all rows are in files, and requires each exactly once.
func (w *world) waitArchived() {
	w.t.Helper()
	testkit.WaitFor(w.t, "all rows to be archived", func() bool { return len(rowsOf(w.t, w.opts)) >= len(w.want) })
	require.Equal(w.t, named(w.t, w.want), named(w.t, rowsOf(w.t, w.opts)))
}
