// Package follow reads the state table while it grows, for tools that send events and wait until they are folded.
package follow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/ops/progress"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Partition follows a partition of the state table. It is not safe for concurrent use.
type Partition struct {
	Number   int32
	Keep     func(key, value []byte) error // gets every record but the progress
	Progress schema.Progress               // zero if the partition has none

	Next, End int64 // in the state table: the next offset to read, and the end when this run started

	// Want is the offset in likes that the fold must reach, backlog the end of likes at the start of the run.
	Want, backlog int64
}

// LookUp looks up likes, the state table and more topics. The first two have the same partitions.
func LookUp(ctx context.Context, cl *kgo.Client, cluster kafka.Options, more ...string) (kafka.Topics, error) {
	var topics kafka.Topics
	for _, name := range append([]string{schema.TopicState, schema.TopicLikes}, more...) {
		one, err := kafka.LookUpTopics(ctx, cl, name)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return topics, fmt.Errorf(`topic %s does not exist on %v; create the topics with "kudos topics apply"`,
				name, cluster.Brokers)
		case err != nil:
			return topics, fmt.Errorf("querying Kafka at %v: %w", cluster.Brokers, err)
		}
		maps.Copy(one.ByName, topics.ByName)
		topics = one
	}
	likes, state := topics.ByName[schema.TopicLikes].Partitions, topics.ByName[schema.TopicState].Partitions
	if likes != state {
		return topics, fmt.Errorf("%s has %d partitions and %s has %d, so the partition of a post is ambiguous; "+
			`run "kudos topics check"`, schema.TopicLikes, likes, schema.TopicState, state)
	}
	return topics, nil
}

// FindBounds finds the ends of the logs.
func (p *Partition) FindBounds(ctx context.Context, cl *kgo.Client) (err error) {
	if _, p.backlog, err = kafka.Bounds(ctx, cl, schema.TopicLikes, p.Number); err != nil {
		return err
	}
	p.Next, p.End, err = kafka.Bounds(ctx, cl, schema.TopicState, p.Number)
	return err
}

// Read continues reading the state table until enough returns true; read is the number of offsets read.
func (p *Partition) Read(ctx context.Context, cl *kgo.Client, enough func(c kafka.LogChunk, read int64) (bool, error),
) error {
	return kafka.ReadLog(ctx, cl, schema.TopicState, p.Number, p.Next, func(c kafka.LogChunk) (more bool, err error) {
		for _, rec := range c.Records {
			if err := p.keep(rec.Key, rec.Value); err != nil {
				return false, fmt.Errorf("%s/%d offset %d: %w", schema.TopicState, p.Number, rec.Offset, err)
			}
		}
		read := c.Next - p.Next
		p.Next = c.Next
		done, err := enough(c, read)
		return !done, err
	})
}

func (p *Partition) keep(key, value []byte) error {
	if string(key) == schema.StateProgressKey {
		return schema.DecodeProgress(value, &p.Progress)
	}
	return p.Keep(key, value)
}

// Check rejects states that waiting cannot resolve.
func (p *Partition) Check(likes schema.TopicID, buckets schema.UserBuckets) error {
	switch {
	case p.Progress == schema.Progress{}:
		return fmt.Errorf(`partition %d of %s has no progress record; run "kudos topics apply"`,
			p.Number, schema.TopicState)
	case p.Progress.SourceID != likes:
		return fmt.Errorf("partition %d of %s belongs to an earlier topic %s, which was deleted and recreated: "+
			"processors park it, and their /readyz and log say what to do",
			p.Number, schema.TopicState, schema.TopicLikes)
	case p.Progress.UserBuckets != buckets:
		return fmt.Errorf("partition %d of %s is laid out with user buckets %q, but topics.user_buckets is %q: "+
			"use the same setting as the processors", p.Number, schema.TopicState, p.Progress.UserBuckets, buckets)
	}
	return nil
}

