package ranker_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/integration/testrun"
	"kudos/ranker"
	"kudos/schema"
	"kudos/stream/kafka"
)

// arena is a broker with all topics, for running rankers.
type arena struct {
	*devtest.Kafka
	t      testing.TB
	log    *slog.Logger
	opts   ranker.Options
	run    *running
	passed [partitions]int // by partition, the number of rankings written before a reset
}

func newArena(t testing.TB, configure func(*ranker.Options)) *arena {
	a := &arena{Kafka: devtest.NewKafka(t), t: t, log: devtest.Log(), opts: ranker.DefaultOptions()}
	adm := kadm.NewClient(a.Client)
	for _, topic := range schema.Topics(partitions, 1) {
		configs := map[string]*string{}
		for k, v := range topic.Configs {
			if k != "message.timestamp.type" { // the test sets the append time of records
				configs[k] = &v
			}
		}
		_, err := adm.CreateTopic(t.Context(), topic.Partitions, 1, configs, topic.Name)
		require.NoError(t, err)
	}
	a.opts.StateDir = t.TempDir()
	a.opts.EmitInterval, a.opts.IdleAfter = 50*time.Millisecond, time.Hour
	a.opts.TopN = 20
	if configure != nil {
		configure(&a.opts)
	}
	return a
}

type running struct {
	*ranker.Ranker
	reg  *prometheus.Registry
	stop func() // and waits; the end of the test calls it, too
}

func (a *arena) start() {
	a.t.Helper()
	if a.run != nil {
		a.run.stop()
	}
	r := &running{reg: prometheus.NewRegistry()}
	var err error
	r.Ranker, err = ranker.New(a.opts, a.Options, nil, a.log, r.reg)
	require.NoError(a.t, err)
	r.stop = testrun.Start(a.t, "the ranker", patience, r.Run)
	a.run = r
}

// feed writes up to some records of each tape, from the positions in at, which it advances. It reports if more remain.
func (a *arena) feed(tapes [][]rankings.Record, at []int, some int) (more bool) {
	a.t.Helper()
	var records []*kgo.Record
	for p, tape := range tapes {
		n := min(some, len(tape)-at[p])
		for _, r := range tape[at[p] : at[p]+n] {
			records = append(records, &kgo.Record{
				Topic: schema.TopicUpdates, Partition: int32(p), Key: r.Key, Value: r.Value,
				Timestamp: time.UnixMilli(r.TimeMs),
			})
		}
		at[p] += n
		more = more || at[p] < len(tape)
	}
	a.Write(records...)
	return more
}

func (a *arena) feedAll(tapes [][]rankings.Record, some int) {
	a.t.Helper()
	for at := make([]int, partitions); a.feed(tapes, at, some); {
	}
}

func (a *arena) exclude(post uint64) {
	a.t.Helper()
	value := schema.AppendExclusion(nil, schema.Exclusion{Excluded: true})
	a.Write(&kgo.Record{Topic: schema.TopicExclusions, Key: schema.AppendPostKey(nil, post), Value: value})
}

// read reads the committed records of a partition.
func (a *arena) read(topic string, partition int32) (records []rankings.Record) {
	a.t.Helper()
	for _, r := range a.Records(topic, partition) {
		records = append(records, rankings.Record{
			Offset: r.Offset, TimeMs: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value,
		})
	}
	return records
}

func (a *arena) logs() *rankings.Log {
	a.t.Helper()
	l := &rankings.Log{}
	for p := range int32(partitions) {
		tape := &rankings.Tape{}
		for _, r := range a.read(schema.TopicUpdates, p) {
			tape.Add(r)
		}
		tape.EndAt(a.End(schema.TopicUpdates, p))
		l.Updates = append(l.Updates, tape)
		l.Rankings = append(l.Rankings, a.read(schema.TopicTrending, p)[a.passed[p]:]...)
	}
	l.Exclusions = a.read(schema.TopicExclusions, 0)
	return l
}

// waitFor waits until condition is true; it also returns the current state, for the failure message.
func (a *arena) waitFor(what string, condition func() (ok bool, now any)) {
	a.t.Helper()
	devtest.WaitFor(a.t, what, condition, func() string { return fmt.Sprintf("readiness: %v", a.run.Ready()) })
}

// waitSettled waits until every ranking follows from the log, and the last ones cover all of it.
func (a *arena) waitSettled() *rankings.Result { a.t.Helper(); return a.waitSettledOf(a.logs) }

func (a *arena) waitSettledOf(logs func() *rankings.Log) (v *rankings.Result) {
	a.t.Helper()
	o := a.opts
	config := rankings.Config{
		Windows: o.Windows, Lateness: o.AllowedLateness, Score: o.Score, HalfLife: o.HalfLife,
		TopN: o.TopN, MinLikes: o.MinLikes,
	}
	a.waitFor("rankings of the whole log", func() (bool, any) {
		var err error
		v, err = rankings.Check(logs(), config, &rankings.End{Idle: schema.NoMinute})
		require.NoError(a.t, err)
		return v.Differences.Total == 0, fmt.Sprint(v.Rankings, " rankings: ", v.Differences.String())
	})
	return v
}

func (a *arena) waitCommitted(n int64) {
	a.t.Helper()
	a.waitFor("commits", func() (bool, any) {
		least := n
		for p := range int32(partitions) {
			group, topic := schema.GroupTrendingLocal, schema.TopicUpdates
			at, ok, err := kafka.CommittedOffset(a.t.Context(), a.Client, group, topic, p)
			if err != nil || !ok {
				return false, err
			}
			least = min(least, at)
		}
		return least >= n, least
	})
}

