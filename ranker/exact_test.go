package ranker_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/integration/testrun"
	"kudos/ranker"
	"kudos/schema"
	"kudos/stream/kafka"
)

// arena is a broker with all topics, in which rankers run.
type arena struct {
	t     testing.TB
	log   *slog.Logger
	kafka kafka.Options
	cl    *kgo.Client
	opts  ranker.Options
	run   *running
	// passed are so many rankings of each partition that are of before a reset.
	passed [partitions]int
}

func newArena(t testing.TB, configure func(*ranker.Options)) *arena {
	a := &arena{t: t, log: slog.New(slog.DiscardHandler), kafka: kafka.DefaultOptions(), opts: ranker.DefaultOptions()}
	if os.Getenv("KUDOS_TEST_LOG") != "" {
		a.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second),
		// kfake compacts what is not committed yet: never.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "100000000000"}))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	a.kafka.Brokers = broker.ListenAddrs()
	a.cl, err = a.kafka.NewClient(a.log, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(a.cl.Close)
	adm := kadm.NewClient(a.cl)
	for _, topic := range schema.Topics(partitions, 1) {
		configs := map[string]*string{}
		for k, v := range topic.Configs {
			if k != "message.timestamp.type" { // the test says when records were appended
				configs[k] = &v
			}
		}
		_, err := adm.CreateTopic(t.Context(), topic.Partitions, 1, configs, topic.Name)
		require.NoError(t, err)
	}
	a.opts.StateDir = t.TempDir()
	a.opts.EmitInterval = 50 * time.Millisecond
	a.opts.IdleAfter = time.Hour
	a.opts.TopN = 20
	if configure != nil {
		configure(&a.opts)
	}
	return a
}

// running is a ranker at work.
type running struct {
	*ranker.Ranker
	reg  *prometheus.Registry
	stop func() // and waits; also at the end of the test
}

// start starts a ranker in the place of the one before.
func (a *arena) start() {
	a.t.Helper()
	if a.run != nil {
		a.run.stop()
	}
	r := &running{reg: prometheus.NewRegistry()}
	var err error
	r.Ranker, err = ranker.New(a.opts, a.kafka, nil, a.log, r.reg)
	require.NoError(a.t, err)
	r.stop = testrun.Start(a.t, "the ranker", patience, r.Run)
	a.run = r
}

// feed writes records of the tapes from the places in at on, some for each partition, and
// moves those on. It tells whether there are more.
func (a *arena) feed(tapes [][]rankings.Record, at []int, some int) (more bool) {
	a.t.Helper()
	var records []*kgo.Record
	for p, tape := range tapes {
		n := min(some, len(tape)-at[p])
		for _, r := range tape[at[p] : at[p]+n] {
			records = append(records, &kgo.Record{Topic: schema.TopicUpdates, Partition: int32(p), Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.TimeMs)})
		}
		at[p] += n
		more = more || at[p] < len(tape)
	}
	require.NoError(a.t, a.cl.ProduceSync(a.t.Context(), records...).FirstErr())
	return more
}

// exclude writes an exclusion.
func (a *arena) exclude(post uint64, excluded bool) {
	a.t.Helper()
	value, err := schema.AppendExclusion(nil, schema.Exclusion{Excluded: excluded})
	require.NoError(a.t, err)
	require.NoError(a.t, a.cl.ProduceSync(a.t.Context(), &kgo.Record{Topic: schema.TopicExclusions, Key: schema.AppendPostKey(nil, post), Value: value}).FirstErr())
}

// read reads a partition of committed data.
func (a *arena) read(topic string, partition int32) (records []rankings.Record, end int64) {
	a.t.Helper()
	err := kafka.ReadLog(a.t.Context(), a.cl, topic, partition, 0, func(c kafka.LogChunk) (bool, error) {
		for _, r := range c.Records {
			records = append(records, rankings.Record{Offset: r.Offset, TimeMs: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value})
		}
		end = c.Next
		return c.Next < c.End, nil
	})
	require.NoError(a.t, err)
	return records, end
}

