package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/rankings"
	"kudos/integration/stack"
	"kudos/schema"
)

// BenchmarkRanker measures one ranker on a real Kafka, 4 partitions: updates a second,
// and a second of its own CPU time, over a log that is there when it starts; the memory
// that it has then; and the time from its start to a ranking of all that there is, with its local
// state and without. The log has updates of a million posts, one like each and the others by
// popularity, 5 regions, of 20 minutes or of a day: each minute of event time costs a look
// through the active posts, once. Run it with -benchtime 1x.
func BenchmarkRanker(b *testing.B) {
	updates := fromEnv(b, "KUDOS_TEST_EVENTS", 2_000_000)
	for name, minutes := range map[string]int64{"20_minutes": 20, "a_day": 24 * 60} {
		b.Run(name, func(b *testing.B) { benchmarkRanker(b, updates, minutes) })
	}
}

func benchmarkRanker(b *testing.B, updates int, minutes int64) {
	for range b.N {
		b.StopTimer()
		s := newRealSystem(b)
		at, err := stack.Reserve()
		require.NoError(b, err)
		s.admin, s.emitInterval, s.stateDir = at.Address(), "1s", b.TempDir()
		s.preloadUpdates(updates, minutes)
		p := s.ranker("ranker", busy...)
		adm := kadm.NewClient(s.client())
		b.StartTimer()
		begin := time.Now()
		require.NoError(b, p.Start(b.Context()))
		waitFor(b, 20*time.Minute, "the updates to be ranked", func() bool { lag, _ := s.rankerLag(adm); return lag <= 0 })
		took := time.Since(begin)
		b.StopTimer()
		m := s.metrics()
		b.ReportMetric(float64(updates)/took.Seconds(), "updates/s")
		b.ReportMetric(float64(updates)/m["process_cpu_seconds_total"], "updates/cpu-s")
		b.ReportMetric(m["kudos_ranker_active_posts"], "active")
		b.ReportMetric(m["go_memstats_heap_inuse_bytes"]/m["kudos_ranker_active_posts"], "heap-bytes/active")
		b.ReportMetric(m["process_resident_memory_bytes"]/(1<<20), "rss-MiB")
		for i, name := range []string{"local-state-s", "no-state-s"} {
			require.NoError(b, p.Stop())
			if i == 1 {
				require.NoError(b, os.RemoveAll(filepath.Join(s.stateDir, "state")))
			}
			b.ReportMetric(s.timeToRanking(p, i).Seconds(), name)
		}
		require.NoError(b, at.Release())
	}
}

// timeToRanking starts a ranker and waits for a ranking that has a like which was there
// before: the only one of its region.
func (s *system) timeToRanking(p *stack.Server, i int) time.Duration {
	s.t.Helper()
	region := schema.Region{'X', byte('A' + i)}
	log, err := rankings.Read(s.t.Context(), s.brokers)
	require.NoError(s.t, err)
	var last schema.Update
	for r := range log.Updates[0].All() {
		require.NoError(s.t, schema.DecodeUpdate(r.Value, &last))
	}
	minute := time.Now().Unix() / 60
	cl := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for p := range int32(partitions) { // in all of them, so that all come to the same time
		for r := range log.Updates[p].All() {
			require.NoError(s.t, schema.DecodeUpdate(r.Value, &last))
		}
		post := uint64(1 << 40)
		for schema.PartitionFor(post, partitions) != p {
			post++
		}
		u := schema.Update{Seq: last.Seq + 1, Counts: schema.Counts{Likes: int64(i) + 1}, Deltas: []schema.Delta{{Region: region, Minute: minute, Likes: 1}}}
		records = append(records, &kgo.Record{Topic: schema.TopicUpdates, Partition: p, Key: schema.AppendPostKey(nil, post), Value: schema.AppendUpdate(nil, &u)})
	}
	require.NoError(s.t, cl.ProduceSync(s.t.Context(), records...).FirstErr())
	key := schema.RankingKey(region.String(), "24h")
	// From the start: the region is new, and the rankings before are few.
	reader := s.client(kgo.ConsumeTopics(schema.TopicTrending), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	begin := time.Now()
	require.NoError(s.t, p.Start(s.t.Context()))
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

// preloadUpdates writes like-updates as they would be of so many minutes.
func (s *system) preloadUpdates(n int, minutes int64) {
	s.t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	popular := rand.NewZipf(r, 1.1, 10, 1_000_000-1)
	regions := []schema.Region{{'U', 'S'}, {'D', 'E'}, {'I', 'N'}, {'B', 'R'}, {'J', 'P'}}
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicUpdates), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(100_000))
	start := time.Now().Unix()/60 - minutes - 10
	failed := make(chan error, 1)
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	var seq [partitions]uint64
	likes := map[uint64]int64{}
	for i := range n {
		post := uint64(i)
		if i%3 != 0 || post >= 3_000_000 {
			post = popular.Uint64() * 3
		}
		likes[post]++
		p := schema.PartitionFor(post, partitions)
		u := schema.Update{
			Seq: seq[p], Counts: schema.Counts{Likes: likes[post]}, SourceOffset: int64(seq[p]) + 1,
			Deltas: []schema.Delta{{Region: regions[r.IntN(5)], Minute: start + int64(i)*minutes/int64(n), Likes: 1}},
		}
		seq[p]++
		cl.Produce(s.t.Context(), &kgo.Record{Partition: p, Key: schema.AppendPostKey(nil, post), Value: schema.AppendUpdate(nil, &u)}, promise)
	}
	require.NoError(s.t, cl.Flush(s.t.Context()))
	select {
	case err := <-failed:
		require.NoError(s.t, err)
	default:
	}
	cl.Close()
}

// metrics are those of the process at the admin address, summed up over their labels.
func (s *system) metrics() map[string]float64 {
	s.t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://%s/metrics", s.admin))
	require.NoError(s.t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(s.t, err)
	sums := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			sums[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sums
}
