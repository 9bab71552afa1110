//go:build !nodev

package dev

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/testrun"
	"kudos/schema"
)

// startBrokerIn is an embedded broker with its data in dir.
func startBrokerIn(t *testing.T, dir string) (b *Broker, stop func()) {
	t.Helper()
	o := DefaultBrokerOptions()
	o.Address, o.DataDir = "127.0.0.1:0", dir
	b = NewBroker(o, discardLog())
	require.NoError(t, b.Start())
	return b, testrun.Start(t, "the broker", time.Minute, b.Run)
}

// killed is the directory of a broker as it would be if the broker were killed now.
func killed(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "kafka")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func TestBrokerKeepsItsData(t *testing.T) {
	dir := t.TempDir()
	b, stop := startBrokerIn(t, dir)
	createTopics(t, b, 1)
	set(t, transactional(t, b, "writer"), kgo.TryCommit, [2]string{"a", "1"}, [2]string{"_", "1"})
	id := b.cluster.TopicInfo(schema.TopicState).TopicID
	stop()
	b, _ = startBrokerIn(t, dir)
	values, _ := table(t, newClient(t, b))
	require.Equal(t, map[string]string{"a": "1", "_": "1"}, values)
	require.Equal(t, id, b.cluster.TopicInfo(schema.TopicState).TopicID)
}

// TestKilledTransactionsStayAborted: also when the broker is killed a second time, after their
// transactional id has committed another transaction.
func TestKilledTransactionsStayAborted(t *testing.T) {
	dir := t.TempDir()
	b, _ := startBrokerIn(t, dir)
	createTopics(t, b, 1)
	writer := transactional(t, b, "writer")
	set(t, writer, kgo.TryCommit, [2]string{"a", "1"}, [2]string{"_", "1"})
	require.NoError(t, writer.BeginTransaction())
	open := &kgo.Record{Topic: schema.TopicState, Key: []byte("b"), Value: []byte("never committed")}
	require.NoError(t, writer.ProduceSync(t.Context(), open).FirstErr())

	dir = killed(t, dir)
	b, _ = startBrokerIn(t, dir)
	require.NoError(t, EndKilledTransactions(t.Context(), kafkaOptions(b), discardLog()))
	set(t, transactional(t, b, "writer"), kgo.TryCommit, [2]string{"a", "2"}, [2]string{"_", "2"})
	want := map[string]string{"a": "2", "_": "2"}
	values, _ := table(t, newClient(t, b))
	require.Equal(t, want, values)

	b, _ = startBrokerIn(t, killed(t, dir))
	require.NoError(t, EndKilledTransactions(t.Context(), kafkaOptions(b), discardLog()))
	values, _ = table(t, newClient(t, b))
	require.Equal(t, want, values)
}