func (a *arena) logs() *rankings.Log {
	l := &rankings.Log{}
	for p := range int32(partitions) {
		tape := &rankings.Tape{}
		records, end := a.read(schema.TopicUpdates, p)
		for _, r := range records {
			tape.Add(r)
		}
		tape.EndAt(end)
		l.Updates = append(l.Updates, tape)
		published, _ := a.read(schema.TopicTrending, p)
		l.Rankings = append(l.Rankings, published[a.passed[p]:]...)
	}
	l.Exclusions, _ = a.read(schema.TopicExclusions, 0)
	return l
}

func (a *arena) config() rankings.Config {
	o := a.opts
	return rankings.Config{Windows: o.Windows, Lateness: o.AllowedLateness, Score: o.Score, HalfLife: o.HalfLife, TopN: o.TopN, MinLikes: o.MinLikes}
}

// waitSettled waits until the last rankings cover the whole log.
func (a *arena) waitSettled() *rankings.Verdict {
	a.t.Helper()
	// As long as rankings come, it goes on: small batches on a busy machine take their time.
	var deadline time.Time
	published := -1
	for {
		v, err := rankings.Check(a.logs(), a.config(), &rankings.End{Idle: schema.NoMinute})
		require.NoError(a.t, err)
		if v.Differences.Total == 0 {
			return v
		}
		if v.Rankings != published {
			published, deadline = v.Rankings, time.Now().Add(patience)
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("nothing new for %s: %v; readiness: %v", patience, v.Differences.String(), a.run.Ready())
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-a.t.Context().Done():
		}
	}
}

// aDay is the updates of a day.
func aDay(events int, batching day.Batching) func(testing.TB) [][]rankings.Record {
	return func(t testing.TB) [][]rankings.Record {
		tapes, err := day.Updates(day.Events(day.DefaultOptions(events)), batching)
		require.NoError(t, err)
		return records(t, tapes)
	}
}

// sharedDay is aDay in which every third of the 60 most active posts has user buckets.
func sharedDay(events, first int) func(testing.TB) [][]rankings.Record {
	return func(t testing.TB) [][]rankings.Record {
		active := map[uint64]int{}
		for e := range day.Events(day.DefaultOptions(events)) {
			active[e.PostID]++
		}
		posts := slices.SortedFunc(maps.Keys(active), func(a, b uint64) int { return cmp.Or(active[b]-active[a], cmp.Compare(a, b)) })
		batching := day.DefaultBatching(partitions)
		var list []string
		for i := first; i < 60; i += 3 {
			list = append(list, fmt.Sprintf("%d:%d", posts[i], 2+i))
		}
		var err error
		batching.UserBuckets, err = schema.ParseUserBuckets(list)
		require.NoError(t, err)
		return aDay(events, batching)(t)
	}
}

// movieLens is the updates of the ratings, in the order of their times, every so manieth.
func movieLens(user func(uint64) uint64, batching day.Batching, each int) func(testing.TB) [][]rankings.Record {
	return func(t testing.TB) [][]rankings.Record {
		folder := os.Getenv("KUDOS_TEST_DATA")
		if folder == "" {
			const missing = "KUDOS_TEST_DATA is not set: it names the folder that holds movielens-small/"
			require.Empty(t, os.Getenv("CI"), missing)
			t.Skip(missing)
		}
		events, err := day.MovieLens(filepath.Join(folder, "movielens-small", "ratings.csv.gz"), user)
		require.NoError(t, err)
		slices.SortStableFunc(events, func(a, b day.Event) int { return cmp.Compare(a.TimeMs, b.TimeMs) })
		var some []day.Event
		for i := 0; i < len(events); i += each {
			events[i].ArrivalMs = events[i].TimeMs
			some = append(some, events[i])
		}
		tapes, err := day.Updates(slices.Values(some), batching)
		require.NoError(t, err)
		return records(t, tapes)
	}
}

func records(t testing.TB, tapes []*rankings.Tape) (all [][]rankings.Record) {
	t.Helper()
	for p, tape := range tapes {
		all = append(all, append(slices.Collect(tape.All()), closing(t, tape, int32(p))))
	}
	return all
}

