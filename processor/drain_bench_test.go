package processor_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/processor"
	"kudos/schema"
)

// BenchmarkDrain preloads likes and takes the time from the start of a processor to
// the last event folded (with MySQL away), and to the last MySQL commit.
//
// The embedded database scans where a real one looks up: uniform load, where each
// event is a row, needs a real one (KUDOS_TEST_MYSQL_DSN). KUDOS_BENCH_EVENTS is the
// number of events, 500,000 by default.
//
//	go test -run '^$' -bench Drain -benchtime 1x ./processor
func BenchmarkDrain(b *testing.B) {
	events := 500_000
	if n := os.Getenv("KUDOS_BENCH_EVENTS"); n != "" {
		var err error
		events, err = strconv.Atoi(n)
		require.NoError(b, err)
	}
	for _, shape := range []struct {
		name  string
		posts uint64
	}{{"hot", 1}, {"1000_posts", 1000}, {"uniform", 1 << 40}} {
		b.Run(shape.name+"/fold", func(b *testing.B) {
			drain(b, shape.posts, events, func(s *system) func(*instance) {
				s.throughProxy().SetAway(true)
				return func(p *instance) { p.waitFolded(events) }
			})
		})
		b.Run(shape.name+"/to_mysql", func(b *testing.B) {
			if shape.posts > 1000 && os.Getenv(devtest.RealServer) == "" {
				b.Skip("needs a real MariaDB or MySQL: set " + devtest.RealServer)
			}
			drain(b, shape.posts, events, func(s *system) func(*instance) {
				return func(p *instance) {
					p.waitFolded(events)
					s.waitApplied()
				}
			})
		})
	}
}

// drain takes the time from the start of a processor to the end of wait.
func drain(b *testing.B, posts uint64, events int, prepare func(*system) (wait func(*instance))) {
	b.StopTimer()
	for range b.N {
		s := newSystem(b)
		s.preload(posts, events)
		wait := prepare(s)
		b.StartTimer()
		p := s.run(func(o *processor.Options) {
			o.MaxBatch, o.CacheBytes = processor.DefaultOptions().MaxBatch, processor.DefaultOptions().CacheBytes
		})
		wait(p)
		b.StopTimer()
		b.ReportMetric(float64(p.metric("kudos_fold_transactions_total")), "fold_txns")
		b.ReportMetric(float64(p.metric("kudos_mysql_transactions_total")), "mysql_txns")
		p.stop()
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// preload writes likes of many users. One post lives in one partition.
func (s *system) preload(posts uint64, events int) {
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)),
		kgo.MaxBufferedRecords(100_000), kgo.ProducerLinger(20*time.Millisecond))
	defer cl.Close()
	r := rand.New(rand.NewPCG(1, 1))
	from := time.Now().UnixMilli()
	for i := range events {
		e := schema.Event{PostID: 1 + r.Uint64N(posts), UserID: 1 + r.Uint64N(1<<20), Action: schema.Like, TimeMs: from + int64(i/100), Region: schema.Region{'U', 'S'}}
		cl.Produce(s.t.Context(), record(e), func(_ *kgo.Record, err error) {
			if err != nil {
				s.t.Error(err)
			}
		})
	}
	require.NoError(s.t, cl.Flush(s.t.Context()))
}

// waitFolded waits until the processor has folded so many events.
func (p *instance) waitFolded(events int) {
	p.s.waitFor("all events to be folded", func() (bool, any) {
		n := p.metric("kudos_events_folded_total")
		return n >= events, n
	})
}

// waitApplied waits until MySQL stands at the end of like-updates, which is a commit
// marker.
func (s *system) waitApplied() {
	s.waitFor("all updates to be applied", func() (bool, any) {
		positions := s.positions()
		for p, info := range s.broker.PartitionInfos(schema.TopicUpdates) {
			if positions[p] < info.LastStableOffset-1 {
				return false, positions
			}
		}
		return true, nil
	})
}
