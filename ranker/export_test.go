package ranker

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
)

// The tests that use this file are outside of the package: package dev, whose servers they start, imports this one.

// MySQLMaxBatch is how many records a worker of trending-mysql takes at once.
const MySQLMaxBatch = mysqlMaxBatch

// NewMySQLWriters returns what makes the workers of trending-mysql. They compare their position with MySQL's every
// checkEvery while idle.
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
