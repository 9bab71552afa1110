package processor

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
)

// metrics of the role. Counters count committed work: work that was repeated after a failure counts once.
type metrics struct {
	events       prometheus.Counter
	deadLetters  *prometheus.CounterVec // by reason
	forwarded    prometheus.Counter
	transitions  prometheus.Counter
	duplicates   prometheus.Counter
	capped       prometheus.Counter
	badRegions   prometheus.Counter
	transactions prometheus.Counter
	updates      prometheus.Counter
	applied      prometheus.Counter
	rows         prometheus.Counter
	applies      prometheus.Counter
	failed       *prometheus.CounterVec   // by group and outcome
	batchRecords *prometheus.HistogramVec // by group

	foldSeconds, kafkaCommitSeconds prometheus.Histogram
	mysqlCommitSeconds              *prometheus.HistogramVec // by shard
}

// Outcomes of a failed transaction.
const (
	outcomeFenced  = "fenced"  // another process owns the partition
	outcomeUnknown = "unknown" // it failed during the commit: reopening finds out
	outcomeMoved   = "moved"   // another process moved MySQL's position
	outcomeAborted = "aborted"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	counterOpts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "kudos", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter { return f.NewCounter(counterOpts(name, help)) }
	seconds := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: "kudos", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)} // 1 ms to 16 s
	}
	m := &metrics{
		events: counter("events_folded_total", "Records of likes that were judged, whatever came of them."),
		forwarded: counter("events_forwarded_total", "Events found in the wrong partition and forwarded to the right "+
			"one. Above zero: a writer does not use Kafka's default partitioner (murmur2)."),
		transitions: counter("transitions_total", "Events that changed somebody's reaction."),
		duplicates: counter("duplicates_total", "Events that changed nobody's reaction: they said what was known "+
			"already, or came after a later one of the same user."),
		capped: counter("events_capped_total",
			"Events whose time was more than 60 s ahead of the log-append time."),
		badRegions: counter("events_bad_region_total",
			"Events whose region is no ISO 3166 code; they count under ZZ."),
		transactions: counter("fold_transactions_total", "Kafka transactions committed by latest-like-action."),
		updates:      counter("updates_published_total", "Records written to like-updates."),
		applied:      counter("updates_applied_total", "Records of like-updates applied to MySQL."),
		rows:         counter("mysql_rows_total", "Rows of like_count upserted."),
		applies:      counter("mysql_transactions_total", "MySQL transactions committed by like-count."),
		deadLetters: f.NewCounterVec(counterOpts("dead_letters_total",
			"Records of likes that can never be events, moved to likes.dlt."), []string{"reason"}),
		failed: f.NewCounterVec(counterOpts("transactions_failed_total",
			"Transactions that failed, by group and by how: fenced (another process owns the partition), "+
				"unknown (it failed while it was being committed; the outcome is found out by opening again), "+
				"moved (MySQL's position is another's), aborted."), []string{"group", "outcome"}),
		batchRecords: f.NewHistogramVec(prometheus.HistogramOpts{Namespace: "kudos", Name: "batch_records",
			Help: "Records in a batch that was committed, by group: " +
				"under load batches grow, up to processor.max_batch.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 10)}, []string{"group"}), // 1 to 262,144
		foldSeconds: f.NewHistogram(seconds("fold_seconds",
			"Seconds from the beginning of a batch of likes until all of its records are with the Kafka client.")),
		kafkaCommitSeconds: f.NewHistogram(seconds("kafka_commit_seconds",
			"Seconds from then until Kafka has committed the batch's transaction.")),
		mysqlCommitSeconds: f.NewHistogramVec(seconds("mysql_commit_seconds",
			"Seconds of a transaction in MySQL, its repetitions after deadlocks included, "+
				"by the shard that it was in."), []string{"shard"}),
	}
	for _, outcome := range []string{outcomeUnknown, outcomeAborted} {
		m.failed.WithLabelValues(schema.GroupFold, outcome)
		m.failed.WithLabelValues(schema.GroupApply, outcome)
	}
	m.failed.WithLabelValues(schema.GroupFold, outcomeFenced)
	m.failed.WithLabelValues(schema.GroupApply, outcomeMoved)
	for _, reason := range schema.PoisonReasons {
		m.deadLetters.WithLabelValues(string(reason))
	}
	return m
}

// foldFailed counts a failed Kafka transaction.
func (m *metrics) foldFailed(err error, committing bool) {
	outcome := outcomeAborted
	switch {
	case errors.Is(err, kafka.ErrFenced):
		outcome = outcomeFenced
	case committing:
		outcome = outcomeUnknown
	}
	m.failed.WithLabelValues(schema.GroupFold, outcome).Inc()
}

// applyFailed counts a failed MySQL transaction.
func (m *metrics) applyFailed(err error) {
	outcome := outcomeAborted
	var unknown *sql.UnknownOutcomeError
	switch {
	case errors.Is(err, sql.ErrPositionMoved):
		outcome = outcomeMoved
	case errors.As(err, &unknown):
		outcome = outcomeUnknown
	}
	m.failed.WithLabelValues(schema.GroupApply, outcome).Inc()
}

var shardParkedDesc = prometheus.NewDesc("kudos_mysql_parked_partitions",
	"Assigned partitions of like-updates that are parked, by the shard that has their counts.",
	[]string{"shard", "server"}, nil)

// shardCollector exports which MySQL server partitions wait for: an unavailable server parks its own partitions and no
// others.
type shardCollector struct {
	apply *stream.Processor
	db    *sql.Shards
}

func (c shardCollector) Describe(ch chan<- *prometheus.Desc) { ch <- shardParkedDesc }

func (c shardCollector) Collect(ch chan<- prometheus.Metric) {
	parked := map[*sql.Store]int{}
	statuses, _ := c.apply.Status() // after an error there are none: nothing is assigned
	for _, s := range statuses {
		if s.State == stream.StateParked {
			parked[c.db.Of(s.Partition)]++
		}
	}
	for _, store := range c.db.All() { // all of them: an alert needs a 0 to resolve
		ch <- prometheus.MustNewConstMetric(shardParkedDesc, prometheus.GaugeValue, float64(parked[store]),
			store.Shard().Label(), store.Server())
	}
}
