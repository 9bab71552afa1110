package ranker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
)

const (
	// mysqlMaxBatch is how many rankings one MySQL transaction takes at most: each has a
	// row for each of its posts.
	mysqlMaxBatch = 500
	// positionCheckInterval is checkEvery.
	positionCheckInterval = 5 * time.Second
)

// mysqlWriter is the worker of trending-mysql for one partition: it brings the newest
// ranking of each key to MySQL. Rankings are absolute: what is brought twice does no
// harm, and those between need not be brought at all. The compare-and-swap of the position
// keeps a process thought dead from putting older ones back.
type mysqlWriter struct {
	partition int32
	kafka     kafka.Clients
	db        *sql.Store
	metrics   *mysqlMetrics
	log       *slog.Logger
	// checkEvery is how often an idle partition compares its position with MySQL's: a
	// failover may have moved it back.
	checkEvery time.Duration

	source sql.Source
	// position is as it is in MySQL.
	position sql.Position
	checked  time.Time
}

func newMySQLWriter(a stream.Assignment, kafka kafka.Clients, db *sql.Store, metrics *mysqlMetrics, log *slog.Logger) stream.Worker {
	return &mysqlWriter{
		partition: a.Partition, kafka: kafka, db: db, metrics: metrics, checkEvery: positionCheckInterval,
		log: log.With("topic", a.Topic, "partition", a.Partition),
	}
}

// mysqlMetrics count what is committed.
type mysqlMetrics struct{ rankings, transactions prometheus.Counter }

func newMySQLMetrics(reg prometheus.Registerer) *mysqlMetrics {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(reg).NewCounter(prometheus.CounterOpts{Namespace: "kudos", Name: name, Help: help})
	}
	return &mysqlMetrics{
		rankings:     counter("ranker_mysql_rankings_total", "Rankings brought to MySQL; those that a newer one had replaced meanwhile are not."),
		transactions: counter("ranker_mysql_transactions_total", "MySQL transactions committed by trending-mysql."),
	}
}

// Fence has nothing to do: see mysqlWriter.
func (w *mysqlWriter) Fence(context.Context) error { return nil }

// Open reads the position from MySQL and holds it against the log.
func (w *mysqlWriter) Open(ctx context.Context) (kafka.Position, error) {
	cl, err := w.kafka.Connect(w.log)
	if err != nil {
		return kafka.Position{}, err
	}
	defer cl.Close()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicTrending)
	if err != nil {
		return kafka.Position{}, err
	}
	t := topics.ByName[schema.TopicTrending]
	w.source = sql.Source{Topic: schema.TopicTrending, TopicID: t.ID, Partitions: t.Partitions}
	w.position, err = w.db.RankingPosition(ctx, w.source, w.partition)
	if err != nil {
		return kafka.Position{}, openAgain(err)
	}
	w.checked = time.Now()
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicTrending, w.partition)
	if err != nil {
		return kafka.Position{}, err
	}
	if w.position.NextOffset <= start {
		// Retention may have deleted what is between: where a key has a later ranking,
		// nothing is lost by that. Without the leader epoch, which would be taken for one
		// that was cut off.
		return kafka.Position{Offset: start, Epoch: -1}, nil
	}
	cut, err := w.logWasCut(ctx, cl, end)
	if err != nil {
		return kafka.Position{}, err
	}
	if cut {
		if err := w.startAnew(ctx, start); err != nil {
			return kafka.Position{}, err
		}
	}
	return kafka.Position{Offset: w.position.NextOffset, Epoch: w.position.LeaderEpoch}, nil
}

// logWasCut tells whether the log, of which this is the end, has lost what was read of
// it: by an unclean election, after which other records come to have the same offsets.
func (w *mysqlWriter) logWasCut(ctx context.Context, cl kmsg.Requestor, end int64) (bool, error) {
	if w.position.NextOffset > end || w.position.LeaderEpoch < 0 {
		return w.position.NextOffset > end, nil
	}
	// Below zero: the leader does not know the epoch, which alone proves nothing.
	read, err := kafka.EpochEnd(ctx, cl, schema.TopicTrending, w.partition, w.position.LeaderEpoch)
	return read >= 0 && read < w.position.NextOffset, err
}

// startAnew moves the position in MySQL back to the start of the log.
func (w *mysqlWriter) startAnew(ctx context.Context, start int64) error {
	w.log.Warn("MySQL has rankings that the log has lost: all that it holds is brought once more", "position", w.position.NextOffset, "start", start)
	to := sql.Position{NextOffset: start, LeaderEpoch: -1}
	if err := w.db.ReplaceRankings(ctx, w.source, w.partition, w.position, to, nil); err != nil {
		return openAgain(err)
	}
	w.position = to
	return nil
}

