package producer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/httpserver/admin"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

const partitions = 4

// startProducer runs `kudos producer` on an empty Kafka, and returns its HTTP address
// and that of its admin server.
func startProducer(t testing.TB, kafka *stack.Kafka) (addr, adminAddr string) {
	t.Helper()
	require.NoError(t, kafka.Reset(t.Context()))
	brokers := strings.Join(kafka.Brokers(), ",")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, shared.Kudos(t), "topics", "apply", "--brokers", brokers,
		"--set", fmt.Sprintf("topics.partitions=%d", partitions), "--set", "topics.replication_factor=1").CombinedOutput()
	require.NoError(t, err, "%s", out)

	var at [2]string
	for i := range at {
		r, err := stack.Reserve()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Release()) })
		at[i] = r.Address()
	}
	p := stack.NewProgram(stack.ProgramOptions{
		Name: "producer", Path: shared.Kudos(t), Dir: t.TempDir(),
		Args:  []string{"producer", "--brokers", brokers, "--set", "producer.http_addr=" + at[0], "--set", "admin.addr=" + at[1], "--set", "admin.profiles=true"},
		Probe: func(ctx context.Context) error { return admin.Ask(ctx, at[1]) },
	})
	require.NoError(t, p.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, p.Stop())
		if t.Failed() {
			t.Logf("log of the producer:\n%s", p.LogTail())
		}
	})
	return at[0], at[1]
}

// likesOf reads n events of likes, and wants them to be all: how often each user is there.
func likesOf(t *testing.T, brokers []string, n int64) map[uint64]int {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(schema.TopicLikes), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	users := map[uint64]int{}
	l := newLikes(1, DefaultOptions().Posts)
	var read int64
	ends := map[int32]int64{}
	for read < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "likes has %d events, not %d", read, n)
		fetches.EachError(func(_ string, _ int32, err error) { require.NoError(t, err) })
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { ends[p.Partition] = p.HighWatermark })
		fetches.EachRecord(func(r *kgo.Record) {
			var e schema.Event
			require.NoError(t, schema.DecodeEvent(r.Key, r.Value, &e))
			require.Equal(t, l.post(e.UserID), e.PostID)
			require.Equal(t, schema.Like, e.Action)
			users[e.UserID]++
			read++
		})
	}
	require.Equal(t, n, read)
	var written int64
	for _, end := range ends {
		written += end
	}
	require.Equal(t, n, written, "events in likes")
	return users
}

// The load arrives exactly: every like that was accepted is in the topic, once.
func TestEveryAcceptedLikeIsInTheTopicOnce(t *testing.T) {
	tier.Verify(t)
	kafka := shared.Kafka(t)
	addr, _ := startProducer(t, kafka)
	o := DefaultOptions()
	o.Addr, o.LatencyLimit = addr, time.Minute // so that none is given up, however slow the machine is
	likes := newLikes(1, o.Posts)
	single := &load{options: &o, likes: likes, connections: 32}
	batch := &load{options: &o, likes: likes, lines: 100, connections: 8}
	var sum int64
	for _, l := range []*load{single, batch, single} {
		step, err := l.hold(t.Context(), 1000, time.Second)
		require.NoError(t, err)
		require.Empty(t, step.FirstFailure)
		require.Zero(t, step.Unsent)
		require.EqualValues(t, 1000, step.Accepted)
		sum += step.Accepted
	}
	users := likesOf(t, kafka.Brokers(), sum)
	for user := uint64(1); user <= uint64(sum); user++ {
		require.Equal(t, 1, users[user], "user %d", user)
	}
}

// BenchmarkProducer measures `kudos producer` on a real Kafka, both on this machine, and
// prints the result. Run it with -benchtime 1x; it takes some two and a half minutes.
func BenchmarkProducer(b *testing.B) {
	for range b.N {
		b.StopTimer()
		addr, adminAddr := startProducer(b, shared.Kafka(b))
		o := DefaultOptions()
		o.Addr = addr
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)) // the steps as they come: b.Log keeps ten lines
		o.Log.Info("the producer's profiles", "url", "http://"+adminAddr+"/debug/pprof/")
		b.StartTimer()
		result, err := Measure(b.Context(), o)
		require.NoError(b, err)
		for name, e := range map[string]Endpoint{"single": result.Single, "batch": result.Batch} {
			b.ReportMetric(e.Capacity.LikesPerSecond, name+"-likes/s")
			b.ReportMetric(e.Half.P50Ms, name+"-half-p50-ms")
			b.ReportMetric(e.Half.P99Ms, name+"-half-p99-ms")
			b.ReportMetric(e.Half.P999Ms, name+"-half-p999-ms")
		}
		text, err := json.MarshalIndent(result, "", "  ")
		require.NoError(b, err)
		fmt.Printf("%s\n", text)
	}
}
