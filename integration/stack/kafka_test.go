package stack_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

// patience bounds every wait for a server, on a machine that may be busy with other tests.
const patience = 2 * time.Minute

func newClient(t *testing.T, brokers []string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics()},
		options...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func createTopic(ctx context.Context, t *testing.T, client *kgo.Client, topic string, replicas int16) {
	t.Helper()
	_, err := kadm.NewClient(client).CreateTopic(ctx, 1, replicas, nil, topic)
	require.NoError(t, err)
}

func inTransaction(ctx context.Context, t *testing.T, client *kgo.Client, topic string, values ...string) {
	t.Helper()
	require.NoError(t, client.BeginTransaction())
	for _, v := range values {
		require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr())
	}
	require.NoError(t, client.EndTransaction(ctx, kgo.TryCommit))
}

func readCommitted(ctx context.Context, t *testing.T, brokers []string, topic string, n int) []string {
	t.Helper()
	client := newClient(t, brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	var values []string
	for len(values) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d values read: %v", len(values), n, values)
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// Committed records survive a crash and a graceful stop, aborted ones do not. A cluster starts empty, Close removes it.
func TestKafkaSurvivesKillAndStop(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	k := stack.KafkaForTest(t, stack.KafkaOptions{})
	ctx := testkit.Within(t, patience)
	node := k.Node(0)
	client := newClient(t, k.Brokers(), kgo.TransactionalID("writer"))

	metadata, err := kadm.NewClient(client).Metadata(ctx)
	require.NoError(t, err)
	require.Equal(t, k.ClusterID(), metadata.Cluster)
	_, err = kadm.NewClient(client).CreateTopic(ctx, 1, 1,
		map[string]*string{"message.timestamp.type": kadm.StringPtr("LogAppendTime")}, "t")
	require.NoError(t, err)
	inTransaction(ctx, t, client, "t", "a", "b")

	checkAborts := abortMany(ctx, t, k.Brokers())
	before := node.PID()
	require.NoError(t, node.Kill())
	requireGone(t, before)
	require.Zero(t, node.PID())
	require.Error(t, node.Kill(), "killing a server that is down must fail")
	require.NoError(t, node.Start(ctx))
	require.NotEqual(t, before, node.PID())
	require.ErrorContains(t, node.Start(ctx), "already running")
	inTransaction(ctx, t, client, "t", "c")
	checkAborts()

	require.NoError(t, node.Stop())
	require.NoError(t, k.Start(ctx))
	require.Equal(t, []string{"a", "b", "c"}, readCommitted(ctx, t, k.Brokers(), "t", 3))

	pid, dir := node.PID(), k.Dir()
	require.DirExists(t, dir)
	require.NoError(t, k.Close())
	requireGone(t, pid)
	require.NoDirExists(t, dir)
	require.NoError(t, k.Close(), "a second Close")
}

// abortMany aborts the transactions of several producers at once, and returns when Kafka has acknowledged that,
// possibly before it has written all markers. After a crash, check lets each producer commit another transaction: the
// aborted records must not reappear with it, as they sometimes do with KAFKA-20734 (see kafka/pom.xml).
func abortMany(ctx context.Context, t *testing.T, brokers []string) (check func()) {
	t.Helper()
	const producers = 10 // and as many partitions, one for each
	_, err := kadm.NewClient(newClient(t, brokers)).CreateTopic(ctx, producers, 1, nil, "aborts")
	require.NoError(t, err)
	var clients []*kgo.Client
	produce := func(partition int, value string) {
		require.NoError(t, clients[partition].BeginTransaction())
		r := &kgo.Record{Topic: "aborts", Partition: int32(partition), Value: []byte(value)}
		require.NoError(t, clients[partition].ProduceSync(ctx, r).FirstErr())
	}
	for i := range producers {
		clients = append(clients, newClient(t, brokers, kgo.TransactionalID(strconv.Itoa(i)),
			kgo.RecordPartitioner(kgo.ManualPartitioner())))
		produce(i, "aborted")
	}
	var aborts errgroup.Group
	for _, client := range clients {
		aborts.Go(func() error { return client.EndTransaction(ctx, kgo.TryAbort) })
	}
	require.NoError(t, aborts.Wait())

	return func() {
		t.Helper()
		var want []string
		for i := range producers {
			produce(i, "committed")
			require.NoError(t, clients[i].EndTransaction(ctx, kgo.TryCommit))
			want = append(want, "committed")
		}
		// An aborted record would be read instead of a committed one, because it comes first in its partition.
		got := readCommitted(ctx, t, brokers, "aborts", producers)
		require.Equal(t, want, got[:producers], "records of transactions that were aborted before the crash")
	}
}

// A paused broker keeps its connections without responding; once resumed, it serves them again.
func TestKafkaPause(t *testing.T) {
	tier.Verify(t)
	var paused *stack.Kafka
	var client *kgo.Client
	ctx := testkit.Within(t, patience)
	t.Run("a test that leaves its cluster paused", func(st *testing.T) {
		paused = shared.Kafka(st)
		require.NoError(st, paused.Reset(ctx))
		client = newClient(t, paused.Brokers())
		createTopic(ctx, st, client, "paused", 1)
		require.NoError(st, client.ProduceSync(ctx, &kgo.Record{Topic: "paused", Value: []byte("before")}).FirstErr())

		require.NoError(st, paused.Node(0).Pause())
		brief, cancelBrief := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancelBrief()
		require.Error(st, client.Ping(brief), "a paused broker does not respond")
		require.True(st, paused.Node(0).Running())
	})
	require.Same(t, paused, shared.Kafka(t), "the next test gets the same cluster, resumed")
	require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Topic: "paused", Value: []byte("after")}).FirstErr())
}

