package sql

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Collectors are Prometheus collectors of the connections (go_sql_…) and of what is repeated.
func (s *Store) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewDBStatsCollector(s.db.DB, s.Server()),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "kudos", Name: "mysql_conflicts_total",
			ConstLabels: prometheus.Labels{"shard": s.Shard().Label()},
			Help:        "Transactions that MySQL ended for a deadlock or a lock wait timeout; they are done again (mysql.retries).",
		}, func() float64 { return float64(s.conflicts.Load()) }),
	}
}
