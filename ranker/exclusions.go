package ranker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

// exclusions are the posts that moderation has taken out, as far as trending-exclusions
// was read. The topic is small, and read from its start by every worker.
type exclusions struct {
	posts map[uint64]bool
	next  int64 // offset to read on from
	read  time.Time
}

// exclusionsInterval is how often the topic is looked at.
const exclusionsInterval = time.Second

func newExclusions() *exclusions { return &exclusions{posts: map[uint64]bool{}} }

func (e *exclusions) has(post uint64) bool { return e.posts[post] }

// poll reads what is new, if it is time to look, and calls each with every post that it
// changes.
func (e *exclusions) poll(ctx context.Context, cl kmsg.Requestor, now time.Time, log *slog.Logger, each func(post uint64, excluded bool)) error {
	if now.Sub(e.read) < exclusionsInterval {
		return nil
	}
	if e.read.IsZero() { // where the log begins, which somebody may have cut
		start, _, err := kafka.Bounds(ctx, cl, schema.TopicExclusions, 0)
		if err != nil {
			return fmt.Errorf("reading %s: %w", schema.TopicExclusions, err)
		}
		e.next = start
	}
	err := kafka.ReadLog(ctx, cl, schema.TopicExclusions, 0, e.next, func(chunk kafka.LogChunk) (bool, error) {
		for _, rec := range chunk.Records {
			post, err := schema.ParsePostKey(rec.Key)
			var x schema.Exclusion
			if err == nil {
				x, err = schema.DecodeExclusion(rec.Value)
			}
			if err != nil {
				log.Warn("passed over an exclusion that cannot be read", "topic", schema.TopicExclusions, "offset", rec.Offset, "error", err)
				continue
			}
			if e.posts[post] == x.Excluded {
				continue
			}
			if x.Excluded {
				e.posts[post] = true
			} else {
				delete(e.posts, post)
			}
			each(post, x.Excluded)
		}
		e.next = chunk.Next
		return chunk.Next < chunk.End, nil
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", schema.TopicExclusions, err)
	}
	e.read = now
	return nil
}
