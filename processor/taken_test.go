package processor

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream"
)

// beatingKafka answers heartbeats, and initialises whoever asks.
type beatingKafka struct {
	stream.Kafka
	stream.TxnClient
	code int16
	err  error
}

func (k *beatingKafka) ConnectTxn(*slog.Logger, *stream.TxnOptions) (stream.TxnClient, error) {
	return k, nil
}
func (k *beatingKafka) ProducerID(context.Context) (int64, int16, error) { return 1, 1, nil }
func (k *beatingKafka) Close()                                           {}
func (k *beatingKafka) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = k.code
	return resp, k.err
}

// TestATakeoverIsNoDamage: what does not fit is damage only if nobody else can have made it.
func TestATakeoverIsNoDamage(t *testing.T) {
	kafka := &beatingKafka{}
	w := &folder{txn: stream.NewTxn(stream.TxnOptions{ID: "a", Kafka: kafka, Timeout: 1e9}, slog.New(slog.DiscardHandler))}
	require.NoError(t, w.txn.Fence(t.Context()))
	damage := stream.Park(stream.CauseState, "mend it", "the state table went back")
	require.Equal(t, error(damage), w.unlessTaken(t.Context(), damage), "ours")
	kafka.code = kerr.UnknownMemberID.Code
	require.ErrorIs(t, w.unlessTaken(t.Context(), damage), stream.ErrFenced, "taken")
	kafka.code, kafka.err = 0, errors.New("connection reset by peer")
	var park *stream.ParkError
	err := w.unlessTaken(t.Context(), damage)
	require.ErrorIs(t, err, kafka.err, "not known")
	require.False(t, errors.As(err, &park), "not known")
}