// best is the all-time ranking, once there is one.
func (a *arena) best() (posts []uint64) {
	a.t.Helper()
	key := schema.RankingKey(schema.GlobalName, schema.LeaderboardAll)
	a.waitFor("a ranking "+key, func() (bool, any) {
		published := a.read(schema.TopicTrending, schema.KeyPartition([]byte(key), partitions))
		for _, r := range slices.Backward(published) {
			if string(r.Key) == key {
				ranking, err := schema.DecodeRanking(r.Value)
				require.NoError(a.t, err)
				for _, p := range ranking.Posts {
					posts = append(posts, p.PostID)
				}
				return true, nil
			}
		}
		return false, len(published)
	})
	return posts
}

func waitCaughtUp(t testing.TB, ready func() error, reg *prometheus.Registry) {
	t.Helper()
	devtest.WaitFor(t, "no lag", func() (bool, any) {
		if err := ready(); err != nil {
			return false, err
		}
		lag := testrun.Metric(t, reg, "kafka_consumergroup_lag")
		return lag == 0, lag
	}, func() string { return "" })
}

func aDay(events int, batching day.Batching) func(testing.TB) [][]rankings.Record {
	return func(t testing.TB) [][]rankings.Record {
		if testing.Short() { // the race detector finds in less data what it finds in more
			events = max(50, events/8)
		}
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
		posts := slices.SortedFunc(maps.Keys(active), func(a, b uint64) int {
			return cmp.Or(active[b]-active[a], cmp.Compare(a, b))
		})
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

// movieLens returns the updates of every each-th rating, by time.
func movieLens(user func(uint64) uint64, each int) func(testing.TB) [][]rankings.Record {
	return func(t testing.TB) [][]rankings.Record {
		events, err := day.MovieLens(filepath.Join(day.MovieLensDir(t), "ratings.csv.gz"), user)
		require.NoError(t, err)
		slices.SortStableFunc(events, func(a, b day.Event) int { return cmp.Compare(a.TimeMs, b.TimeMs) })
		var some []day.Event
		for i := 0; i < len(events); i += each {
			events[i].ArrivalMs = events[i].TimeMs
			some = append(some, events[i])
		}
		tapes, err := day.Updates(slices.Values(some), day.Batching{Partitions: partitions, MaxEvents: 1, Seed: 3})
		require.NoError(t, err)
		return records(t, tapes)
	}
}

// records ends each tape with an update at a common time: a window that has moved on waits for lagging partitions.
func records(t testing.TB, tapes []*rankings.Tape) (all [][]rankings.Record) {
	t.Helper()
	end := day.DefaultOptions(1).Start.Add(25 * time.Hour)
	for p, tape := range tapes {
		records := slices.Collect(tape.All())
		last := records[len(records)-1]
		var u schema.Update
		require.NoError(t, schema.DecodeUpdate(last.Value, &u))
		const nobodyElseLikes = 1 << 40
		post := postsOf(int32(p), nobodyElseLikes, 1)[0]
		u = schema.Update{
			Seq: u.Seq + 1, Counts: schema.Counts{Likes: 1}, SourceOffset: u.SourceOffset + 1,
			Deltas: []schema.Delta{{Region: day.Regions[0], Minute: end.Unix() / 60, Likes: 1}},
		}
		all = append(all, append(records, likeRecord(tape.End(), max(last.TimeMs, end.UnixMilli()), post, &u)))
	}
	return all
}

func likeRecord(offset, timeMs int64, post uint64, u *schema.Update) rankings.Record {
	return rankings.Record{
		Offset: offset, TimeMs: timeMs, Key: schema.AppendPostKey(nil, post), Value: schema.AppendUpdate(nil, u),
	}
}

func postsOf(partition int32, from uint64, n int) (posts []uint64) {
	for post := from; len(posts) < n; post++ {
		if schema.PartitionFor(post, partitions) == partition {
			posts = append(posts, post)
		}
	}
	return posts
}

// likes builds tapes of likes in one minute, one update each.
type likes struct {
	minute int64
	tapes  [partitions][]rankings.Record
	counts map[likesOf]int64
}

type likesOf struct {
	partition int32
	post      uint64
}

// add appends likes of a post to a partition. With buckets, its updates say that the post is in several partitions.
func (l *likes) add(p int32, post uint64, n int, region schema.Region, buckets int32) {
	for range n {
		l.counts[likesOf{p, post}]++
		i := int64(len(l.tapes[p]))
		l.tapes[p] = append(l.tapes[p], likeRecord(i, l.minute*60_000, post, &schema.Update{
			Seq: uint64(i), Counts: schema.Counts{Likes: l.counts[likesOf{p, post}]},
			SourceOffset: i + 1, Buckets: buckets,
			Deltas: []schema.Delta{{Region: region, Minute: l.minute, Likes: 1}},
		}))
	}
}

// likesAt returns a tape per partition: n likes of one post by different users, in one minute.
func likesAt(minute int64, n int) [][]rankings.Record {
	l := &likes{minute: minute, counts: map[likesOf]int64{}}
	for p := range int32(partitions) {
		l.add(p, postsOf(p, 1, 1)[0], n, day.Regions[0], 0)
	}
	return l.tapes[:]
}
