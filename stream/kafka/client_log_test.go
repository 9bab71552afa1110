package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
)

func linesOf(log *testkit.Output) []string {
	return strings.Split(strings.TrimSpace(log.String()), "\n")
}

// TestUnavailableBrokerIsLoggedOnce by all clients of the process, and once when it answers again.
func TestUnavailableBrokerIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log testkit.Output
	opts := DefaultOptions()
	broker := testkit.NewCluster(t)
	opts.Brokers = broker.ListenAddrs()
	var clients []*kgo.Client
	for range 5 {
		cl, err := opts.NewClient(slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		require.NoError(t, cl.Ping(testkit.Context(t)))
		clients = append(clients, cl)
	}
	broker.Close()
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.Error(t, clients[i%5].Ping(ctx))
		cancel()
	}
	require.Len(t, linesOf(&log), 1)
	require.Regexp(t, `level=WARN msg="Kafka broker is unavailable" component=kafka addr=127.0.0.1:\d+ `+
		`client="unable to open connection to broker" error=".*connection refused"$`, linesOf(&log)[0])

	_, port, err := net.SplitHostPort(opts.Brokers[0])
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	again, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(n), kfake.ClusterID("test-cluster"))
	require.NoError(t, err)
	t.Cleanup(again.Close)
	for _, cl := range clients {
		testkit.WaitFor(t, "the broker to answer", func() bool { return cl.Ping(testkit.Context(t)) == nil })
	}
	require.Len(t, linesOf(&log), 2, "%q", linesOf(&log))
	require.Regexp(t, `level=INFO msg="Kafka broker answers again" .* failed_attempts=(\d\d+)$`, linesOf(&log)[1])
}

// TestOtherWarningsOfTheClientAreLogged, each as it is.
func TestOtherWarningsOfTheClientAreLogged(t *testing.T) {
	t.Parallel()
	var log testkit.Output
	l := newClientLog(slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		l.Log(kgo.LogLevelError, "unable to initialize sasl", "addr", "here:1", "err", errors.New("wrong password"))
	}
	require.Equal(t, 2, len(linesOf(&log)))
	require.Contains(t, linesOf(&log)[1], `level=ERROR msg="unable to initialize sasl"`)
	require.Equal(t, kgo.LogLevelWarn, l.Level(), "without info messages")
}
