package forget

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/progress"
	"kudos/schema"
	"kudos/stream/kafka"
)

// asked reports whether a reaction is to be withdrawn.
type asked func(post, user uint64) bool

func newAsked(kind Kind, ids []uint64) asked {
	set := make(map[uint64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	if kind == User {
		return func(_, user uint64) bool { return set[user] }
	}
	return func(post, _ uint64) bool { return set[post] }
}

type pairKey struct{ post, user uint64 }

// known is the part of a pair kept in memory.
type known struct {
	timeMs   int64
	reaction schema.Reaction
}

// part has a state-table partition's matching pairs, 60 bytes for each that ever existed. Not safe for concurrent use.
type part struct {
	number int32
	asked  asked
	pairs  map[pairKey]known

	next, end int64           // in the state table: the next offset to read, and the end when this run started
	progress  schema.Progress // zero if the partition has none

	// want is the offset in likes that the fold must reach, backlog the end of likes at the start of the run.
	want, backlog int64
}

func (p *part) findBounds(ctx context.Context, cl *kgo.Client) (err error) {
	if _, p.backlog, err = kafka.Bounds(ctx, cl, schema.TopicLikes, p.number); err != nil {
		return err
	}
	p.next, p.end, err = kafka.Bounds(ctx, cl, schema.TopicState, p.number)
	return err
}

// read continues reading the state table until enough returns true; read is the number of offsets read.
func (p *part) read(ctx context.Context, cl *kgo.Client, enough func(c kafka.LogChunk, read int64) (bool, error),
) error {
	return kafka.ReadLog(ctx, cl, schema.TopicState, p.number, p.next, func(c kafka.LogChunk) (more bool, err error) {
		for _, rec := range c.Records {
			if err := p.keep(rec.Key, rec.Value); err != nil {
				return false, fmt.Errorf("%s/%d offset %d: %w", schema.TopicState, p.number, rec.Offset, err)
			}
		}
		read := c.Next - p.next
		p.next = c.Next
		done, err := enough(c, read)
		return !done, err
	})
}

// keep stores a record; the last one of a key wins.
func (p *part) keep(key, value []byte) error {
	if string(key) == schema.StateProgressKey {
		return schema.DecodeProgress(value, &p.progress)
	}
	post, user, ok := schema.ParsePairKey(key)
	if !ok || !p.asked(post, user) {
		return nil
	}
	if value == nil { // only a rebuild of the state table deletes a pair
		delete(p.pairs, pairKey{post, user})
		return nil
	}
	var pair schema.Pair
	if err := schema.DecodePair(value, &pair); err != nil {
		return err
	}
	p.pairs[pairKey{post, user}] = known{pair.TimeMs, pair.Reaction}
	return nil
}

// checkProgress rejects states that waiting cannot resolve.
func (p *part) checkProgress(likes schema.TopicID, buckets schema.UserBuckets) error {
	switch {
	case p.progress == schema.Progress{}:
		return fmt.Errorf(`partition %d of %s has no progress record; run "kudos topics apply"`,
			p.number, schema.TopicState)
	case p.progress.SourceID != likes:
		return fmt.Errorf("partition %d of %s belongs to an earlier topic %s, which was deleted and recreated: "+
			"processors park it, and their /readyz and log say what to do",
			p.number, schema.TopicState, schema.TopicLikes)
	case p.progress.UserBuckets != buckets:
		return fmt.Errorf("partition %d of %s is laid out with user buckets %q, but topics.user_buckets is %q: "+
			"use the same setting as the processors", p.number, schema.TopicState, p.progress.UserBuckets, buckets)
	}
	return nil
}

// awaitFold reads until the fold has reached want and the backlog.
func (p *part) awaitFold(ctx context.Context, cl *kgo.Client, phase *progress.Phase) error {
	if done, err := p.folded(ctx, cl); done || err != nil {
		return err
	}
	before := p.progress.NextOffset
	return p.read(ctx, cl, func(c kafka.LogChunk, _ int64) (bool, error) {
		phase.Add(p.progress.NextOffset - before)
		before = p.progress.NextOffset
		if c.Next < c.End {
			return false, nil
		}
		return p.folded(ctx, cl)
	})
}

// folded reports whether the fold has reached want and the backlog. After the last event of the backlog there may be
// control records, which the fold does not pass until another event follows; therefore it looks for the next event.
func (p *part) folded(ctx context.Context, cl *kgo.Client) (bool, error) {
	next := p.progress.NextOffset
	if next < p.want {
		return false, nil
	}
	if next >= p.backlog {
		return true, nil
	}
	found := false
	err := kafka.ReadLog(ctx, cl, schema.TopicLikes, p.number, next, func(c kafka.LogChunk) (bool, error) {
		if len(c.Records) > 0 && c.Records[0].Offset < p.backlog {
			found, p.want = true, c.Records[0].Offset+1
		}
		return !found && c.Next < p.backlog, nil
	})
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return false, fmt.Errorf("%s/%d has lost events that were not folded yet, from offset %d on: "+
			"processors park it, and their /readyz and log say what to do", schema.TopicLikes, p.number, next)
	case err != nil:
		return false, err
	}
	return !found, nil
}