// closing is a last update, at the same time in all partitions: a window that has gone on
// without those that lag behind waits for them to come there.
func closing(t testing.TB, tape *rankings.Tape, partition int32) rankings.Record {
	post := uint64(1 << 40) // none of those that others like
	for schema.PartitionFor(post, partitions) != partition {
		post++
	}
	var last schema.Update
	var at int64
	for r := range tape.All() {
		require.NoError(t, schema.DecodeUpdate(r.Value, &last))
		at = r.TimeMs
	}
	end := day.DefaultOptions(1).Start.Add(25 * time.Hour)
	return rankings.Record{
		Offset: tape.End(), TimeMs: max(at, end.UnixMilli()), Key: schema.AppendPostKey(nil, post),
		Value: schema.AppendUpdate(nil, &schema.Update{
			Seq: last.Seq + 1, Counts: schema.Counts{Likes: 1}, SourceOffset: last.SourceOffset + 1,
			Deltas: []schema.Delta{{Region: day.Regions[0], Minute: end.Unix() / 60, Likes: 1}},
		}),
	}
}

// TestRankingsAreExact: a day's likes, in batches of any size, with rankers that stop and
// start and posts that are taken out and put back.
func TestRankingsAreExact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		configure func(*ranker.Options)
		tapes     func(testing.TB) [][]rankings.Record
	}{
		{"large batches", nil, aDay(40_000, day.DefaultBatching(partitions))},
		{"batches of 7", func(o *ranker.Options) { o.MaxBatch = 7 }, aDay(1_500, day.Batching{Partitions: partitions, MaxEvents: 3, WaitMs: 1000, Seed: 2})},
		{"decay", func(o *ranker.Options) { o.Score, o.AllowedLateness, o.TopN = "decay", 5*time.Minute, 5 }, aDay(40_000, day.DefaultBatching(partitions))},
		{"other windows", func(o *ranker.Options) {
			o.Windows = []time.Duration{time.Minute, 90 * time.Minute, 12 * time.Hour}
			o.AllowedLateness, o.MinLikes = 0, 2
		}, aDay(40_000, day.DefaultBatching(partitions))},
		{"the most liked posts shared", func(o *ranker.Options) { o.MaxBatch, o.TopN = 2000, 5 }, sharedDay(20_000, 0)},
		{"some posts shared, decay", func(o *ranker.Options) { o.Score, o.TopN, o.MinLikes = "decay", 3, 2 }, sharedDay(10_000, 1)},
		{"MovieLens, each person", nil, movieLens(day.EachPerson, day.Batching{Partitions: partitions, MaxEvents: 1, WaitMs: 0, Seed: 3}, 8)},
		{"MovieLens, people who change their minds", func(o *ranker.Options) { o.MaxBatch = 100 }, movieLens(day.ChangingMinds, day.Batching{Partitions: partitions, MaxEvents: 1, WaitMs: 0, Seed: 3}, 30)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, tt.configure)
			a.start()
			tapes := tt.tapes(t)
			at := make([]int, partitions)
			longest := 0
			for _, tape := range tapes {
				longest = max(longest, len(tape))
			}
			for i := 0; a.feed(tapes, at, longest/12+1); i++ {
				switch i {
				case 2, 7:
					a.start()
				case 4:
					a.exclude(mostLiked(a), true)
				case 6:
					a.exclude(mostLiked(a), true)
				}
			}
			v := a.waitSettled()
			t.Logf("%d updates, %d rankings", v.Updates, v.Rankings)
			require.Positive(t, v.Rankings)
		})
	}
}

// mostLiked is the first of the ranking of all time, as soon as there is one.
func mostLiked(a *arena) uint64 { return best(a)[0] }

