package ranker

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
)

// The tests using this file are in an external package, since package dev, whose servers they start, imports this one.

// MySQLMaxBatch is the batch size of the workers of trending-mysql.
const MySQLMaxBatch = mysqlMaxBatch

// NewMySQLWriters returns a constructor of trending-mysql workers, which check idle positions every checkEvery.
func NewMySQLWriters(
	kafka kafka.Clients, db *sql.Shards, reg prometheus.Registerer, log *slog.Logger, checkEvery time.Duration,
) func(stream.Assignment) stream.Worker {
	metrics := newMySQLMetrics(reg)
	return func(a stream.Assignment) stream.Worker {
		w := newMySQLWriter(a, kafka, db.Of(a.Partition), metrics, log)
		w.checkEvery = checkEvery
		return w
	}
}
