package ranker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// Rankings reads the rankings of one region and window from the topic trending. It needs no state or consumer group.
type Rankings struct {
	// Progress is called with the number of offsets searched so far, and in total.
	Progress func(read, all int64)

	cl         *kgo.Client
	key        string
	partition  int32
	partitions int32 // of trending
	next       int64 // where Follow resumes
}

// WrittenRanking is a record of trending.
type WrittenRanking struct {
	*schema.Ranking
	Value  []byte // of the record
	Offset int64
	At     time.Time // timestamp of the record
}

// OpenRankings connects to Kafka. The caller must close the result.
func OpenRankings(ctx context.Context, kafka kafka.Options, region, window string, log *slog.Logger,
) (*Rankings, error) {
	cl, err := kafka.NewClient(log)
	if err != nil {
		return nil, err
	}
	info, err := lookUp(ctx, cl, kafka, schema.TopicTrending)
	if err != nil {
		cl.Close()
		return nil, err
	}
	key := schema.RankingKey(region, window)
	return &Rankings{Progress: func(read, all int64) {}, cl: cl, key: key,
		partition: schema.KeyPartition([]byte(key), info.Partitions), partitions: info.Partitions}, nil
}

// Close closes the connections to Kafka.
func (r *Rankings) Close() { r.cl.Close() }

// Latest returns the last ranking in the log, or nil. It searches backward in growing steps, with at most one fetch in
// memory: rankings are written only when they change, so the last one may be days old.
func (r *Rankings) Latest(ctx context.Context) (*WrittenRanking, error) {
	const firstStep, growth = 256, 4
	_, end, err := kafka.Bounds(ctx, r.cl, schema.TopicTrending, r.partition)
	if err != nil {
		return nil, err
	}
	r.next = end
	for to, step := end, int64(firstStep); ; step *= growth {
		// Look it up each time: retention may move the start.
		start, _, err := kafka.Bounds(ctx, r.cl, schema.TopicTrending, r.partition)
		if err != nil || start >= to {
			return nil, err
		}
		from := max(start, to-step)
		var last *kgo.Record
		err = kafka.ReadLog(ctx, r.cl, schema.TopicTrending, r.partition, from, func(c kafka.LogChunk) (bool, error) {
			for _, rec := range c.Records {
				if rec.Offset < to && string(rec.Key) == r.key {
					last = rec
				}
			}
			r.Progress(end-to+min(c.Next, to)-from, end-start)
			return c.Next < to, nil
		})
		if err != nil {
			return nil, err
		}
		if last != nil {
			return written(last)
		}
		to = from
	}
}

// Follow is called after Latest. It calls each with every ranking written from then on, until ctx ends or each fails.
// While there is none, it calls each with nil a few times per second.
func (r *Rankings) Follow(ctx context.Context, each func(*WrittenRanking) error) error {
	for {
		chunk := func(c kafka.LogChunk) (bool, error) { return ctx.Err() == nil, r.followChunk(c, each) }
		err := kafka.ReadLog(ctx, r.cl, schema.TopicTrending, r.partition, r.next, chunk)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, kerr.OffsetOutOfRange):
			return err
		}
		// Retention has deleted records before they were read, for example while the machine was asleep.
		w, err := r.Latest(ctx)
		if err == nil && w != nil {
			err = each(w)
		}
		if err != nil {
			return err
		}
	}
}

func (r *Rankings) followChunk(c kafka.LogChunk, each func(*WrittenRanking) error) error {
	any := false
	for _, rec := range c.Records {
		if string(rec.Key) != r.key {
			continue
		}
		w, err := written(rec)
		if err == nil {
			err = each(w)
		}
		if err != nil {
			return err
		}
		any = true
	}
	r.next = c.Next
	if any {
		return nil
	}
	return each(nil)
}

func written(rec *kgo.Record) (*WrittenRanking, error) {
	ranking, err := schema.DecodeRanking(rec.Value)
	if err != nil {
		return nil, fmt.Errorf("%s/%d offset %d: %w", rec.Topic, rec.Partition, rec.Offset, err)
	}
	return &WrittenRanking{Ranking: ranking, Value: rec.Value, Offset: rec.Offset, At: rec.Timestamp}, nil
}

// Any reports whether trending has a record of any region and window.
func (r *Rankings) Any(ctx context.Context) (bool, error) {
	for p := range r.partitions {
		start, end, err := kafka.Bounds(ctx, r.cl, schema.TopicTrending, p)
		if err != nil || end > start {
			return err == nil, err
		}
	}
	return false, nil
}