// best is the ranking of all time, as soon as there is one.
func best(a *arena) (posts []uint64) {
	a.t.Helper()
	deadline := time.Now().Add(patience)
	key := schema.RankingKey(schema.GlobalName, schema.LeaderboardAll)
	for time.Now().Before(deadline) {
		published, _ := a.read(schema.TopicTrending, schema.KeyPartition([]byte(key), partitions))
		for _, r := range slices.Backward(published) {
			if string(r.Key) == key {
				ranking, err := schema.DecodeRanking(r.Value)
				require.NoError(a.t, err)
				for _, p := range ranking.Posts {
					posts = append(posts, p.PostID)
				}
				return posts
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-a.t.Context().Done():
		}
	}
	a.t.Fatalf("no ranking %s; readiness: %v", key, a.run.Ready())
	return nil
}

// TestUnsealedListsAreNotSeen: an exclusion makes lists anew at the position where they were. They count once all of
// them are there, even where each comes in a batch of its own.
func TestUnsealedListsAreNotSeen(t *testing.T) {
	t.Parallel()
	a := newArena(t, func(o *ranker.Options) { o.MaxBatch, o.EmitInterval, o.TopN = 1, time.Millisecond, 5 })
	tapes := aDay(150, day.DefaultBatching(partitions))(t)
	a.feed(tapes, make([]int, partitions), len(tapes[0])+len(tapes[1])+len(tapes[2])+len(tapes[3]))
	a.start()
	a.waitSettled()
	for range 3 {
		for _, post := range best(a) {
			a.exclude(post, true)
		}
		a.waitSettled()
	}
}

// likesAt is a tape for each partition: n likes of different users for one post each, in
// one minute.
func likesAt(minute int64, n int) [][]rankings.Record {
	tapes := make([][]rankings.Record, partitions)
	for p := range tapes {
		post := uint64(1)
		for schema.PartitionFor(post, partitions) != int32(p) {
			post++
		}
		for i := range n {
			u := schema.Update{
				Seq: uint64(i), Counts: schema.Counts{Likes: int64(i) + 1}, SourceOffset: int64(i) + 1,
				Deltas: []schema.Delta{{Region: day.Regions[0], Minute: minute, Likes: 1}},
			}
			tapes[p] = append(tapes[p], rankings.Record{Offset: int64(i), TimeMs: minute * 60_000, Key: schema.AppendPostKey(nil, post), Value: schema.AppendUpdate(nil, &u)})
		}
	}
	return tapes
}

// waitCommitted waits until the group has worked off so many records of each partition.
func (a *arena) waitCommitted(n int64) {
	a.t.Helper()
	deadline := time.Now().Add(patience)
	for p := range int32(partitions) {
		for {
			at, ok, err := kafka.CommittedOffset(a.t.Context(), a.cl, schema.GroupTrendingLocal, schema.TopicUpdates, p)
			if err == nil && ok && at >= n {
				break
			}
			require.True(a.t, time.Now().Before(deadline), "partition %d: committed %d, %v, %v", p, at, ok, err)
		}
	}
}

// TestWhatWasCountedIsListedAfterARestart: updates are committed in every batch, lists only
// at intervals. The next ranker makes those that were due.
func TestWhatWasCountedIsListedAfterARestart(t *testing.T) {
	t.Parallel()
	a := newArena(t, func(o *ranker.Options) { o.EmitInterval = 24 * time.Hour })
	tapes, at := likesAt(29_000_000, 20), make([]int, partitions)
	a.start()
	a.feed(tapes, at, 1)
	a.waitCommitted(1)
	a.feed(tapes, at, 19)
	a.waitCommitted(20)
	a.opts.EmitInterval = 50 * time.Millisecond
	a.start()
	a.waitSettled()
}

// TestRegionsThatAreNotListedCountTogether: only those listed have rankings of their own.
func TestRegionsThatAreNotListedCountTogether(t *testing.T) {
	t.Parallel()
	a := newArena(t, func(o *ranker.Options) { o.Regions = []string{day.Regions[0].String()} })
	tapes, at := aDay(3000, day.DefaultBatching(partitions))(t), make([]int, partitions)
	a.start()
	for a.feed(tapes, at, 1000) {
	}
	likes := map[string]int64{}
	deadline := time.Now().Add(patience)
	// Rankings of one moment are read one after the other.
	for likes["ZZ"] == 0 || likes[day.Regions[0].String()] == 0 || likes[schema.GlobalName] <= max(likes["ZZ"], likes[day.Regions[0].String()]) {
		require.True(t, time.Now().Before(deadline), "rankings: %v; readiness: %v", likes, a.run.Ready())
		for p := range int32(partitions) {
			published, _ := a.read(schema.TopicTrending, p)
			for _, rec := range published {
				r, err := schema.DecodeRanking(rec.Value)
				require.NoError(t, err)
				require.Contains(t, []string{schema.GlobalName, "ZZ", day.Regions[0].String()}, r.Region)
				if r.Window == schema.LeaderboardAll {
					likes[r.Region] = r.Posts[0].Likes
				}
			}
		}
	}
}
