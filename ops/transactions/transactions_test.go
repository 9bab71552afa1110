package transactions

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/schema"
	"kudos/stream/kafka"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

type lab struct {
	*testkit.Cluster
	t     *testing.T
	kafka kafka.Options
}

func newLab(t *testing.T, topics ...string) *lab {
	l := &lab{Cluster: testkit.NewCluster(t), t: t, kafka: kafka.DefaultOptions()}
	l.kafka.Brokers = l.ListenAddrs()
	for _, topic := range topics {
		l.Topic(topic, 3)
	}
	return l
}

// begin opens a transaction with a record in some partitions of likes.
func (l *lab) begin(id string, partitions ...int32) *kgo.Client {
	cl := l.Client(kgo.TransactionalID(id), kgo.TransactionTimeout(50*time.Second))
	require.NoError(l.t, cl.BeginTransaction())
	for _, p := range partitions {
		require.NoError(l.t, cl.ProduceSync(l.t.Context(), testkit.Records(schema.TopicLikes, p, 0, 1)...).FirstErr())
	}
	return cl
}

func (l *lab) list() []Open {
	open, err := List(testkit.Context(l.t), l.Client(), MaxTimeout)
	require.NoError(l.t, err)
	return open
}

func (l *lab) abort(o Open, force bool) error {
	return Abort(testkit.Context(l.t), l.Client(), l.kafka, testkit.Log(), o, force)
}

// TestOpenTransactionsAreNamed with all of their partitions, and told apart from those of kudos.
func TestOpenTransactionsAreNamed(t *testing.T) {
	t.Parallel()
	l := newLab(t, schema.TopicLikes, schema.TopicState)
	require.Equal(t, []Open{}, l.list(), "[] in JSON")
	other, own := l.begin("other", 2, 0), l.begin(schema.TransactionalID(schema.GroupTrendingLocal, 1), 1)
	open := l.list()
	require.Len(t, open, 2)
	require.WithinDuration(t, time.Now(), open[0].LastWrite, time.Minute)
	require.Equal(t, Open{ID: "other", ProducerID: open[0].ProducerID, State: "Ongoing", LastWrite: open[0].LastWrite,
		Partitions: []string{"likes/0", "likes/2"}, in: open[0].in}, open[0])
	require.Regexp(t, `"other" \(not of kudos\), Ongoing, last write \d+s ago, in likes/0 likes/2`, open[0].String())
	require.True(t, open[1].Own)

	require.NoError(t, l.abort(open[0], false))
	require.Len(t, l.list(), 1)
	require.True(t, kafka.IsTakenOver(other.EndTransaction(t.Context(), kgo.TryCommit)))
	require.NoError(t, own.EndTransaction(t.Context(), kgo.TryCommit))
	require.Empty(t, l.list())
}

// TestOwnTransactionsAreNotAborted, unless told to: their owners end them.
func TestOwnTransactionsAreNotAborted(t *testing.T) {
	t.Parallel()
	l := newLab(t, schema.TopicLikes)
	own := l.begin(schema.FoldTransactionalIDs(1)[1], 1)
	open := l.list()[0]
	require.ErrorContains(t, l.abort(open, false), "it is of kudos")
	require.Len(t, l.list(), 1)
	require.NoError(t, l.abort(open, true))
	require.Empty(t, l.list())
	require.True(t, kafka.IsTakenOver(own.EndTransaction(t.Context(), kgo.TryCommit)))
}

// TestOnlyAnOldTransactionHangs: one that no coordinator names may be in a coordinator that is moving. Markers that
// abort it there would tear it.
func TestOnlyAnOldTransactionHangs(t *testing.T) {
	t.Parallel()
	l := newLab(t, schema.TopicLikes)
	cl := l.begin("moving", 0)
	o := l.list()[0]
	o.ID, o.LastWrite = "", time.Now().Add(-time.Minute)
	o.identify(nil, 2*time.Minute)
	require.Equal(t, Unknown, o.State)
	require.ErrorContains(t, l.abort(o, true), "no coordinator knows it, but one may be moving")

	o.identify(kadm.ListedTransactions{"moving": {TxnID: "moving", ProducerID: o.ProducerID, State: "CompleteAbort"}},
		time.Second)
	require.Equal(t, Hanging, o.State, "integration tests abort one on a real broker")
	torn := o
	torn.identify(kadm.ListedTransactions{"torn": {TxnID: schema.FoldTransactionalIDs(0)[0], ProducerID: o.ProducerID,
		State: "CompleteCommit"}}, time.Second)
	require.Equal(t, Hanging, torn.State)
	require.ErrorContains(t, l.abort(torn, false), "it is of kudos")
	require.NoError(t, cl.ProduceSync(t.Context(), testkit.Records(schema.TopicLikes, 1, 0, 1)...).FirstErr())
	require.ErrorContains(t, l.abort(o, true), "it has changed since it was listed")
	require.Len(t, l.list(), 1)
}
