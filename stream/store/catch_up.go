package store

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// endWait is how long a fetch waits for what is not there yet, so that it is not asked for in a tight loop.
const endWait = 250 * time.Millisecond

// Replay writes records of the log, and that the store covers it up to and including offset.
func (s *Store) Replay(records []*kgo.Record, offset int64) error {
	s.replayed.Add(int64(len(records)))
	return s.apply(records, offset)
}

func (s *Store) apply(records []*kgo.Record, offset int64) error {
	if s.buffer != nil {
		if err := s.usable(); err != nil {
			return err
		}
		s.Stage(len(records), func(i int) (key, value []byte) { return records[i].Key, records[i].Value })
		return s.Seal(offset)
	}
	w := s.NewWrite()
	for _, rec := range records {
		if err := w.Set(rec.Key, rec.Value); err != nil {
			w.Discard()
			return fmt.Errorf("writing local state in %s: %w", s.dir, err)
		}
	}
	return w.Commit(offset)
}

// catchUpPatience is how long CatchUp goes on without an answer, before it says so.
const catchUpPatience = 30 * time.Second

// CatchUp brings the store to the last stable offset of its log; one that was found
// corrupted, or could not be written, is opened again before. Whoever calls it has fenced the writers of the partition
// before, so nothing comes after, and nobody else may be reading.
func (s *Store) CatchUp(ctx context.Context, cl kmsg.Requestor, topic string, partition int32) error {
	next, err := s.Resume(ctx, cl, topic, partition, func() {})
	if err != nil {
		return err
	}
	return s.ReadOn(ctx, cl, topic, partition, next, func(f kafka.LogChunk) error {
		return s.apply(f.Records, f.Next-1)
	})
}

// ReadOn hands what follows an offset, up to the last stable one, to each, a fetch at a
// time.
func (s *Store) ReadOn(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, next int64, each func(kafka.LogChunk) error) error {
	r := kafka.NewLogReader(cl, topic, partition, 0)
	r.TopicID = s.id.TopicID // one made anew meanwhile is another log
	for {
		fetchCtx, cancel := context.WithTimeout(ctx, catchUpPatience)
		f, err := r.Fetch(fetchCtx, next)
		cancel()
		if err != nil {
			return err
		}
		if f.Next > next {
			s.replayed.Add(int64(len(f.Records)))
			if err := each(f); err != nil {
				return err
			}
			next = f.Next
		}
		if next >= f.End {
			return nil
		}
		r.MaxWait = endWait // do not ask in a tight loop for what is not there yet
	}
}

// Resume makes the store usable and returns the offset to read on from. A store that
// covers more than the log has, or goes back to before it, is a copy of something else,
// and starts over. alone is called before files are closed or emptied: nobody else may
// be reading from then on.
func (s *Store) Resume(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, alone func()) (int64, error) {
	if s.Trouble() != nil {
		alone()
	}
	if err := s.refresh(); err != nil {
		return 0, err
	}
	start, end, err := kafka.Bounds(ctx, cl, topic, partition)
	if err != nil {
		return 0, err
	}
	topics, err := kafka.LookUpTopics(ctx, cl, topic)
	if err != nil {
		return 0, err
	}
	last, ok := s.Offset()
	id := kafka.LogID{ClusterID: topics.ClusterID, TopicID: topics.ByName[topic].ID}
	switch {
	case id != s.id:
		s.log.Warn("local state is a copy of a log that was deleted and is built again", "dir", s.dir)
	case !ok:
		return start, nil
	case last+1 < start || last+1 > end:
		s.log.Warn("local state does not belong to the log and is built again", "dir", s.dir, "offset", last, "log_start", start, "log_end", end)
	default:
		return last + 1, nil
	}
	alone()
	s.id = id // not before: whoever reads may ask what it is a copy of
	if err := s.rebuild(); err != nil {
		return 0, fmt.Errorf("building local state in %s again: %w", s.dir, err)
	}
	return start, nil
}
