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

// Rankings reads the rankings of one region and window from trending, as anybody else
// may: it needs no state and no group.
type Rankings struct {
	kafka kafka.Options
	key   string
	log   *slog.Logger
	// Progress, if set, is told how much of the log was looked through, of how much.
	Progress func(read, all int64)

	cl        *kgo.Client
	partition int32
	next      int64 // what Follow goes on with
}

// WrittenRanking is a ranking as it stands in trending.
type WrittenRanking struct {
	*schema.Ranking
	Value  []byte // the record's
	Offset int64
	At     time.Time // when it was written
}

// NewRankings makes a reader. Close it.
func NewRankings(kafka kafka.Options, region, window string, log *slog.Logger) *Rankings {
	return &Rankings{kafka: kafka, key: schema.RankingKey(region, window), log: log}
}

// Close ends the connections to Kafka.
func (r *Rankings) Close() {
	if r.cl != nil {
		r.cl.Close()
	}
}

// Latest returns the last ranking in the log, or nil if there is none.
//
// It looks backwards from the end, in steps that grow: rankings are only written when they
// have changed, so it may lie days back. What it holds in memory is one fetch.
func (r *Rankings) Latest(ctx context.Context) (*WrittenRanking, error) {
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	const firstStep, growth = 256, 4
	_, end, err := kafka.Bounds(ctx, r.cl, schema.TopicTrending, r.partition)
	if err != nil {
		return nil, err
	}
	r.next = end
	read := int64(0)
	for to, step := end, int64(firstStep); ; step *= growth {
		// Asked anew each time: retention goes on.
		start, _, err := kafka.Bounds(ctx, r.cl, schema.TopicTrending, r.partition)
		if err != nil || start >= to {
			return nil, err
		}
		from := max(start, to-step)
		last, err := r.lastBetween(ctx, from, to, func(n int64) { r.progress(read+n, end-start) })
		if err != nil || last != nil {
			return last, err
		}
		read += to - from
		to = from
	}
}

// lastBetween returns the last ranking of the key that is at an offset from from up to to.
func (r *Rankings) lastBetween(ctx context.Context, from, to int64, progress func(read int64)) (*WrittenRanking, error) {
	var last *kgo.Record
	err := kafka.ReadLog(ctx, r.cl, schema.TopicTrending, r.partition, from, func(c kafka.LogChunk) (bool, error) {
		for _, rec := range c.Records {
			if rec.Offset < to && string(rec.Key) == r.key {
				last = rec
			}
		}
		progress(min(c.Next, to) - from)
		return c.Next < to, nil
	})
	if err != nil || last == nil {
		return nil, err
	}
	return written(last)
}

// Follow comes after Latest: it hands each ranking that is written from then on to each,
// until ctx ends or each fails. While nothing comes, each is called with nil a few times a second.
func (r *Rankings) Follow(ctx context.Context, each func(*WrittenRanking) error) error {
	for {
		err := kafka.ReadLog(ctx, r.cl, schema.TopicTrending, r.partition, r.next, func(c kafka.LogChunk) (bool, error) {
			return ctx.Err() == nil, r.followChunk(c, each)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, kerr.OffsetOutOfRange):
			return err
		}
		// The machine slept for longer than the log is kept, say.
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

// Any tells whether trending has a record of any region and window. It comes after Latest.
func (r *Rankings) Any(ctx context.Context) (bool, error) {
	info, err := lookUp(ctx, r.cl, r.kafka, schema.TopicTrending)
	if err != nil {
		return false, err
	}
	for p := range info.Partitions {
		start, end, err := kafka.Bounds(ctx, r.cl, schema.TopicTrending, p)
		if err != nil || end > start {
			return err == nil, err
		}
	}
	return false, nil
}

// connect finds the partition where the key's rankings are.
func (r *Rankings) connect(ctx context.Context) (err error) {
	if r.cl != nil {
		return nil
	}
	cl, err := r.kafka.NewClient(r.log)
	if err != nil {
		return err
	}
	info, err := lookUp(ctx, cl, r.kafka, schema.TopicTrending)
	if err != nil {
		cl.Close()
		return err
	}
	r.cl, r.partition = cl, schema.KeyPartition([]byte(r.key), info.Partitions)
	return nil
}

func (r *Rankings) progress(read, all int64) {
	if r.Progress != nil {
		r.Progress(read, all)
	}
}

func written(rec *kgo.Record) (*WrittenRanking, error) {
	ranking, err := schema.DecodeRanking(rec.Value)
	if err != nil {
		return nil, fmt.Errorf("%s/%d offset %d: %w", rec.Topic, rec.Partition, rec.Offset, err)
	}
	return &WrittenRanking{Ranking: ranking, Value: rec.Value, Offset: rec.Offset, At: rec.Timestamp}, nil
}
