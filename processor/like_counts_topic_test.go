package processor_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// like-counts is recreated, with a post that the state table does not have any more.
func TestLikeCountsAreCompleted(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.produce(likes(1, 5)...)
	p := s.run()
	s.waitExact(p)
	p.stop()
	s.recreate(schema.TopicCounts)
	gone := &kgo.Record{Topic: schema.TopicCounts, Key: schema.AppendCountsKey(nil, 1<<40),
		Value: schema.AppendCounts(nil, schema.Counts{Likes: 7})}
	s.produce(gone)
	p = s.run(maxBatch(1))
	s.waitFor("the post that is gone to be deleted", func() (bool, any) {
		counts := s.latest(schema.TopicCounts, 0)
		_, there := counts[string(gone.Key)]
		return len(counts) > 1 && !there, len(counts)
	})
	s.produce(likes(6, 2)...)
	s.waitExact(p)
}
