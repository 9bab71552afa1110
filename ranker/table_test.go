package ranker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// newTable is a table of one partition whose owner is a member of its group, until leave.
func newTable(t *testing.T) (tab *table, broker *kfake.Cluster, cl *kgo.Client, leave func()) {
	t.Helper()
	broker, cluster, cl := newBroker(t, 1, "input", "output", "group-table")
	members := make(chan kafka.Member, 1)
	member, err := cluster.NewClient(discardLog(), kgo.ConsumerGroup("group"), kgo.ConsumeTopics("input"),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, _ map[string][]int32) {
			id, generation := cl.GroupMetadata()
			members <- kafka.Member{Group: "group", ID: id, Generation: generation}
		}))
	require.NoError(t, err)
	t.Cleanup(member.Close)
	stores := store.NewSet(t.TempDir(), 1<<20, discardLog())
	t.Cleanup(stores.Close)
	tab = &table{
		group: "group", input: "input", output: "output", opts: &Options{TransactionTimeout: 10 * time.Second},
		kafka: cluster, stores: stores, log: discardLog(),
	}
	select {
	case tab.member = <-members:
	case <-time.After(patience):
		require.FailNow(t, "joining the group took too long")
	}
	openStore(t, tab)
	require.NoError(t, tab.Fence(t.Context()))
	t.Cleanup(tab.Close)
	return tab, broker, cl, member.Close
}

// openStore opens the local copy of the table, as goka does.
func openStore(t *testing.T, tab *table) {
	t.Helper()
	cl, err := tab.kafka.Connect(discardLog())
	require.NoError(t, err)
	defer cl.Close()
	topics, err := kafka.LookUpTopics(t.Context(), cl, tab.topic())
	require.NoError(t, err)
	id := kafka.LogID{ClusterID: topics.ClusterID, TopicID: topics.ByName[tab.topic()].ID}
	store := tab.stores.New(id, tab.topic(), 0)
	require.NoError(t, store.Open())
	t.Cleanup(func() { require.NoError(t, store.Close()) })
}

// writeProgress writes that the table stands at an offset of its input.
func writeProgress(t *testing.T, tab *table, broker *kfake.Cluster, cl *kgo.Client, offset int64) {
	t.Helper()
	topics, err := kafka.LookUpTopics(t.Context(), tab.txn.Client(), tab.input)
	require.NoError(t, err)
	p := schema.Progress{
		NextOffset: offset, LeaderEpoch: -1, ClusterID: topics.ClusterID, Partitions: 1,
		SourceID: broker.TopicInfo(tab.input).TopicID, StateID: broker.TopicInfo(tab.topic()).TopicID, UpdatesID: broker.TopicInfo(tab.output).TopicID,
	}
	produce(t, cl, &kgo.Record{Topic: tab.topic(), Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &p)})
}

// TestTableOutOfRangeParks: the input does not hold what is next, at either end. Exactly at
// its end it is just read up.
func TestTableOutOfRangeParks(t *testing.T) {
	for name, c := range map[string]struct {
		next   int64
		reason string
	}{
		"before the start": {next: 1, reason: "offset 1 is next, but input/0 holds 2 to 3"},
		"behind the end":   {next: 4, reason: "offset 4 is next, but input/0 holds 2 to 3"},
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
			position, err := tab.open(t.Context())
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

// TestTableOfAnotherOwnerIsNoDamage: what another process did since Fence looks like damage,
// which an operator would be sent to mend.
func TestTableOfAnotherOwnerIsNoDamage(t *testing.T) {
	tab, broker, cl, leave := newTable(t)
	writeProgress(t, tab, broker, cl, 99)
	_, err := tab.open(t.Context())
	var parked *stream.ParkError
	require.ErrorAs(t, err, &parked, "the partition is ours, so it is damage")
	leave()
	_, err = tab.open(t.Context())
	require.ErrorIs(t, err, kafka.ErrFenced)
}
