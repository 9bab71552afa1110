package oracle

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ReaderLeft says what the reader at an address (http://host:port) has not got yet, "" if it has all that is in likes. As
// Left it asks for what is folded before it asks for the end of the log.
func (o *Oracle) ReaderLeft(ctx context.Context, base string) (string, error) {
	a := newAsker(base)
	defer a.close()
	s, err := a.stats(ctx)
	if err != nil {
		return "it does not answer: " + err.Error(), ctx.Err()
	}
	likes, err := o.lastRecords(ctx, topicLikes)
	if err != nil {
		return "", err
	}
	if len(likes) == 0 {
		return "no events", nil
	}
	var left []string
	for i, p := range s.Partitions {
		last := int64(-1)
		if rec := likes[int32(i)]; rec != nil {
			last = rec.Offset
		}
		if !p.Ready || p.AsOf.Offset <= last {
			left = append(left, fmt.Sprintf("partition %d: ready %t, as of %d of %d", i, p.Ready, p.AsOf.Offset, last+1))
		}
	}
	return strings.Join(left, "; "), nil
}

// ReaderVerdict is what was found of a reader.
type ReaderVerdict struct {
	// Answers that were compared, and the places in likes that they were as of.
	Answers, Places int
	Differences     Differences
}

// Depth is how much a reader is asked. All have the counts of every post, and a sample of everything.
type Depth int

// Depths of a comparison.
const (
	Everything Depth = iota // the likers of every post
	Sample                  // the likers of some
	CountsOnly              // of a reader that keeps no more: who likes what must be refused
)

// Reader reads what is new in likes, up to its end, and compares what the reader at an address says. Nothing may be under
// way: ReaderLeft says "", and nobody writes.
func (o *Oracle) Reader(ctx context.Context, base string, depth Depth) (*ReaderVerdict, error) {
	if err := o.begin(ctx); err != nil {
		return nil, err
	}
	v := &ReaderVerdict{}
	ends, err := o.ends(ctx, topicLikes)
	if err != nil {
		return nil, err
	}
	err = o.readTo(ctx, topicLikes, o.fold.next, ends, func(rec *kgo.Record) { o.judge(rec, &v.Differences) })
	if err != nil {
		return nil, err
	}
	last, err := o.lastRecords(ctx, topicLikes)
	if err != nil {
		return nil, err
	}
	c := newComparison(base, o.fold, v)
	defer c.asker.close()
	for p, rec := range last {
		c.covered[p] = span{rec.Offset + 1, ends[p]}
	}
	return v, c.run(ctx, depth)
}
