package processor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/devtest"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// beatingKafka answers heartbeats and its version, and initializes every transactional id.
type beatingKafka struct {
	kafka.Clients
	kafka.TxnClient
	code int16
	err  error
}

func (k *beatingKafka) ConnectTxn(*slog.Logger, string, *kafka.TxnOptions) (kafka.TxnClient, error) {
	return k, nil
}
func (k *beatingKafka) ProducerID(context.Context) (int64, int16, error) { return 1, 1, nil }
func (k *beatingKafka) Close()                                           {}
func (k *beatingKafka) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp := req.ResponseKind()
	switch resp := resp.(type) {
	case *kmsg.HeartbeatResponse:
		resp.ErrorCode = k.code
	case *kmsg.ApiVersionsResponse:
		resp.FinalizedFeatures = []kmsg.ApiVersionsResponseFinalizedFeature{
			{Name: "transaction.version", MaxVersionLevel: 2}}
	}
	return resp, k.err
}

// A mismatch is damage only if no other process can have caused it.
func TestTakeoverIsNotDamage(t *testing.T) {
	t.Parallel()
	t.Run(schema.GroupFold, foldIsTakenOver)
	t.Run(schema.GroupApply, countIsTakenOver)
}

func foldIsTakenOver(t *testing.T) {
	broker := &beatingKafka{}
	w := &foldWorker{Txn: kafka.NewTxn(kafka.TxnOptions{IDs: []string{"a"}, Kafka: broker, Timeout: 1e9,
		Member: func() (kafka.Member, error) { return kafka.Member{}, nil }},
		slog.New(slog.DiscardHandler))}
	require.NoError(t, w.Fence(t.Context()))
	damage := stream.Park(stream.CauseState, "fix it", "the state table was rewound")
	require.Equal(t, error(damage), w.ifStillOwned(t.Context(), damage), "still owned")
	broker.code = kerr.UnknownMemberID.Code
	require.ErrorIs(t, w.ifStillOwned(t.Context(), damage), kafka.ErrFenced, "taken over")
	broker.code, broker.err = 0, errors.New("connection reset by peer")
	err := w.ifStillOwned(t.Context(), damage)
	require.ErrorIs(t, err, broker.err, "ownership unknown")
	require.NotErrorAs(t, err, new(*stream.ParkError), "ownership unknown")
}

// countIsTakenOver: a process returns to a position that its successor moved. It resumes there; nothing counts twice.
func countIsTakenOver(t *testing.T) {
	k := devtest.NewKafka(t)
	require.NoError(t, k.Broker.CreateTopic(schema.TopicUpdates, 1, nil))
	mysql, raw := devtest.Database(t)
	devtest.Migrate(t, mysql)
	db, err := sql.Open(mysql, devtest.Log())
	require.NoError(t, err)
	defer db.Close()
	start := func() *countWorker {
		return NewWorkers(DefaultOptions(), k.Options, &store.Set{}, db, devtest.Log(),
			nil).Count(stream.Assignment{}).(*countWorker)
	}
	like := func(seq uint64) *stream.Batch {
		rec := devtest.UpdateRecord(0, 7, schema.Update{Seq: seq, Counts: schema.Counts{Likes: int64(seq) + 1},
			Deltas: []schema.Delta{{Region: schema.Region{'U', 'S'}, Likes: 1}}})
		k.Write(rec)
		return &stream.Batch{Records: []*kgo.Record{rec}, Next: kafka.Position{Offset: rec.Offset + 1}}
	}
	goesOn := func(w *countWorker, err error, why string, at int64) {
		t.Helper()
		require.NotErrorAs(t, err, new(*stream.ParkError))
		require.ErrorContains(t, err, why)
		require.True(t, strings.HasPrefix(err.Error(), stream.Reopen("").Error()), "%v", err)
		from, err := w.Open(t.Context())
		require.NoError(t, err)
		require.Equal(t, at, from.Offset)
	}
	away, successor := start(), start()
	for _, w := range []*countWorker{away, successor} {
		_, err := w.Open(t.Context())
		require.NoError(t, err)
	}
	first := like(0)
	require.NoError(t, successor.Process(t.Context(), first))
	goesOn(away, away.Process(t.Context(), first), "the position in MySQL has moved", 1)
	// It was idle meanwhile.
	require.NoError(t, successor.Process(t.Context(), like(1)))
	away.checked = time.Time{}
	goesOn(away, away.Process(t.Context(), &stream.Batch{}), "MySQL is at offset 2 of like-updates/0, not at 1", 2)
	third := like(2)
	require.NoError(t, away.Process(t.Context(), third), "the first worker takes it back")
	goesOn(successor, successor.Process(t.Context(), third), "the position in MySQL has moved", 3)
	var likes int
	require.NoError(t, raw.Get(&likes, "SELECT `count` FROM like_count WHERE post_id = 7"))
	require.Equal(t, 3, likes)
}
