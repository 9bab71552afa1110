package store

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// Hooks are for a store that others read during CatchUp. Any may be nil.
type Hooks struct {
	// Alone is called before files are closed or deleted, or the store copies another log. Nobody else may read then.
	Alone    func()
	Begin    func() error               // called before anything is written
	Progress func(next, end int64)      // gets the next offset and the end of the log, before a chunk is written
	Apply    func(kafka.LogChunk) error // writes a chunk of the log; nil: Replay does
}

// CatchUp opens the store if needed, brings it to the last stable offset of its log and returns the next offset. A
// store that is a copy of another log, is ahead of its log, or ends before the log starts, is rebuilt.
func (s *Store) CatchUp(ctx context.Context, cl kmsg.Requestor, hooks Hooks) (next int64, err error) {
	if hooks.Alone == nil {
		hooks.Alone = func() {}
	}
	begin, err := s.resume(ctx, cl, hooks.Alone)
	if err != nil {
		return 0, err
	}
	if hooks.Begin != nil {
		if err := hooks.Begin(); err != nil {
			return 0, err
		}
	}
	r := kafka.NewLogReader(cl, s.topic, s.partition)
	r.TopicID, next = s.id.TopicID, begin // a recreated topic is another log
	err = r.Read(ctx, begin, func(f kafka.LogChunk) (more bool, err error) {
		if hooks.Progress != nil {
			hooks.Progress(f.Next, f.End)
		}
		switch {
		case f.Next == next:
		case hooks.Apply != nil:
			s.replayed.Add(int64(len(f.Records)))
			err = hooks.Apply(f)
		default:
			err = s.Replay(f.Records, f.Next-1)
		}
		next = f.Next
		return next < f.End, err
	})
	if err != nil || next == begin || s.buffer != nil {
		return next, err
	}
	// In the background: what is on disk is faster to read and survives a crash.
	_, err = s.db.AsyncFlush()
	return next, s.failed("flushing", err)
}

func (s *Store) resume(ctx context.Context, cl kmsg.Requestor, alone func()) (int64, error) {
	if err := s.refresh(alone); err != nil {
		return 0, err
	}
	topics, err := kafka.LookUpTopics(ctx, cl, s.topic) // first: it says which topic is missing
	if err != nil {
		return 0, err
	}
	start, end, err := kafka.Bounds(ctx, cl, s.topic, s.partition)
	if err != nil {
		return 0, err
	}
	last, ok := s.Offset()
	info := topics.ByName[s.topic]
	id := kafka.LogID{ClusterID: topics.ClusterID, TopicID: info.ID}
	if ok && id == s.id && s.epoch >= 0 {
		epochEnd, err := kafka.EpochEnd(ctx, cl, s.topic, s.partition, s.epoch)
		if err != nil {
			return 0, err
		}
		end = min(end, epochEnd) // what the log has above it is other than what the store covers
	}
	again := ok
	switch {
	case !ok && id != s.id:
		alone() // readers may ask which log it is a copy of
		s.id = id
	case ok && id != s.id:
		s.log.Warn("local state is of another topic or cluster: rebuilding it from Kafka", "dir", s.dir)
	case ok && (last+1 < start || last+1 > end):
		s.log.Warn("local state is outside the topic's offsets: rebuilding it from Kafka", "dir", s.dir, "offset", last,
			"log_start", start, "log_end", end)
	case ok:
		start, again = last+1, false
	}
	if again {
		alone()
		if err := s.rebuild(); err != nil {
			return 0, fmt.Errorf("building local state in %s again: %w", s.dir, err)
		}
		s.id = id
	}
	if int(s.partition) < len(info.Epochs) {
		s.epoch = max(s.epoch, info.Epochs[s.partition])
	}
	return start, nil
}

// Replay writes records of the log. The store covers the log up to and including offset then.
func (s *Store) Replay(records []*kgo.Record, offset int64) error {
	s.replayed.Add(int64(len(records)))
	w := s.NewWrite()
	if n := len(records); n > 0 {
		w.SetEpoch(records[n-1].LeaderEpoch)
	}
	if s.buffer != nil {
		w.Stage(len(records), func(i int) (key, value []byte) { return records[i].Key, records[i].Value })
		return w.Commit(offset)
	}
	for _, rec := range records {
		if err := w.Set(rec.Key, rec.Value); err != nil {
			w.Discard()
			return s.failed("writing", err)
		}
	}
	return w.Commit(offset)
}
