package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
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

// BenchmarkProcessors measures how fast 1, 2 and 4 processor processes work off a log of 8 partitions, everything on this
// machine, as BenchmarkDrain does, and what CPU time they take together for a million events: how that grows with their
// number is what more of them cost on machines of their own.
func BenchmarkProcessors(b *testing.B) {
	events := fromEnv(b, "KUDOS_TEST_EVENTS", 4_000_000)
	for _, processes := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(processes), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				s := newSystem(b)
				s.partitions = 8
				kafka := shared.Kafka(b)
				require.NoError(b, kafka.Reset(b.Context()))
				s.brokers, s.dsn = kafka.Brokers(), shared.MariaDB(b).NewDatabase(b)
				s.prepare()
				s.preload(events, 1000)
				b.StartTimer()
				counted, cpu := s.timeProcessors(processes)
				b.ReportMetric(float64(events)/counted.Seconds(), "counted/s")
				b.ReportMetric(cpu/float64(events)*1e6, "cpu-s/10⁶")
			}
		})
	}
}

// timeProcessors starts so many at once, and takes the time until all is counted and the CPU time of all of them.
func (s *system) timeProcessors(n int) (counted time.Duration, cpu float64) {
	s.t.Helper()
	var processors []*stack.Server
	var admins []string
	for i := range n {
		s.admin = s.address()
		admins = append(admins, s.admin)
		processors = append(processors, s.processor(fmt.Sprintf("processor-%d", i)))
	}
	begin := time.Now()
	for _, p := range processors {
		require.NoError(s.t, p.Start(s.t.Context()))
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for s.undrained() != "" {
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatal("the log was not drained in time")
		}
	}
	counted = time.Since(begin)
	for i, p := range processors {
		cpu += scrape(s.t, admins[i])["process_cpu_seconds_total"].GetMetric()[0].GetCounter().GetValue()
		require.NoError(s.t, p.Stop())
	}
	return counted, cpu
}

// BenchmarkSizes measures what the logs and tables take that a log of likes leads to, in bytes: a record of each topic as
// Kafka keeps it, and a row of like_count in InnoDB. Kafka's are before compaction.
func BenchmarkSizes(b *testing.B) {
	events := fromEnv(b, "KUDOS_TEST_EVENTS", 1_000_000)
	for range b.N {
		s := newRealSystem(b)
		s.preload(events, 1_000_000)
		_, _ = s.timeDrain(int64(events))
		adm := kadm.NewClient(s.client())
		dirs, err := adm.DescribeAllLogDirs(b.Context(), nil)
		require.NoError(b, err)
		ends, err := adm.ListEndOffsets(b.Context(), schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
		require.NoError(b, err)
		bytes, records := map[string]int64{}, map[string]int64{}
		dirs.Each(func(d kadm.DescribedLogDir) {
			d.Topics.Each(func(p kadm.DescribedLogDirPartition) { bytes[p.Topic] += p.Size })
		})
		ends.Each(func(o kadm.ListedOffset) { records[o.Topic] += o.Offset })
		for topic, n := range records {
			b.ReportMetric(float64(bytes[topic])/float64(n), topic+"-B")
		}
		var rows, size int64
		_, err = s.db.Exec("ANALYZE TABLE like_count")
		require.NoError(b, err)
		require.NoError(b, s.db.QueryRow("SELECT COUNT(*) FROM like_count").Scan(&rows))
		require.NoError(b, s.db.QueryRow("SELECT data_length FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'like_count'").Scan(&size))
		b.ReportMetric(float64(size)/float64(rows), "like_count-B")
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
