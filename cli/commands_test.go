package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/config"
	"kudos/httpserver/admin"
	"kudos/integration/stack"
	"kudos/integration/testrun"
	"kudos/schema"
)

// TestPlaintextPasswordLogsAWarning: PLAIN without TLS sends the password in the clear.
func TestPlaintextPasswordLogsAWarning(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	cfg := config.Default()
	cfg.Kafka.SASLMechanism, cfg.Kafka.SASLUser, cfg.Kafka.SASLPassword = "PLAIN", "kudos", "hunter2"
	require.NoError(t, checkConnections(&cfg, logger))
	require.Contains(t, log.String(), "kafka.sasl_mechanism is PLAIN and kafka.tls is false")
	require.NotContains(t, log.String(), "hunter2")

	log.Reset()
	cfg.Kafka.TLS = true
	require.NoError(t, checkConnections(&cfg, logger))
	cfg.Kafka.TLS, cfg.Kafka.SASLMechanism = false, "SCRAM-SHA-512"
	require.NoError(t, checkConnections(&cfg, logger))
	require.Empty(t, log.String())
}

// TestWarnsAboutAProducerWithoutAuth: without authentication, others may reach it only if that is set explicitly.
func TestWarnsAboutAProducerWithoutAuth(t *testing.T) {
	for _, c := range []struct {
		addr, auth string
		refused    bool
	}{
		{"127.0.0.1:8080", "", false},
		{"localhost:8080", "", false},
		{"[::1]:8080", "", false},
		{":8080", "", true},
		{"0.0.0.0:8080", "", true},
		{"likes.example.com:8080", "", true},
		{":8080", "none", false},
		{":8080", "gateway", false},
	} {
		flags := map[string]config.Flag{
			"producer.http_addr": {Value: c.addr}, "producer.auth_trusted_cidrs": {Value: "10.0.0.0/8"},
		}
		if c.auth != "" {
			flags["producer.auth"] = config.Flag{Value: c.auth}
		}
		cfg, err := config.Load(config.Sources{Flags: flags})
		require.NoError(t, err)
		if err := CheckAuth(cfg); c.refused {
			require.ErrorContains(t, err, "Set producer.auth to gateway or jwt", "%+v", c)
		} else {
			require.NoError(t, err, "%+v", c)
		}
	}
}

// TestHealth includes servers that listen on all addresses, as in the image.
func TestHealth(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "", "0.0.0.0"} {
		var ready atomic.Pointer[error]
		check := admin.Check{Name: "processor", Ready: func() error {
			if err := ready.Load(); err != nil {
				return *err
			}
			return nil
		}}
		_, port, err := net.SplitHostPort(stack.ReserveForTest(t))
		require.NoError(t, err)
		opts := admin.DefaultOptions()
		opts.Addr = host + ":" + port
		server := admin.New(opts, admin.NewRegistry(), []admin.Check{check}, slog.New(slog.DiscardHandler))
		testrun.Start(t, "the admin server", 10*time.Second, server.Run)
		waitReady(t, "127.0.0.1:"+port)
		stdout, _ := done(t, "health", "--admin-addr", opts.Addr)
		require.Equal(t, "ready\n", stdout)

		parked := errors.New("likes/2 parked: the basket is full (action: empty it)")
		ready.Store(&parked)
		t.Setenv("KUDOS_ADMIN_ADDR", opts.Addr)
		code, stdout, stderr := kudos(t, "", "health")
		require.Equal(t, exitFailed, code)
		require.Empty(t, stdout)
		require.Equal(t, "kudos: not ready\nprocessor: likes/2 parked: the basket is full (action: empty it)\n", stderr)
	}
}

func TestHealthWithoutAnAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	require.NoError(t, err)
	defer silent.Close()
	hello := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }
	other := httptest.NewServer(http.HandlerFunc(hello))
	defer other.Close()

	for _, c := range []struct{ addr, timeout, says string }{
		{silent.Addr().String(), "200ms", "no report from the admin server (admin.addr)"},
		{stack.ReserveForTest(t), "20s", "connection refused"},
		{other.Listener.Addr().String(), "20s", `answered 200 OK, which is not a kudos readiness report: "hello"`},
		{"127.0.0.1:0", "20s", "any free port"},
	} {
		began := time.Now()
		fails(t, exitFailed, []string{"health", "--set", "admin.addr=" + c.addr, "--timeout", c.timeout}, c.says)
		require.Less(t, time.Since(began), 10*time.Second)
	}
}

// TestWhere: Kafka's partition counts decide (9 for the rankings, another topic), whatever topics.partitions says.
func TestWhere(t *testing.T) {
	brokers := startKafka(t, kfake.SeedTopics(8, schema.TopicLikes), kfake.SeedTopics(9, schema.TopicTrending))
	const server = "me:hunter2@tcp(a:3306)/kudos"
	t.Setenv("KUDOS_MYSQL_SHARDS", server+",me:hunter2@tcp(b:3306)/kudos,me:hunter2@tcp(c:3306)/kudos")
	where := func(args ...string) string {
		stdout, stderr := done(t, append(args, "--brokers", brokers, "--set", "topics.partitions=5")...)
		require.Empty(t, stderr)
		return stdout
	}
	rows := `42 +4 +1 +b:3306/kudos\n43 +2 +2 +c:3306/kudos\nDE/1h +7 +1 +b:3306/kudos\n$`
	require.Regexp(t, `^KEY +PARTITION +SHARD +SERVER\n`+rows, where("where", "42", "0043", "DE/1h"))
	require.JSONEq(t, `[{"key": "42", "partition": 4, "shard": 1, "server": "b:3306/kudos"}]`,
		where("where", "42", "--output", "json"))

	t.Setenv("KUDOS_MYSQL_SHARDS", "")
	t.Setenv("KUDOS_MYSQL_DSN", server)
	require.Regexp(t, `\n42 +4 +0 +a:3306/kudos\n`, where("where", "42"))
}
