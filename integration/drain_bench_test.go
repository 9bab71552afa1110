package integration

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// BenchmarkDrain measures how fast one processor works off a log that is there when it
// starts, real Kafka to real MariaDB, both on this machine: events a second until the
// last is folded, and until the last is counted in MySQL. Starting the process and
// joining the groups is part of both. Run it with -benchtime 1x.
func BenchmarkDrain(b *testing.B) {
	events := fromEnv(b, "KUDOS_TEST_EVENTS", 2_000_000)
	for _, shape := range []struct {
		name  string
		posts uint64
	}{{"hot", 1}, {"1000_posts", 1000}, {"uniform", 1 << 40}} {
		b.Run(shape.name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				s := newRealSystem(b)
				s.preload(events, shape.posts)
				b.StartTimer()
				folded, counted := s.timeDrain(int64(events))
				b.ReportMetric(float64(events)/folded.Seconds(), "folded/s")
				b.ReportMetric(float64(events)/counted.Seconds(), "counted/s")
			}
		})
	}
}

// preload writes likes of random users.
func (s *system) preload(n int, posts uint64) {
	s.t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(60<<10), kgo.MaxBufferedRecords(100_000))
	start := time.Now().Add(-time.Hour).UnixMilli()
	failed := make(chan error, 1)
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	for i := range n {
		e := schema.Event{PostID: 1 + r.Uint64N(posts), UserID: 1 + r.Uint64N(1<<40), Action: schema.Like, TimeMs: start + int64(i)/1000, Region: schema.Region{'U', 'S'}}
		cl.Produce(s.t.Context(), record(&e), promise)
	}
	require.NoError(s.t, cl.Flush(s.t.Context()))
	select {
	case err := <-failed:
		require.NoError(s.t, err)
	default:
	}
	cl.Close()
}

// timeDrain starts a processor and takes the times, looking on as lightly as it can.
func (s *system) timeDrain(end int64) (folded, counted time.Duration) {
	s.t.Helper()
	adm := kadm.NewClient(s.client())
	p := s.processor("processor")
	begin := time.Now()
	require.NoError(s.t, p.Start(s.t.Context()))
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for folded == 0 || s.undrained() != "" {
		if committed, _ := s.standing(adm); folded == 0 && committed >= end {
			folded = time.Since(begin)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatal("the log was not drained in time")
		}
	}
	counted = time.Since(begin)
	require.NoError(s.t, p.Stop())
	return folded, counted
}
