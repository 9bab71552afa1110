package ranker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
)

const (
	mysqlMaxBatch         = 500             // rankings in one MySQL transaction; each has one row per post
	positionCheckInterval = 5 * time.Second // default of checkEvery
)

// mysqlWriter is the worker of trending-mysql for one partition. It writes the latest ranking of each key to MySQL.
// Rankings are absolute values: writing one twice does no harm, and outdated ones are skipped. The compare-and-swap of
// the position keeps a zombie from writing older ones.
type mysqlWriter struct {
	partition  int32
	kafka      kafka.Clients
	db         *sql.Store
	metrics    *mysqlMetrics
	log        *slog.Logger
	checkEvery time.Duration // between checks of an idle partition's position in MySQL, which a failover may move back

	source   sql.Source
	position sql.Position // in MySQL
	checked  time.Time
}

func newMySQLWriter(a stream.Assignment, kafka kafka.Clients, db *sql.Store, metrics *mysqlMetrics, log *slog.Logger,
) *mysqlWriter {
	return &mysqlWriter{partition: a.Partition, kafka: kafka, db: db, metrics: metrics,
		checkEvery: positionCheckInterval, log: log.With("topic", a.Topic, "partition", a.Partition)}
}

// Fence does nothing: the compare-and-swap fences.
func (w *mysqlWriter) Fence(context.Context) error { return nil }

// Open reads the position from MySQL and checks it against the log.
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
		return kafka.Position{}, policy(err)
	}
	w.checked = time.Now()
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicTrending, w.partition)
	if err != nil {
		return kafka.Position{}, err
	}
	if w.position.NextOffset <= start {
		// Retention may have deleted the records in between; no ranking is lost if its key has a later one. No leader
		// epoch, which would make this look like a truncation.
		return kafka.Position{Offset: start, Epoch: -1}, nil
	}
	truncated, err := w.truncated(ctx, cl, end)
	if err != nil {
		return kafka.Position{}, err
	}
	if truncated {
		w.log.Warn("MySQL has rankings that the topic lost: writing all rankings of the topic again",
			"position", w.position.NextOffset, "start", start)
		if err := w.replace(ctx, kafka.Position{Offset: start, Epoch: -1}, nil); err != nil {
			return kafka.Position{}, err
		}
	}
	return kafka.Position{Offset: w.position.NextOffset, Epoch: w.position.LeaderEpoch}, nil
}

// truncated reports whether the log lost applied records, whose offsets an unclean leader election reuses for others.
func (w *mysqlWriter) truncated(ctx context.Context, cl kmsg.Requestor, end int64) (bool, error) {
	if w.position.NextOffset > end || w.position.LeaderEpoch < 0 {
		return w.position.NextOffset > end, nil
	}
	// Negative if the leader does not know the epoch, which proves nothing.
	read, err := kafka.EpochEnd(ctx, cl, schema.TopicTrending, w.partition, w.position.LeaderEpoch)
	return read >= 0 && read < w.position.NextOffset, err
}

// policy reopens the partition if the position has to be read again, and parks it if retrying cannot help.
func policy(err error) error {
	if sql.PositionUncertain(err) {
		return stream.Reopen(err.Error())
	}
	if _, other := errors.AsType[*sql.ShardError](err); other {
		return stream.Park(stream.CauseMySQL, sql.ShardAction, "%w", err)
	}
	return err
}

// Process writes the latest ranking of each key, with compare-and-swap. An unreadable record parks the partition after
// all records before it are written, so that an operator has to skip only that one.
func (w *mysqlWriter) Process(ctx context.Context, b *stream.Batch) error {
	if len(b.Records) == 0 {
		return w.checkIdle(ctx)
	}
	rankings, good, unreadable := newestRankings(b.Records)
	next := b.Next
	if unreadable != nil {
		next = kafka.Position{Offset: b.Records[good].Offset, Epoch: w.position.LeaderEpoch}
		if good > 0 {
			next.Epoch = b.Records[good-1].LeaderEpoch
		}
	}
	if good > 0 {
		if err := w.replace(ctx, next, rankings); err != nil {
			return err
		}
		w.metrics.rankings.Add(float64(len(rankings)))
		w.metrics.transactions.Inc()
	}
	return unreadable
}

// replace moves the position in MySQL and replaces the rankings in the same transaction.
func (w *mysqlWriter) replace(ctx context.Context, next kafka.Position, rankings []sql.Ranking) error {
	to := sql.Position{NextOffset: next.Offset, LeaderEpoch: next.Epoch}
	if err := w.db.ReplaceRankings(ctx, w.source, w.partition, w.position, to, rankings); err != nil {
		return policy(err)
	}
	w.position, w.checked = to, time.Now()
	return nil
}

// newestRankings decodes the last record of each key; earlier ones may be unreadable. At any other unreadable record it
// returns the error that parks the partition, and handles only the first good records, those before it.
func newestRankings(records []*kgo.Record) (rankings []sql.Ranking, good int, unreadable error) {
	seen := map[string]bool{}
	good = len(records)
	for i, rec := range slices.Backward(records) {
		if seen[string(rec.Key)] {
			continue
		}
		r, err := readRanking(rec)
		if err != nil {
			rankings, good, unreadable = nil, i, unreadableAt(rec, err)
			clear(seen)
			continue
		}
		seen[string(rec.Key)] = true
		rankings = append(rankings, r)
	}
	return rankings, good, unreadable
}

func readRanking(rec *kgo.Record) (sql.Ranking, error) {
	r, err := schema.DecodeRanking(rec.Value)
	if err != nil {
		return sql.Ranking{}, err
	}
	if key := schema.RankingKey(r.Region, r.Window); key != string(rec.Key) {
		return sql.Ranking{}, fmt.Errorf("the ranking %s has the key %q", key, rec.Key)
	}
	row := sql.Ranking{Region: r.Region, Window: r.Window, AsOf: r.Watermark.Time(),
		Posts: make([]sql.RankedPost, len(r.Posts))}
	for i, p := range r.Posts {
		if p.Rank != i+1 {
			return sql.Ranking{}, fmt.Errorf("post %d has rank %d where %d was expected", p.PostID, p.Rank, i+1)
		}
		row.Posts[i] = sql.RankedPost{PostID: p.PostID, Score: p.Score, Likes: p.Likes}
	}
	return row, row.Validate()
}

func unreadableAt(rec *kgo.Record, why error) error {
	action := fmt.Sprintf(actionUpgrade+"; if something else wrote it, stop that writer and skip the record: "+
		"UPDATE trending_position SET next_offset = %d WHERE topic = '%s' AND partition_id = %d",
		rec.Offset+1, rec.Topic, rec.Partition)
	return stream.Park(stream.CauseRecord, action, "%s/%d offset %d: %w", rec.Topic, rec.Partition, rec.Offset, why)
}

// checkIdle compares positions while no records arrive: then no compare-and-swap notices a failover that lost commits.
func (w *mysqlWriter) checkIdle(ctx context.Context) error {
	if time.Since(w.checked) < w.checkEvery {
		return nil
	}
	have, err := w.db.RankingPosition(ctx, w.source, w.partition)
	if err != nil {
		return policy(err)
	}
	w.checked = time.Now()
	if have != w.position {
		return stream.Reopen(fmt.Sprintf("MySQL is at offset %d of %s/%d, not at %d",
			have.NextOffset, schema.TopicTrending, w.partition, w.position.NextOffset))
	}
	return nil
}

// Close has nothing to release.
func (w *mysqlWriter) Close() {}
