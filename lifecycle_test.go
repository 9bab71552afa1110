package main

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
