package cli

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

// TestRankerNeedsNoMySQL: without it rankings are in Kafka only, and one line says so. It
// runs, stops, and is reset.
func TestRankerNeedsNoMySQL(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	brokers := strings.Join(cluster.ListenAddrs(), ",")
	code, _, stderr := kudos(t, "", "topics", "apply", "--brokers", brokers, "--set", "topics.partitions=2", "--set", "topics.replication_factor=1")
	require.Equal(t, exitDone, code, stderr)

	var log logBuffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	a := &app{http.NoBody, &logBuffer{}, &log}
	go func() {
		ended <- a.run(ctx, []string{"ranker", "--brokers", brokers, "--set", "admin.addr=127.0.0.1:0",
			"--set", "log.format=json", "--set", "ranker.state_dir=" + t.TempDir()})
	}()
	waitReady(t, log.adminAddr(t))
	code, _, stderr = kudos(t, "", "ranker", "reset", "--yes", "--brokers", brokers)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "stop all rankers first")
	cancel()
	select {
	case code := <-ended:
		require.Equal(t, exitDone, code, "%s", &log)
	case <-time.After(30 * time.Second):
		t.Fatalf("kudos ranker does not end; log:\n%s", &log)
	}
	require.Equal(t, 1, strings.Count(log.String(), "rankings are in Kafka only: neither mysql.dsn nor mysql.shards is set"), "%s", &log)

	code, _, stderr = kudos(t, "", "ranker", "reset", "--brokers", brokers)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--yes")
	code, stdout, stderr := kudos(t, "", "ranker", "reset", "--yes", "--brokers", brokers)
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "kudos topics apply")
	code, stdout, stderr = kudos(t, "", "topics", "apply", "--brokers", brokers, "--set", "topics.partitions=2", "--set", "topics.replication_factor=1")
	require.Equal(t, exitDone, code, stderr)
	for _, topic := range []string{"trending-local", "trending-local-table", "trending-table"} {
		require.Contains(t, stdout, "created "+topic+" with")
	}
	require.NotContains(t, stdout, "created trending-exclusions")
	require.NotContains(t, stdout, "created trending with")
}
