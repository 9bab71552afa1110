package processor

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold"
	"kudos/processor/fold/classify"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// shapes of load: all on one post, on some, and hardly two on the same.
var shapes = []struct {
	name  string
	posts uint64
}{{"hot", 1}, {"1000_posts", 1000}, {"uniform", 1 << 40}}

const benchBatch = 50_000

// benchRecords are events of posts that live in partition 0.
func benchRecords(posts uint64) []*kgo.Record {
	r := rand.New(rand.NewPCG(1, 1))
	var ids []uint64
	for i := uint64(0); uint64(len(ids)) < min(posts, benchBatch); i++ {
		id := 1 + r.Uint64N(1<<40)
		if schema.PartitionFor(id, testPartitions) == 0 {
			ids = append(ids, id)
		}
	}
	records := make([]*kgo.Record, benchBatch)
	for i := range records {
		e := schema.Event{PostID: ids[r.IntN(len(ids))], UserID: 1 + r.Uint64N(1<<20), Action: schema.Like, TimeMs: appendMs + int64(i), Region: schema.Region{'U', 'S'}}
		records[i] = logRecord(0, int64(i), "", "")
		records[i].Key, records[i].Value = schema.AppendPostKey(nil, e.PostID), schema.AppendEvent(nil, &e)
	}
	return records
}

func perEvent(b *testing.B, events int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
}

// BenchmarkJudgeAndPublish is the work on a batch beside the fold itself: judging its
// records, and laying out what it publishes.
func BenchmarkJudgeAndPublish(b *testing.B) {
	for _, shape := range shapes {
		records := benchRecords(shape.posts)
		b.Run("judge/"+shape.name, func(b *testing.B) {
			var v classify.Classified
			b.ReportAllocs()
			for b.Loop() {
				v.Reset()
				for _, rec := range records {
					v.Add(rec, testLayout)
				}
			}
			require.Len(b, v.Events, benchBatch)
			perEvent(b, benchBatch)
		})
		b.Run("publish/"+shape.name, func(b *testing.B) {
			w := &folder{progress: testProgress(), layout: testLayout, rooms: &sync.Pool{}}
			for _, rec := range records {
				w.classified[0].Add(rec, testLayout)
			}
			result, err := w.fold.Fold(w.classified[0].Events, &memory{})
			require.NoError(b, err)
			next := kafka.Position{Offset: benchBatch, Epoch: 1}
			b.ReportAllocs()
			for b.Loop() {
				w.publish(&output{progress: w.progress}, &w.classified[0], result, next, true)
			}
			perEvent(b, benchBatch)
		})
	}
}

// BenchmarkBatch is all of a batch that needs no server, with nothing known before.
func BenchmarkBatch(b *testing.B) {
	for _, shape := range shapes {
		records := benchRecords(shape.posts)
		b.Run(shape.name, func(b *testing.B) {
			w := &folder{progress: testProgress(), layout: testLayout, rooms: &sync.Pool{}}
			state := &memory{pairs: map[fold.PairKey]schema.Pair{}}
			b.ReportAllocs()
			for b.Loop() {
				publishBatch(b, w, state, kafka.Position{Offset: benchBatch, Epoch: 1}, records...)
			}
			perEvent(b, benchBatch)
		})
	}
}

// BenchmarkCollapse sums up the updates of 50 batches of 1,000 events.
func BenchmarkCollapse(b *testing.B) {
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			w := &folder{progress: testProgress(), layout: testLayout, rooms: &sync.Pool{}}
			var updates []*kgo.Record
			records := benchRecords(shape.posts)
			for i := 0; i < len(records); i += 1000 {
				out := publishBatch(b, w, &memory{}, kafka.Position{Offset: int64(i + 1000), Epoch: 1}, records[i:i+1000]...)
				w.progress = out.progress
				for _, rec := range out.records {
					if rec.Topic == schema.TopicUpdates {
						updates = append(updates, rec)
					}
				}
			}
			c := &counter{position: sql.Position{NextSeq: testProgress().NextSeq}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.collapse(updates); err != nil {
					b.Fatal(err)
				}
			}
			perEvent(b, benchBatch)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(updates)), "ns/update")
			b.ReportMetric(float64(len(c.counts)), "rows")
		})
	}
}
