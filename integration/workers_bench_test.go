package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/rankings"
	"kudos/schema"
)

// BenchmarkSizes measures the size of the logs and tables that result from likes, in bytes: per record of each Kafka
// topic, before compaction, and per row of like_count in InnoDB.
func BenchmarkSizes(b *testing.B) {
	events := fromEnv(b, "KUDOS_TEST_EVENTS", 1_000_000)
	s := newRealSystem(b)
	r, start := rand.New(rand.NewPCG(1, 1)), time.Now().Add(-time.Hour).UnixMilli()
	s.pour(func(send func(schema.Event)) {
		for i := range events {
			post, user := 1+r.Uint64N(1_000_000), 1+r.Uint64N(1<<40)
			send(likeIn(schema.Region{'U', 'S'}, post, user, start+int64(i)/1000))
		}
	})
	s.processor("processor").start()
	s.drain(5 * time.Minute)
	dirs, err := s.admin().DescribeAllLogDirs(b.Context(), nil)
	require.NoError(b, err)
	bytes := map[string]int64{}
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) { bytes[p.Topic] += p.Size })
	})
	for _, topic := range []string{schema.TopicLikes, schema.TopicState, schema.TopicUpdates,
		schema.TopicCounts} {
		b.ReportMetric(float64(bytes[topic])/float64(s.written(b.Context(), topic)), topic+"-B")
	}
	s.db.MustExec("ANALYZE TABLE like_count")
	rows := queryRow[int64](b, s.db, "SELECT COUNT(*) FROM like_count")
	size := queryRow[int64](b, s.db, "SELECT data_length FROM information_schema.tables "+
		"WHERE table_schema = DATABASE() AND table_name = 'like_count'")
	b.ReportMetric(float64(size)/float64(rows), "like_count-B")
}

// BenchmarkRanker measures one ranker on a real Kafka with 4 partitions: updates per second, and per second of its own
// CPU time, over a log that exists when it starts; its memory then; and the time from its start to a ranking of
// everything, with its local state and without. The log has updates of a million posts, one like each and the rest by
// popularity, 5 regions, of 20 minutes or of a day: each minute of event time costs one scan of the active posts. Run
// it with -benchtime 1x.
func BenchmarkRanker(b *testing.B) {
	updates := fromEnv(b, "KUDOS_TEST_EVENTS", 2_000_000)
	for name, minutes := range map[string]int64{"20_minutes": 20, "a_day": 24 * 60} {
		b.Run(name, func(b *testing.B) { benchmarkRanker(b, updates, minutes) })
	}
}

func benchmarkRanker(b *testing.B, updates int, minutes int64) {
	s := newRealSystem(b)
	s.emitInterval, s.stateDir = "1s", b.TempDir()
	s.preloadUpdates(updates, minutes)
	p := s.ranker("ranker", busy...)
	begin := time.Now()
	p.start()
	waitFor(b, 20*time.Minute, "the updates to be ranked", func() bool { lag, _ := s.rankerLag(); return lag <= 0 })
	took := time.Since(begin)
	m := p.sums()
	b.ReportMetric(float64(updates)/took.Seconds(), "updates/s")
	b.ReportMetric(float64(updates)/m["process_cpu_seconds_total"], "updates/cpu-s")
	b.ReportMetric(m["kudos_ranker_active_posts"], "active")
	b.ReportMetric(m["go_memstats_heap_inuse_bytes"]/m["kudos_ranker_active_posts"], "heap-bytes/active")
	b.ReportMetric(m["process_resident_memory_bytes"]/(1<<20), "rss-MiB")
	for i, name := range []string{"local-state-s", "no-state-s"} {
		p.stop()
		if i == 1 {
			require.NoError(b, os.RemoveAll(filepath.Join(s.stateDir, "state")))
		}
		b.ReportMetric(s.timeToRanking(p, i).Seconds(), name)
	}
}

// timeToRanking starts a ranker and waits for a ranking with a like already in the log, the only one of its region.
func (s *system) timeToRanking(p *process, i int) time.Duration {
	region := schema.Region{'X', byte('A' + i)}
	log, err := rankings.Read(s.t.Context(), s.brokers)
	require.NoError(s.t, err)
	var last schema.Update
	minute := time.Now().Unix() / 60
	var records []*kgo.Record
	for p := range int32(partitions) { // in all partitions, so that all reach the same time
		for r := range log.Updates[p].All() {
			require.NoError(s.t, schema.DecodeUpdate(r.Value, &last))
		}
		u := schema.Update{Seq: last.Seq + 1, Counts: schema.Counts{Likes: int64(i) + 2}, Deltas: []schema.Delta{
			{Region: region, Minute: minute - 10, Likes: 1}, // in the window, which ends after the watermark
			{Region: schema.Region{'U', 'S'}, Minute: minute, Likes: 1},
		}}
		records = append(records, updateRecord(p, fmt.Sprint(postFrom(1<<40, p, partitions)), u))
	}
	s.write(records...)
	key := schema.RankingKey(region.String(), "24h")
	// Read from the start: the region is new, and there are few rankings so far.
	reader := s.client(kgo.ConsumeTopics(schema.TopicTrending), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	begin := time.Now()
	p.start()
	for {
		fetches := reader.PollFetches(s.t.Context())
		require.NoError(s.t, fetches.Err())
		for iter := fetches.RecordIter(); !iter.Done(); {
			if rec := iter.Next(); string(rec.Key) == key {
				r, err := schema.DecodeRanking(rec.Value)
				require.NoError(s.t, err)
				if len(r.Posts) == partitions {
					return time.Since(begin)
				}
			}
		}
		require.Less(s.t, time.Since(begin), 10*time.Minute, "no ranking %s", key)
	}
}

func (s *system) preloadUpdates(n int, minutes int64) {
	r := rand.New(rand.NewPCG(1, 1))
	popular := rand.NewZipf(r, 1.1, 10, 1_000_000-1)
	regions := []schema.Region{{'U', 'S'}, {'D', 'E'}, {'I', 'N'}, {'B', 'R'}, {'J', 'P'}}
	w := s.writer(schema.TopicUpdates, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	start := time.Now().Unix()/60 - minutes - 10
	var seq [partitions]uint64
	likes := map[uint64]int64{}
	for i := range n {
		post := uint64(i)
		if i%3 != 0 || post >= 3_000_000 {
			post = popular.Uint64() * 3
		}
		likes[post]++
		p := schema.PartitionFor(post, partitions)
		u := schema.Update{Seq: seq[p], Counts: schema.Counts{Likes: likes[post]}, SourceOffset: int64(seq[p]) + 1,
			Deltas: []schema.Delta{{Region: regions[r.IntN(5)], Minute: start + int64(i)*minutes/int64(n), Likes: 1}}}
		seq[p]++
		w.send(updateRecord(p, fmt.Sprint(post), u))
	}
	require.NoError(s.t, w.close())
}

func (p *process) sums() map[string]float64 {
	sums := map[string]float64{}
	for name, f := range p.metrics() {
		for _, m := range f.GetMetric() {
			sums[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sums
}