// Concurrent tests never share a cluster; a finished test passes its cluster on.
func TestKafkaIsLeased(t *testing.T) {
	tier.Verify(t)
	first, second := shared.Kafka(t), shared.Kafka(t)
	require.NotSame(t, first, second)
}

// Reset leaves neither topics nor groups; a recreated topic is new.
func TestKafkaReset(t *testing.T) {
	tier.Verify(t)
	k := shared.Kafka(t)
	ctx := testkit.Within(t, patience)
	client := newClient(t, k.Brokers())
	admin := kadm.NewClient(client)
	for _, topic := range []string{"one", "two"} {
		createTopic(ctx, t, client, topic, 1)
		require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("old")}).FirstErr())
	}
	var committed kadm.Offsets
	committed.AddOffset("one", 0, 1, -1)
	require.NoError(t, admin.CommitAllOffsets(ctx, "readers", committed))
	groups, err := admin.ListGroups(ctx)
	require.NoError(t, err)
	require.Contains(t, groups.Groups(), "readers")

	require.NoError(t, k.Reset(ctx))

	topics, err := admin.ListTopics(ctx)
	require.NoError(t, err)
	require.Empty(t, topics.Names())
	groups, err = admin.ListGroups(ctx)
	require.NoError(t, err)
	require.Empty(t, groups.Groups())
	fresh := newClient(t, k.Brokers())
	createTopic(ctx, t, fresh, "one", 1)
	require.NoError(t, fresh.ProduceSync(ctx, &kgo.Record{Topic: "one", Value: []byte("new")}).FirstErr())
	require.Equal(t, []string{"new"}, readCommitted(ctx, t, k.Brokers(), "one", 1))
}

// A property from a test overrides the default, and a server that cannot start says why.
func TestKafkaThatCannotStart(t *testing.T) {
	tier.Verify(t)
	stack.Require(t, stack.NeedKafka)
	dir := t.TempDir()
	_, err := stack.StartKafka(t.Context(),
		stack.KafkaOptions{Dir: dir, ExtraProperties: map[string]string{"num.io.threads": "none"}})
	require.ErrorContains(t, err, "num.io.threads", "the error contains the end of the server's log")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "a failed start leaves no files")
}

func TestKafkaOptions(t *testing.T) {
	for name, o := range map[string]stack.KafkaOptions{
		"nodes":   {Nodes: 2},
		"newline": {ExtraProperties: map[string]string{"a": "b\nc"}},
		"fronts":  {Fronted: true, Secure: &stack.Authority{}},
	} {
		t.Run(name, func(t *testing.T) { require.Error(t, o.Validate()) })
	}
	require.NoError(t, stack.KafkaOptions{}.Validate())
	require.NoError(t, stack.KafkaOptions{Nodes: 3}.Validate())
}
