package ranker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

const patience = testkit.Patience

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newBroker is an embedded broker with topics, and a client with Kafka's default partitioning.
func newBroker(t *testing.T, partitions int32, topics ...string) (*testkit.Cluster, kafka.Options, *kgo.Client) {
	t.Helper()
	cluster := testkit.NewCluster(t, kfake.SeedTopics(partitions, topics...))
	kafka := kafka.DefaultOptions()
	kafka.Brokers, kafka.RequestTimeout = cluster.ListenAddrs(), 5*time.Second
	return cluster, kafka, cluster.Client(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
}

func produce(t *testing.T, cl *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
}

// newTable is a table of one partition, whose owner is a member of the group until leave.
func newTable(t *testing.T) (tab *table, broker *testkit.Cluster, cl *kgo.Client, leave func()) {
	t.Helper()
	broker, cluster, cl := newBroker(t, 1, "input", "output", "group-table", schema.TopicExclusions)
	id, generation, leave := broker.Join("group", "input")
	stores := store.NewSet(t.TempDir(), 1<<20, discardLog())
	t.Cleanup(stores.Close)
	tab = &table{
		group: "group", input: "input", state: "group-table", output: "output",
		opts: &Options{TransactionTimeout: 10 * time.Second},
		member: func() (kafka.Member, error) {
			return kafka.Member{Group: "group", ID: id, Generation: generation}, nil
		},
		kafka: cluster, log: discardLog(),
	}
	tab.store = stores.New(tab.state, 0)
	t.Cleanup(tab.Leave)
	require.NoError(t, tab.Fence(t.Context()))
	t.Cleanup(tab.Close)
	return tab, broker, cl, leave
}

func writeProgress(t *testing.T, tab *table, broker *testkit.Cluster, cl *kgo.Client, offset int64) {
	t.Helper()
	topics, err := kafka.LookUpTopics(t.Context(), tab.txn.Client(), tab.input)
	require.NoError(t, err)
	p := schema.Progress{
		NextOffset: offset, LeaderEpoch: -1, ClusterID: topics.ClusterID, Partitions: 1,
		SourceID: broker.TopicInfo(tab.input).TopicID, StateID: broker.TopicInfo(tab.state).TopicID,
		UpdatesID: broker.TopicInfo(tab.output).TopicID,
	}
	value := schema.AppendProgress(nil, &p)
	produce(t, cl, &kgo.Record{Topic: tab.state, Key: []byte(schema.StateProgressKey), Value: value})
}

// TestTableOutOfRangeParks: the next offset is before or after the input's records. A table at its end is caught up.
func TestTableOutOfRangeParks(t *testing.T) {
	for name, c := range map[string]struct {
		next   int64
		reason string
	}{
		"before the start": {next: 1, reason: "offset 1 is next, but input/0 holds 2 to 3"},
		"past the end":     {next: 4, reason: "offset 4 is next, but input/0 holds 2 to 3"},
		"at the start":     {next: 2},
		"at the end":       {next: 3},
	} {
		t.Run(name, func(t *testing.T) {
			tab, broker, cl, _ := newTable(t)
			for range 3 {
				produce(t, cl, &kgo.Record{Topic: tab.input, Value: []byte("update")})
			}
			require.NoError(t, broker.DeleteRecords(tab.input, 0, 2))
			writeProgress(t, tab, broker, cl, c.next)
			position, err := openAlone(t, tab)
			if c.reason == "" {
				require.NoError(t, err)
				require.Equal(t, kafka.Position{Offset: c.next, Epoch: -1}, position)
				return
			}
			var parked *stream.ParkError
			require.ErrorAs(t, err, &parked)
			require.Equal(t, stream.CauseLoss, parked.Cause)
			require.ErrorContains(t, err, c.reason)
		})
	}
}

// openAlone opens a table without rows and exclusions.
func openAlone(t *testing.T, tab *table) (kafka.Position, error) {
	return tab.open(t.Context(), func() error { return nil }, func(context.Context) error { return nil })
}

// TestTableOfAnotherOwnerIsNotDamage: what another process wrote since Fence looks like damage an operator must repair.
func TestTableOfAnotherOwnerIsNotDamage(t *testing.T) {
	tab, broker, cl, leave := newTable(t)
	writeProgress(t, tab, broker, cl, 99)
	_, err := openAlone(t, tab)
	require.ErrorAs(t, err, new(*stream.ParkError), "the partition is still owned, so it is damage")
	leave()
	_, err = openAlone(t, tab)
	require.ErrorIs(t, err, kafka.ErrFenced)
}
