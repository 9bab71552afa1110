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
	folder  *folder
	id      identity // of the log
	number  int32
	log     *slog.Logger

	opening func(next, end int64) // is told how far the search for the begin is
	cl      *kgo.Client           // while it is open
	writer  *writer               // likewise
	checked time.Time             // when the log was last seen to be that one
	left    error                 // of the file that Close finished
}

func newPartition(a *Archive, f *folder, of stream.Assignment) *partition {
	id := identityOf(kafka.Topics{ClusterID: of.Log.ClusterID, ByName: map[string]kafka.TopicInfo{of.Topic: {ID: of.Log.TopicID, Partitions: of.Partitions}}})
	return &partition{archive: a, folder: f, id: id, number: of.Partition, opening: of.Opening, log: a.log.With("partition", of.Partition)}
}

// Fence has nothing to do: the folder is locked.
func (p *partition) Fence(context.Context) error { return nil }

// Open goes on where the partition was left.
func (p *partition) Open(ctx context.Context) (at kafka.Position, err error) {
	if err := p.archive.belongTo(p.id); err != nil {
		return at, err
	}
	if p.cl, err = p.archive.kafka.NewClient(p.log); err != nil {
		return at, err
	}
	if p.writer, err = openWriter(p.folder, p.archive.opts, p.number); err != nil {
		return at, err
	}
	p.writer.finished = p.finished
	if err := p.position(ctx, p.writer); err != nil {
		return at, err
	}
	return kafka.Position{Offset: p.writer.next, Epoch: -1}, nil
}

// Process takes in what comes. What ends a batch in the middle leaves the file whole as far as it goes.
func (p *partition) Process(ctx context.Context, b *stream.Batch) error {
	now := time.Now()
	if err := p.checkLog(ctx, now); err != nil {
		return err
	}
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

// Close finishes the open file. What an earlier Close could not finish is read from Kafka again.
func (p *partition) Close() {
	p.left = nil
	if p.writer != nil {
		if p.left = p.leave(p.writer, nil); p.left != nil {
			p.log.Warn("finishing the open file failed", "error", p.left)
		}
		p.writer = nil
	}
	if p.cl != nil {
		p.cl.Close()
		p.cl = nil
	}
}

// Leave reports the error of the last Close.
func (p *partition) Leave() { p.archive.leave(p.left) }

// position finds out where to begin, or that the log still has what is next.
func (p *partition) position(ctx context.Context, w *writer) error {
	cl := p.cl
	if err := p.lookUp(ctx); err != nil {
		return err
	}
	p.checked = time.Time{} // what is read is not settled yet
	if !w.begun {
		var said time.Time
		begin, virgin, err := findBegin(ctx, cl, p.number, func(next, end int64) {
			p.opening(next, end)
			if now := time.Now(); now.Sub(said) > sayInterval {
				p.log.Info("looks for where the updates are whole", "offset", next, "end", end)
				said = now
			}
		})
		if err != nil {
			return err
		}
		p.log.Info("begins here: before, updates are missing, or there are none", "offset", begin.NextOffset, "seq", begin.NextSeq)
		return w.begin(begin, virgin)
	}
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicUpdates, p.number)
	switch {
	case err != nil:
		return err
	case w.next < start:
		return stream.Park(stream.CauseLoss, elsewhere, "%s/%d begins at offset %d, and was archived to %d only: what is between is gone", schema.TopicUpdates, p.number, start, w.next)
	case w.next > end:
		return stream.Park(stream.CauseLoss, elsewhere, "%s/%d ends at offset %d, and was archived to %d: its end was cut off, or came from elsewhere", schema.TopicUpdates, p.number, end, w.next)
	}
	return nil
}

// sayInterval is how often a search tells how far it is.
const sayInterval = 10 * time.Second

// checkInterval is how often it is looked whether the topic is still the one that is archived.
const checkInterval = 10 * time.Second

// checkLog refuses another log, now and then. The first look comes after the first fetch, which
// settles what log is read: one that was made anew in between is not taken for the old one.
func (p *partition) checkLog(ctx context.Context, now time.Time) error {
	if now.Sub(p.checked) < p.archive.checkInterval {
		return nil
	}
	p.checked = now
	return p.lookUp(ctx)
}

func (p *partition) lookUp(ctx context.Context) error {
	topics, err := kafka.LookUpTopics(ctx, p.cl, schema.TopicUpdates)
	if err != nil {
		return err
	}
	is := identityOf(topics)
	if is.ClusterID == p.id.ClusterID && is.TopicID == p.id.TopicID && is.Partitions > p.id.Partitions {
		return nil // all begin again soon, with those that were added
	}
	if is != p.id {
		return anotherLog(p.folder.dir, p.id, is)
	}
	return nil
}

// leave finishes the file in hand, which is whole as far as it goes, whatever it was that failed;
// but not if that was the file. err is why; it stays.
func (p *partition) leave(w *writer, err error) error {
	var park *stream.ParkError
	switch {
	case errors.As(err, &park) && park.Cause == stream.CauseLoss && !w.begun:
		// An archive does not begin with a gap.
		err = fmt.Errorf("compaction was faster than the search for where the updates are whole, which is made again: %s", park.Reason)
	case !w.failed:
		err = errors.Join(err, w.commit())
	}
	return errors.Join(err, w.discard())
}

// finished tells of a file.
func (p *partition) finished(file string, rows, bytes int64) {
	p.archive.files.Inc()
	p.archive.bytes.Add(float64(bytes))
	p.archive.rows.Add(float64(rows))
	p.log.Info("file finished", "file", file, "rows", rows, "bytes", bytes)
}
