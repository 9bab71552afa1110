package ranker_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/integration/rankings"
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
	a.opts.EmitInterval = 50 * time.Millisecond
	a.opts.IdleAfter = time.Hour
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

// start starts a ranker and replaces the previous one.
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
	value, err := schema.AppendExclusion(nil, schema.Exclusion{Excluded: true})
	require.NoError(a.t, err)
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
func (a *arena) waitSettled() *rankings.Result {
	a.t.Helper()
	return a.waitSettledOf(a.logs)
}

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
