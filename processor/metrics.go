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
	events, forwarded, transitions, duplicates, ahead, capped, badRegions prometheus.Counter // of likes
	transactions, updates, applied, rows, applies                         prometheus.Counter

	deadLetters  *prometheus.CounterVec   // by reason
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
		events: counter("events_folded_total", "Records of likes that were classified, whatever the result."),
		forwarded: counter("events_forwarded_total", "Misrouted events that were forwarded to the partition that "+
			"owns them. Above zero: a writer does not use Kafka's default partitioner (murmur2)."),
		transitions: counter("transitions_total", "Events that changed a reaction."),
		duplicates: counter("duplicates_total", "Events that changed no reaction: they repeated the current "+
			"reaction, or arrived after a later event of the same user on the post."),
		ahead: counter("events_ahead_total", "Events whose time was more than 1 s ahead of the log-append time, "+
			"capped ones included. Above zero: a clock is wrong."),
		capped: counter("events_capped_total", "Events whose time was more than 60 s ahead of the log-append time."),
		badRegions: counter("events_bad_region_total",
			"Events whose region is not an ISO 3166 code; they count under ZZ."),
		transactions: counter("fold_transactions_total", "Kafka transactions committed by latest-like-action."),
		updates:      counter("updates_published_total", "Records written to like-updates."),
		applied:      counter("updates_applied_total", "Records of like-updates applied to MySQL."),
		rows:         counter("mysql_rows_total", "Rows of like_count upserted."),
		applies:      counter("mysql_transactions_total", "MySQL transactions committed by like-count."),
		deadLetters: f.NewCounterVec(counterOpts("dead_letters_total",
			"Records of likes that are not valid events and were sent to likes.dlt."), []string{"reason"}),
		failed: f.NewCounterVec(counterOpts("transactions_failed_total",
			"Transactions that failed, by group and outcome: fenced (another process owns the partition), "+
				"unknown (it failed during the commit; reopening the partition finds out the outcome), "+
				"moved (another process moved MySQL's position), aborted."), []string{"group", "outcome"}),
		batchRecords: f.NewHistogramVec(prometheus.HistogramOpts{Namespace: "kudos", Name: "batch_records",
			Help:    "Records per committed batch, by group: under load batches grow, up to processor.max_batch.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 10)}, []string{"group"}), // 1 to 262,144
		foldSeconds: f.NewHistogram(seconds("fold_seconds",
			"Seconds from the start of a batch of likes until all of its records were passed to the Kafka client.")),
		kafkaCommitSeconds: f.NewHistogram(seconds("kafka_commit_seconds",
			"Seconds from the end of the fold until Kafka has committed the batch's transaction.")),
		mysqlCommitSeconds: f.NewHistogramVec(seconds("mysql_commit_seconds",
			"Duration of a transaction in MySQL in seconds, including retries after deadlocks, by shard."),
			[]string{"shard"}),
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

func (m *metrics) foldFailed(err error, committing bool) {
	outcome := outcomeAborted
	if errors.Is(err, kafka.ErrFenced) {
		outcome = outcomeFenced
	} else if committing {
		outcome = outcomeUnknown
	}
	m.failed.WithLabelValues(schema.GroupFold, outcome).Inc()
}

func (m *metrics) applyFailed(err error) {
	outcome := outcomeAborted
	if errors.Is(err, sql.ErrPositionMoved) {
		outcome = outcomeMoved
	} else if _, unknown := errors.AsType[*sql.UnknownOutcomeError](err); unknown {
		outcome = outcomeUnknown
	}
	m.failed.WithLabelValues(schema.GroupApply, outcome).Inc()
}

var shardParkedDesc = prometheus.NewDesc("kudos_mysql_parked_partitions",
	"Assigned partitions of like-updates that are parked, by the shard that has their counts.",
	[]string{"shard", "server"}, nil)

// shardCollector exports which MySQL server partitions wait for: an unavailable server parks only its own partitions.
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
