package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// partition archives one partition. Its goroutine is run; others ask for its status.
//
//	starting ──► running ──► the end: the file in hand is finished
//	                │  ▲
//	  an error:     ▼  │ after park_interval all is established
//	  likewise    parked anew, from what is on disk and in Kafka
type partition struct {
	archive *Archive
	folder  *folder
	id      identity // of the log
	number  int32
	log     *slog.Logger

	checked time.Time // when the log was last seen to be that one

	mu struct {
		sync.Mutex
		status  stream.PartitionStatus
		movedAt time.Time
	}
}

func newPartition(a *Archive, f *folder, id identity, number int32) *partition {
	p := &partition{archive: a, folder: f, id: id, number: number, log: a.log.With("partition", number)}
	p.mu.status = stream.PartitionStatus{
		Topic: schema.TopicUpdates, Partition: number,
		State: stream.StateStarting, Since: time.Now(), Position: kafka.Position{Offset: -1, Epoch: -1},
	}
	return p
}

// errMore: all begin again, with those that were added.
var errMore = errors.New("partitions were added")

// run archives until ctx ends, and then finishes the file in hand: its error is that of this.
func (p *partition) run(ctx context.Context) error {
	for {
		err := p.follow(ctx)
		if ctx.Err() != nil || errors.Is(err, errMore) {
			return err
		}
		p.park(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.archive.opts.ParkInterval):
		}
	}
}

// follow goes on where the partition was left, until something fails or ctx ends.
func (p *partition) follow(ctx context.Context) (err error) {
	w, err := openWriter(p.folder, p.archive.opts, p.number)
	if err != nil {
		return err
	}
	w.finished = p.finished
	defer func() { err = p.leave(ctx, w, err) }()
	cl, err := p.archive.kafka.NewClient(p.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := p.position(ctx, cl, w); err != nil {
		return err
	}
	return kafka.ReadLogSmall(ctx, cl, schema.TopicUpdates, p.number, w.next, func(c kafka.LogChunk) (bool, error) {
		now := time.Now()
		if err := p.checkLog(ctx, cl, now); err != nil {
			return false, err
		}
		if err := w.take(c.Records, c.Next, now); err != nil {
			return false, err
		}
		p.moved(stream.StateRunning, w.next, c.End)
		if w.due(now) {
			return true, w.commit()
		}
		return true, nil
	})
}

// position finds out where to begin, or that the log still has what is next.
func (p *partition) position(ctx context.Context, cl *kgo.Client, w *writer) error {
	if err := p.lookUp(ctx, cl); err != nil {
		return err
	}
	p.checked = time.Time{} // what is read is not settled yet
	if !w.begun {
		var said time.Time
		begin, virgin, err := findBegin(ctx, cl, p.number, func(next, end int64) {
			p.moved(stream.StateStarting, next, end)
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
func (p *partition) checkLog(ctx context.Context, cl *kgo.Client, now time.Time) error {
	if now.Sub(p.checked) < p.archive.checkInterval {
		return nil
	}
	p.checked = now
	return p.lookUp(ctx, cl)
}

func (p *partition) lookUp(ctx context.Context, cl *kgo.Client) error {
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicUpdates)
	if err != nil {
		return err
	}
	if is := identityOf(topics); is != p.id {
		if is.ClusterID == p.id.ClusterID && is.TopicID == p.id.TopicID && is.Partitions > p.id.Partitions {
			return fmt.Errorf("%w: %s has %d, and had %d", errMore, schema.TopicUpdates, is.Partitions, p.id.Partitions)
		}
		return anotherLog(p.folder.dir, p.id, is)
	}
	return nil
}

// leave finishes the file in hand, which is whole as far as it goes, whatever it was that failed;
// but not if that was the file. err is why; it stays, but for the end of ctx.
func (p *partition) leave(ctx context.Context, w *writer, err error) error {
	if ctx.Err() != nil && !w.failed {
		err = nil
	}
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
	p.log.Info("file finished", "file", file, "rows", rows, "bytes", bytes, "lag", p.status().Lag)
}

// moved notes how far the partition is read, and where its log ends.
func (p *partition) moved(state string, next, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, now := &p.mu.status, time.Now()
	if s.State != state {
		s.State, s.Since, s.Trouble = state, now, stream.Trouble{}
		p.mu.movedAt = now
		p.log.Info("partition is "+state, "offset", next, "end", end)
	}
	if s.Position.Offset != next {
		p.mu.movedAt = now
	}
	s.Position.Offset, s.Lag = next, max(0, end-next)
}

// park notes why the partition cannot be archived, and says it once.
func (p *partition) park(err error) {
	why := stream.TroubleOf(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.mu.status
	if s.State == stream.StateParked && s.Reason == why.Reason {
		return
	}
	p.log.Warn("partition is parked", "cause", why.Cause, "reason", why.Reason, "remedy", cmp.Or(why.Remedy, "none: it is tried again"), "next_look", p.archive.opts.ParkInterval)
	s.State, s.Since, s.Trouble = stream.StateParked, time.Now(), why
}

// status tells how the partition is doing.
func (p *partition) status() stream.PartitionStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.mu.status
	if s.Lag > 0 {
		s.Stands = time.Since(p.mu.movedAt)
	}
	return s
}