// await reads until the fold has reached want and the backlog.
func (p *Partition) await(ctx context.Context, cl *kgo.Client, more func(folded int64)) error {
	if done, err := p.folded(ctx, cl); done || err != nil {
		return err
	}
	before := p.Progress.NextOffset
	return p.Read(ctx, cl, func(c kafka.LogChunk, _ int64) (bool, error) {
		more(p.Progress.NextOffset - before)
		before = p.Progress.NextOffset
		if c.Next < c.End {
			return false, nil
		}
		return p.folded(ctx, cl)
	})
}

// folded reports whether the fold has reached want and the backlog. After the last event of the backlog there may be
// control records, which the fold does not pass until another event follows; therefore it looks for the next event.
func (p *Partition) folded(ctx context.Context, cl *kgo.Client) (bool, error) {
	next := p.Progress.NextOffset
	if next < p.Want {
		return false, nil
	}
	if next >= p.backlog {
		return true, nil
	}
	found := false
	err := kafka.ReadLog(ctx, cl, schema.TopicLikes, p.Number, next, func(c kafka.LogChunk) (bool, error) {
		if len(c.Records) > 0 && c.Records[0].Offset < p.backlog {
			found, p.Want = true, c.Records[0].Offset+1
		}
		return !found && c.Next < p.backlog, nil
	})
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return false, fmt.Errorf("%s/%d has lost events that were not folded yet, from offset %d on: "+
			"processors park it, and their /readyz and log say what to do", schema.TopicLikes, p.Number, next)
	case err != nil:
		return false, err
	}
	return !found, nil
}

const parallel = 4 // partitions that are read concurrently

// Each calls do for all partitions, some of them concurrently.
func Each(ctx context.Context, parts []*Partition, do func(context.Context, *Partition) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, p := range parts {
		g.Go(func() error { return do(ctx, p) })
	}
	return g.Wait()
}

// Scan reads the state table up to its current end. check is called for each partition after that.
func Scan(ctx context.Context, cl *kgo.Client, parts []*Partition,
	begin func(what, unit string, total int64) *progress.Phase, check func(*Partition) error,
) error {
	var total int64
	for _, p := range parts {
		if err := p.FindBounds(ctx, cl); err != nil {
			return err
		}
		total += p.End - p.Next
	}
	phase := begin("reading the state table", "records", total)
	defer phase.End()
	return Each(ctx, parts, func(ctx context.Context, p *Partition) error {
		if p.Next < p.End {
			err := p.Read(ctx, cl, func(c kafka.LogChunk, read int64) (enough bool, err error) {
				phase.Add(read)
				return c.Next >= p.End, nil
			})
			if err != nil {
				return err
			}
		}
		return check(p)
	})
}

var errPatience = errors.New("the wait timed out")

// Await reads the state table until it covers all that was sent, and all that was in likes when this run started. It
// fails if the fold makes no progress for the timeout.
func Await(ctx context.Context, cl *kgo.Client, parts []*Partition, timeout time.Duration, phase *progress.Phase,
) error {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(timeout, func() { cancel(errPatience) })
	defer patience.Stop()
	err := Each(bounded, parts, func(ctx context.Context, p *Partition) error {
		return p.await(ctx, cl, func(folded int64) {
			phase.Add(folded)
			if folded > 0 {
				patience.Reset(timeout)
			}
		})
	})
	if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(bounded), errPatience) {
		return err
	}
	for _, p := range parts {
		if p.Progress.NextOffset < p.Want {
			return fmt.Errorf("waited %s for the processors (--timeout): %s/%d is folded up to offset %d "+
				"and not yet up to %d; what was sent is in Kafka and will be counted. "+
				`Check that "kudos processor" is running (/readyz and its log say why it is stalled), `+
				"then run this again", timeout, schema.TopicLikes, p.Number, p.Progress.NextOffset, p.Want)
		}
	}
	return err // the end of the log was not reached: Kafka itself is unavailable
}
