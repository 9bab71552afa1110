package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
)

// countWorker applies a partition's updates to MySQL. It needs no fencing: the log is immutable, so every process
// applies the same deltas for a range, and the compare-and-swap of the position admits only one.
type countWorker struct {
	*Workers
	partition int32
	db        *sql.Store

	source   sql.Source
	position sql.Position
	checked  time.Time
	update   schema.Update
	counts   []sql.CountDelta
	hours    []sql.HourDelta
}

// Fence does nothing: see countWorker.
func (w *countWorker) Fence(context.Context) error { return nil }

// Open reads the position from MySQL and checks it against the log.
func (w *countWorker) Open(ctx context.Context) (kafka.Position, error) {
	cl, err := w.kafka.Connect(w.log)
	if err != nil {
		return kafka.Position{}, err
	}
	defer cl.Close()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicUpdates)
	if err != nil {
		return kafka.Position{}, err
	}
	t := topics.ByName[schema.TopicUpdates]
	w.source = sql.Source{Topic: schema.TopicUpdates, TopicID: t.ID, Partitions: t.Partitions}
	w.position, err = w.db.Position(ctx, w.source, w.partition)
	if err != nil {
		return kafka.Position{}, parkMySQL(err)
	}
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicUpdates, w.partition)
	if err != nil {
		return kafka.Position{}, err
	}
	if w.position.NextOffset < start || w.position.NextOffset > end {
		return kafka.Position{}, stream.Park(stream.CauseMySQL, table.ActionRebuild,
			"MySQL is at offset %d of like-updates/%d, which holds %d to %d",
			w.position.NextOffset, w.partition, start, end)
	}
	w.checked = time.Now()
	return kafka.Position{Offset: w.position.NextOffset, Epoch: w.position.LeaderEpoch}, nil
}

// parkMySQL turns MySQL errors that no retry fixes into ParkErrors, or asks for a reopen to reread the position.
func parkMySQL(err error) error {
	var changed *sql.SourceChangedError
	var unknown *sql.UnknownOutcomeError
	switch {
	case errors.As(err, &changed) && changed.Stored.TopicID == changed.Given.TopicID &&
		changed.Stored.Partitions < changed.Given.Partitions:
		return stream.Park(stream.CauseTopics, table.ActionRepartition, "%w", err)
	case errors.As(err, &changed), errors.Is(err, sql.ErrPositionMissing):
		return stream.Park(stream.CauseMySQL, table.ActionRebuild, "%w", err)
	case errors.As(err, new(*sql.ShardError)):
		return stream.Park(stream.CauseMySQL, sql.ShardAction, "%w", err)
	case errors.Is(err, sql.ErrPositionMoved):
		return stream.Reopen("the position in MySQL has moved")
	case errors.As(err, &unknown):
		return stream.Reopen(unknown.Error())
	}
	return err
}

// Process is the only path of an update: collapse, apply with compare-and-swap.
func (w *countWorker) Process(ctx context.Context, b *stream.Batch) error {
	if len(b.Records) == 0 {
		return w.checkIdle(ctx)
	}
	to, err := w.collapse(b.Records)
	if err != nil {
		return err
	}
	to.NextOffset, to.LeaderEpoch = b.Next.Offset, b.Next.Epoch
	began := time.Now()
	spans := tracing.Follow(b.Records, "apply", began)
	err = w.db.Apply(ctx, w.source, w.partition, w.position, to, w.counts, w.hours)
	tracing.End(spans, err)
	if err != nil {
		w.metrics.applyFailed(err)
		return parkMySQL(err)
	}
	w.metrics.mysqlCommitSeconds.WithLabelValues(w.db.Shard().Label()).Observe(time.Since(began).Seconds())
	w.metrics.batchRecords.WithLabelValues(schema.GroupApply).Observe(float64(len(b.Records)))
	w.position, w.checked = to, time.Now()
	w.metrics.applied.Add(float64(len(b.Records)))
	w.metrics.rows.Add(float64(len(w.counts)))
	w.metrics.applies.Inc()
	return nil
}

// collapse sums the updates to one net delta per post and one per hour and region, and drops those that are zero. It
// returns the position after the updates as far as they determine it: without the offset.
func (w *countWorker) collapse(records []*kgo.Record) (sql.Position, error) {
	type hourKey struct {
		hour   int64
		region schema.Region
	}
	counts, hours := map[uint64]schema.Counts{}, map[hourKey]schema.Counts{}
	seq, u := w.position.NextSeq, &w.update
	for _, rec := range records {
		if err := schema.DecodeUpdate(rec.Value, u); err != nil {
			return sql.Position{}, stream.Park(stream.CauseRecord, "run the version that wrote it, or a later one",
				"like-updates/%d offset %d: %w", w.partition, rec.Offset, err)
		}
		if u.Seq != seq {
			return sql.Position{}, stream.Park(stream.CauseLoss, table.ActionRebuild,
				"like-updates/%d offset %d has seq %d where %d was expected: records are missing (compacted) "+
					"or repeated (the log was truncated)", w.partition, rec.Offset, u.Seq, seq)
		}
		seq++
		if string(rec.Key) == schema.ProgressKey {
			continue
		}
		post, err := schema.ParsePostKey(rec.Key)
		if err != nil {
			return sql.Position{}, stream.Park(stream.CauseRecord, "find out who else writes to like-updates",
				"like-updates/%d offset %d: %w", w.partition, rec.Offset, err)
		}
		if u.Moved && w.db.Shard().Has(u.Other) {
			continue // no reaction has changed, and the rows stay in this database
		}
		sum := counts[post]
		for _, d := range u.Deltas {
			net := schema.Counts{Likes: d.Likes, Dislikes: d.Dislikes}
			key := hourKey{d.Minute / 60, d.Region}
			sum, hours[key] = sum.Plus(net), hours[key].Plus(net)
		}
		counts[post] = sum
	}
	w.counts, w.hours = w.counts[:0], w.hours[:0]
	for post, net := range counts {
		if net != (schema.Counts{}) {
			w.counts = append(w.counts, sql.CountDelta{PostID: post, Likes: net.Likes, Dislikes: net.Dislikes})
		}
	}
	for key, net := range hours {
		if net != (schema.Counts{}) {
			w.hours = append(w.hours, sql.HourDelta{Hour: key.hour, Region: key.region.String(),
				Likes: net.Likes, Dislikes: net.Dislikes})
		}
	}
	return sql.Position{NextSeq: seq}, nil
}

// checkIdle compares positions while nothing arrives: no compare-and-swap detects that a failover moved MySQL's back.
func (w *countWorker) checkIdle(ctx context.Context) error {
	if time.Since(w.checked) < w.opts.PositionCheckInterval {
		return nil
	}
	have, err := w.db.PeekPosition(ctx, w.source, w.partition)
	if errors.Is(err, sql.ErrPositionMissing) {
		// The lost commits may include the very first: Open distinguishes that from damage.
		return stream.Reopen("MySQL has no position any more")
	}
	if err != nil {
		return parkMySQL(err)
	}
	w.checked = time.Now()
	if have != w.position {
		return stream.Reopen(fmt.Sprintf("MySQL is at offset %d of like-updates/%d, not at %d",
			have.NextOffset, w.partition, w.position.NextOffset))
	}
	return nil
}

// Close has nothing to release.
func (w *countWorker) Close() {}