// openAgain has the position read again where that is what helps, and parks where nothing does.
func openAgain(err error) error {
	var other *sql.ShardError
	switch {
	case sql.PositionInDoubt(err):
		return stream.Reopen(err.Error())
	case errors.As(err, &other):
		return stream.Park(stream.CauseMySQL, sql.ShardRemedy, "%w", err)
	}
	return err
}

// Process is the one way of a ranking: collapse to the newest of each key, replace with
// compare-and-swap. A record that cannot be read parks the partition when all before it
// is done, so that a person can pass it over, and nothing else.
func (w *mysqlWriter) Process(ctx context.Context, b *stream.Batch) error {
	if len(b.Records) == 0 {
		return w.checkIdle(ctx)
	}
	records, next := b.Records, b.Next
	rankings, bad, why := newestRankings(records)
	var poison error
	for why != nil {
		poison = unreadable(records[bad], why)
		next = kafka.Position{Offset: records[bad].Offset, Epoch: w.position.LeaderEpoch}
		records = records[:bad]
		if bad > 0 {
			next.Epoch = records[bad-1].LeaderEpoch
		}
		rankings, bad, why = newestRankings(records)
	}
	if len(records) > 0 {
		if err := w.replace(ctx, next, rankings); err != nil {
			return err
		}
	}
	return poison
}

func (w *mysqlWriter) replace(ctx context.Context, next kafka.Position, rankings []sql.Ranking) error {
	to := sql.Position{NextOffset: next.Offset, LeaderEpoch: next.Epoch}
	if err := w.db.ReplaceRankings(ctx, w.source, w.partition, w.position, to, rankings); err != nil {
		return openAgain(err)
	}
	w.position, w.checked = to, time.Now()
	w.metrics.rankings.Add(float64(len(rankings)))
	w.metrics.transactions.Inc()
	return nil
}

// newestRankings reads the newest record of each key, and no other. If one cannot be
// read, it says which, and why.
func newestRankings(records []*kgo.Record) (rankings []sql.Ranking, bad int, why error) {
	seen := map[string]bool{}
	for i, rec := range slices.Backward(records) {
		if seen[string(rec.Key)] {
			continue
		}
		seen[string(rec.Key)] = true
		r, err := readRanking(rec)
		if err != nil {
			return nil, i, err
		}
		rankings = append(rankings, r)
	}
	return rankings, 0, nil
}

func readRanking(rec *kgo.Record) (sql.Ranking, error) {
	r, err := schema.DecodeRanking(rec.Value)
	if err != nil {
		return sql.Ranking{}, err
	}
	if key := schema.RankingKey(r.Region, r.Window); key != string(rec.Key) {
		return sql.Ranking{}, fmt.Errorf("the ranking %s has the key %q", key, rec.Key)
	}
	row := sql.Ranking{Region: r.Region, Window: r.Window, AsOf: r.Watermark.Time(), Posts: make([]sql.RankedPost, len(r.Posts))}
	for i, p := range r.Posts {
		if p.Rank != i+1 {
			return sql.Ranking{}, fmt.Errorf("post %d has rank %d in the place of %d", p.PostID, p.Rank, i+1)
		}
		row.Posts[i] = sql.RankedPost{PostID: p.PostID, Score: p.Score, Likes: p.Likes}
	}
	return row, row.Validate()
}

// unreadable parks at a record.
func unreadable(rec *kgo.Record, why error) error {
	return stream.Park(stream.CauseRecord, fmt.Sprintf("run the version of kudos that wrote it, or a later one; if something else did, keep it from writing there and go on behind the record: "+
		"UPDATE trending_position SET next_offset = %d WHERE topic = '%s' AND partition_id = %d", rec.Offset+1, rec.Topic, rec.Partition),
		"%s/%d offset %d: %w", rec.Topic, rec.Partition, rec.Offset, why)
}

// checkIdle compares positions while nothing arrives: a failover of MySQL that lost
// commits has moved its position back, and no compare-and-swap would tell.
func (w *mysqlWriter) checkIdle(ctx context.Context) error {
	if time.Since(w.checked) < w.checkEvery {
		return nil
	}
	have, err := w.db.RankingPosition(ctx, w.source, w.partition)
	if err != nil {
		return openAgain(err)
	}
	w.checked = time.Now()
	if have != w.position {
		return stream.Reopen(fmt.Sprintf("MySQL stands at offset %d of %s/%d, not at %d", have.NextOffset, schema.TopicTrending, w.partition, w.position.NextOffset))
	}
	return nil
}

// Close has nothing to give up.
func (w *mysqlWriter) Close() {}
