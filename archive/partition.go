package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// partition is the stream.Worker that archives one partition.
type partition struct {
	archive *Archive
	id      identity // of like-updates
	number  int32
	log     *slog.Logger
	opening func(next, end int64) // reports the progress of findBegin

	cl     *kgo.Client // nil unless open
	writer *writer     // nil unless open, and after a failed Process
}

func newPartition(a *Archive, of stream.Assignment) *partition {
	return &partition{archive: a, number: of.Partition, opening: of.Opening,
		id: identityOf(of.Log.ClusterID, of.Log.TopicID, of.Partitions), log: a.log.With("partition", of.Partition)}
}

// Fence does nothing: other writers are excluded by the Store.
func (p *partition) Fence(context.Context) error { return nil }

// Open resumes at the partition's position.
func (p *partition) Open(ctx context.Context) (at kafka.Position, err error) {
	if err := p.archive.contents.belongTo(p.id); err != nil {
		return at, err
	}
	if p.cl, err = p.archive.kafka.NewClient(p.log); err != nil {
		return at, err
	}
	if p.writer, err = openWriter(p.archive.contents, p.archive.opts, p.number); err != nil {
		return at, err
	}
	p.writer.finished = p.finished
	err = p.findPosition(ctx)
	return kafka.Position{Offset: p.writer.next, Epoch: -1}, err
}

// Process archives a batch. If a record of it fails, the file still gets the rows before that record.
func (p *partition) Process(_ context.Context, b *stream.Batch) error {
	now := time.Now()
	err := p.writer.take(b.Records, b.Reached.Offset, now)
	if err == nil && p.writer.due(now) {
		err = p.writer.commit()
	}
	if err != nil {
		err = p.leave(p.writer, err)
		p.writer = nil
	}
	return err
}

// Close finishes the open file. It clears an earlier Close's error: what that did not finish is read from Kafka again.
func (p *partition) Close() {
	p.archive.left.Delete(p.number)
	if p.writer != nil {
		if err := p.leave(p.writer, nil); err != nil {
			p.log.Warn("finishing the open file failed", "error", err)
			p.archive.left.Store(p.number, err)
		}
		p.writer = nil
	}
	if p.cl != nil {
		p.cl.Close()
		p.cl = nil
	}
}

// findPosition finds where the archive begins, or checks that the log still has the next offset.
func (p *partition) findPosition(ctx context.Context) error {
	topics, err := kafka.LookUpTopics(ctx, p.cl, schema.TopicUpdates)
	if err != nil {
		return err
	}
	// If partitions were added, the follower soon reopens all of them.
	if is := updatesOf(topics); is != p.id && !p.id.grewTo(is) {
		return anotherLog(p.archive.contents.String(), p.id, is)
	}
	w := p.writer
	if !w.begun {
		begin, virgin, err := p.findBegin(ctx)
		if err != nil {
			return err
		}
		p.log.Info("starting here: earlier updates are missing or do not exist",
			"offset", begin.NextOffset, "seq", begin.NextSeq)
		return w.begin(begin, virgin)
	}
	start, end, err := kafka.Bounds(ctx, p.cl, schema.TopicUpdates, p.number)
	switch {
	case err != nil:
		return err
	case w.next < start:
		return stream.Park(stream.CauseLoss, elsewhere,
			"%s/%d starts at offset %d, but is archived only to %d: the updates in between are lost",
			schema.TopicUpdates, p.number, start, w.next)
	case w.next > end:
		return stream.Park(stream.CauseLoss, elsewhere,
			"%s/%d ends at offset %d, but is archived to %d: the log was truncated or replaced",
			schema.TopicUpdates, p.number, end, w.next)
	}
	return nil
}

// findBegin returns the position from which the log has every update: after the last gap in seq, which compaction
// leaves in data older than 7 days. It is the position of the first update there, or of the next one to come. virgin
// means that the partition never had an update.
func (p *partition) findBegin(ctx context.Context) (begin position, virgin bool, err error) {
	start, end, err := kafka.Bounds(ctx, p.cl, schema.TopicUpdates, p.number)
	if err != nil {
		return begin, false, err
	}
	begin.NextOffset = start
	var u schema.Update
	var said time.Time
	next, first := uint64(0), true
	err = kafka.ReadLogSmall(ctx, p.cl, schema.TopicUpdates, p.number, start, func(c kafka.LogChunk) (bool, error) {
		for _, rec := range c.Records {
			if err := schema.DecodeUpdate(rec.Value, &u); err != nil {
				return false, notUnderstood(rec, err)
			}
			if first || u.Seq != next {
				begin = position{NextOffset: rec.Offset, NextSeq: u.Seq}
			}
			next, first = u.Seq+1, false
		}
		p.opening(c.Next, end)
		if now := time.Now(); now.Sub(said) > sayInterval {
			p.log.Info("searching for the offset from which updates are complete", "offset", c.Next, "end", end)
			said = now
		}
		return c.Next < end, nil
	})
	if err != nil {
		return begin, false, fmt.Errorf("searching for the offset from which updates are complete: %w", err)
	}
	return begin, first && start == 0, nil
}

// sayInterval is how often findBegin logs its progress.
const sayInterval = 10 * time.Second

// leave finishes the open file with its rows, unless writing it failed. It returns err joined with its own errors.
func (p *partition) leave(w *writer, err error) error {
	var park *stream.ParkError
	switch {
	case errors.As(err, &park) && park.Cause == stream.CauseLoss && !w.begun:
		// An archive must not begin with a gap.
		err = fmt.Errorf("compaction overtook the search for the offset from which updates are complete, "+
			"which is repeated: %s", park.Reason)
	case !w.failed:
		err = errors.Join(err, w.commit())
	}
	return errors.Join(err, w.discard())
}

func (p *partition) finished(file string, rows, bytes int64) {
	p.archive.files.Inc()
	p.archive.bytes.Add(float64(bytes))
	p.archive.rows.Add(float64(rows))
	p.log.Info("file finished", "file", file, "rows", rows, "bytes", bytes)
}
