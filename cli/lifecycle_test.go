package cli

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/config"
)

// TestAPasswordInTheOpenIsWarnedOf: PLAIN is the password itself, for whoever listens.
func TestAPasswordInTheOpenIsWarnedOf(t *testing.T) {
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

// TestAnOpenProducerIsMeant: where others reach it, it starts without asking who they are only if somebody said so.
func TestAnOpenProducerIsMeant(t *testing.T) {
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
		flags := map[string]config.Flag{"producer.http_addr": {Value: c.addr}, "producer.auth_trusted_cidrs": {Value: "10.0.0.0/8"}}
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
	code, _, stderr := kudos(t, "", "producer", "--set", "producer.http_addr=:0")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "producer.http_addr is :0, which others reach")
}
