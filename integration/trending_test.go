package integration

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// busy is for logs whose times are not of today: no partition is to go by the wall clock.
var busy = []string{"--set", "ranker.idle_after=24h"}

// rankingSettings are those of the rankers here.
var rankingSettings = rankings.Config{
	Windows: []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour}, Lateness: 2 * time.Minute,
	Score: "count", HalfLife: 30 * time.Minute, TopN: 100, MinLikes: 1,
}

// ranker makes a ranker process with a state folder of its own; it is stopped at the end
// of the test.
func (s *system) ranker(name string, args ...string) *stack.Server {
	dir := cmp.Or(s.stateDir, s.t.TempDir())
	p := stack.NewProgram(stack.ProgramOptions{
		Name: name, Path: s.program, Dir: dir, Log: s.log,
		Args: append([]string{"ranker", "--brokers", s.brokerList(), "--set", s.mysql(), "--set", "admin.addr=" + s.admin,
			"--set", "ranker.state_dir=" + filepath.Join(dir, "state"), "--set", "ranker.session_timeout=" + s.sessionTimeout,
			"--set", "ranker.emit_interval=" + cmp.Or(s.emitInterval, "50ms")}, args...),
	})
	s.t.Cleanup(func() {
		if p.Running() {
			require.NoError(s.t, p.Stop())
		}
		s.showLog(p)
	})
	return p
}

// rankerLag is how many records of like-updates are not ranked yet, and how many are.
func (s *system) rankerLag(adm *kadm.Client) (lag, ranked int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	offsets, err := adm.FetchOffsets(ctx, schema.GroupTrendingLocal)
	if err == nil {
		offsets.Each(func(o kadm.OffsetResponse) { ranked += o.At })
	}
	ends, err := adm.ListEndOffsets(ctx, schema.TopicUpdates)
	require.NoError(s.t, err)
	ends.Each(func(o kadm.ListedOffset) { lag += o.Offset })
	return lag - ranked, ranked
}

// rankedWithin bounds the wait for the last rankings of so many events: ranking takes a
// while, and so does reading and checking all of it.
func rankedWithin(events int) time.Duration {
	return 2*time.Minute + time.Duration(events)*50*time.Microsecond
}

// waitRanked waits until the last rankings cover all of the log, in Kafka and in MySQL.
func (s *system) waitRanked(config rankings.Config, within time.Duration) {
	s.t.Helper()
	var v *rankings.Verdict
	var log *rankings.Log
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	for {
		var err error
		log, err = rankings.Read(ctx, s.brokers)
		require.NoError(s.t, err)
		v, err = rankings.Check(log, config, &rankings.End{Idle: schema.NoMinute})
		require.NoError(s.t, err)
		if v.Differences.Total == 0 {
			break
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("rankings after %s: %s", within, v.Differences.String())
		case <-time.After(time.Second): // the check itself takes as long
		}
	}
	s.t.Logf("%d updates, %d rankings", v.Updates, v.Rankings)
	require.Positive(s.t, v.Rankings)
	want := lastPosts(s.t, log)
	waitFor(s.t, time.Minute, "MySQL to have the last rankings", func() bool {
		have := s.postsInMySQL()
		return slices.Equal(want, have)
	})
}

// lastPosts lists the places of the last ranking of each key.
func lastPosts(t testing.TB, log *rankings.Log) []string {
	last := map[string]*schema.Ranking{}
	for _, rec := range log.Rankings {
		r, err := schema.DecodeRanking(rec.Value)
		require.NoError(t, err)
		last[string(rec.Key)] = r
	}
	var places []string
	for key, r := range last {
		for _, p := range r.Posts {
			places = append(places, fmt.Sprintf("%s %d: %d has %s, %d likes, as of %s", key, p.Rank, p.PostID, p.Score, p.Likes, r.Watermark))
		}
	}
	slices.Sort(places)
	return places
}

func (s *system) postsInMySQL() []string {
	s.t.Helper()
	var rows []struct {
		Key    string
		Rank   int
		PostID uint64 `db:"post_id"`
		Score  string
		Likes  int64
		AsOf   string `db:"as_of"`
	}
	require.NoError(s.t, s.db.Select(&rows, "SELECT CONCAT(region, '/', `window`) `key`, `rank`, post_id, score, likes, DATE_FORMAT(as_of, '%Y-%m-%dT%TZ') as_of FROM trending"+
		" UNION ALL SELECT CONCAT(region, '/', period), `rank`, post_id, likes, likes, DATE_FORMAT(as_of, '%Y-%m-%dT%TZ') FROM leaderboard"))
	places := make([]string, len(rows))
	for i, r := range rows {
		score := r.Score
		if strings.Contains(score, ".") {
			score = strings.TrimRight(strings.TrimRight(score, "0"), ".")
		}
		places[i] = fmt.Sprintf("%s %d: %d has %s, %d likes, as of %s", r.Key, r.Rank, r.PostID, score, r.Likes, r.AsOf)
	}
	slices.Sort(places)
	return places
}

// inTime puts events in the order of their times, and closes the log: a last event in
// each partition, at the same time.
func inTime(events []schema.Event) []schema.Event {
	slices.SortStableFunc(events, func(a, b schema.Event) int { return cmp.Compare(a.TimeMs, b.TimeMs) })
	return closed(events, events[len(events)-1].TimeMs+time.Hour.Milliseconds())
}

func closed(events []schema.Event, at int64) []schema.Event {
	for p := range int32(partitions) {
		post := uint64(1_000_000_007)
		for schema.PartitionFor(post, partitions) != p {
			post++
		}
		events = append(events, schema.Event{PostID: post, UserID: 1, Action: schema.Like, TimeMs: at, Region: day.Regions[0]})
	}
	return events
}

// aDay is so many events of the last 24 hours, in the order in which they arrive.
func aDay(events int) []schema.Event {
	o := day.DefaultOptions(events)
	o.Start = time.Now().Add(-25 * time.Hour).Truncate(time.Minute)
	all := make([]schema.Event, 0, events)
	for e := range day.Events(o) {
		all = append(all, e.Event)
	}
	return closed(all, time.Now().UnixMilli())
}

// Every ranking is what the log says at the positions that it names, while two rankers
// are killed time and again before they have caught up.
func TestRankingsAreExactWhenRankersAreKilled(t *testing.T) {
	tier.Test(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		events func(testing.TB) []schema.Event
		// batch of the processor: in a large one the likes of a popular post are one update.
		batch int
		kills int
	}{
		{"each_person", func(t testing.TB) []schema.Event { return inTime(eachPerson.events(t)) }, 500, 3},
		{"people_who_change_their_minds", func(t testing.TB) []schema.Event { return inTime(changingMinds.events(t)) }, 500, 3},
		{"a_day", func(t testing.TB) []schema.Event { return aDay(fromEnv(t, "KUDOS_TEST_EVENTS", 300_000)) }, 500, fromEnv(t, "KUDOS_TEST_KILLS", 20)},
		{"a_day_of_large_batches", func(t testing.TB) []schema.Event { return aDay(300_000) }, 50_000, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRealSystem(t)
			events := tt.events(t)
			processor := s.processor("processor", "--set", fmt.Sprintf("processor.max_batch=%d", tt.batch))
			require.NoError(t, processor.Start(t.Context()))
			for part := range slices.Chunk(events, 100_000) {
				s.produce(records(part))
			}
			s.drain(30 * time.Minute)
			require.NoError(t, processor.Stop())
			s.killRankers(tt.kills)
			s.waitRanked(rankingSettings, rankedWithin(len(events)))
		})
	}
}

// The same with ten million updates, which are written as the fold would write them.
func TestADayOfTenMillionUpdates(t *testing.T) {
	tier.Nightly(t)
	s := newRealSystem(t)
	o := day.DefaultOptions(fromEnv(t, "KUDOS_TEST_EVENTS", 12_000_000))
	tapes, err := day.Updates(day.Events(o), day.DefaultBatching(partitions))
	require.NoError(t, err)
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicUpdates), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(100_000))
	failed := make(chan error, 1)
	produce := func(p int, key, value []byte) {
		cl.Produce(t.Context(), &kgo.Record{Partition: int32(p), Key: key, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	updates, end := 0, o.Start.Add(25*time.Hour).UnixMilli()
	for p, tape := range tapes {
		var last []byte
		for r := range tape.All() {
			updates++
			last = r.Value
			produce(p, r.Key, r.Value)
		}
		var u schema.Update
		require.NoError(t, schema.DecodeUpdate(last, &u))
		closing := closed(nil, end)[p] // of partition p
		produce(p, schema.AppendPostKey(nil, closing.PostID), schema.AppendUpdate(nil, &schema.Update{
			Seq: u.Seq + 1, Counts: schema.Counts{Likes: 1}, SourceOffset: u.SourceOffset + 1,
			Deltas: []schema.Delta{{Region: closing.Region, Minute: schema.MinuteOf(end), Likes: 1}},
		}))
	}
	require.NoError(t, cl.Flush(t.Context()))
	require.Empty(t, failed)
	t.Logf("%d updates", updates)
	s.killRankers(fromEnv(t, "KUDOS_TEST_KILLS", 20))
	s.waitRanked(rankingSettings, rankedWithin(updates))
}

// killRankers has two rankers share the log, kills one of them so many times while there
// is more to rank, and lets another one finish.
func (s *system) killRankers(kills int) {
	s.t.Helper()
	adm := kadm.NewClient(s.client())
	all, _ := s.rankerLag(adm)
	// Batches so small that the log lasts for all the kills.
	batch := fmt.Sprintf("ranker.max_batch=%d", max(20, all/int64(200*kills)))
	r := rand.New(rand.NewPCG(uint64(kills), 1))
	args := append([]string{"--set", batch}, busy...)
	rankers := []*stack.Server{s.ranker("ranker-0", args...), s.ranker("ranker-1", args...)}
	for _, p := range rankers {
		require.NoError(s.t, p.Start(s.t.Context()))
	}
	for kill := range kills {
		_, before := s.rankerLag(adm)
		waitFor(s.t, time.Minute, "the rankers to go on", func() bool { _, now := s.rankerLag(adm); return now > before })
		pause(s.t, time.Duration(r.IntN(300))*time.Millisecond)
		victim := rankers[r.IntN(2)]
		require.NoError(s.t, victim.Kill())
		lag, _ := s.rankerLag(adm)
		require.Positive(s.t, lag, "kill %d: the log was used up before", kill)
		require.NoError(s.t, victim.Start(s.t.Context()))
	}
	for _, p := range rankers {
		require.NoError(s.t, p.Stop())
	}
	lag, _ := s.rankerLag(adm)
	s.t.Logf("%d kills; %d of %d offsets are left for the last ranker", kills, lag, all)
	require.NoError(s.t, s.ranker("ranker-2", busy...).Start(s.t.Context()))
}

// TestOneUserMovesAPostByOne: however often somebody toggles, no ranking ever has more
// than one like of theirs.
func TestOneUserMovesAPostByOne(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	require.NoError(t, s.processor("processor", "--set", "processor.max_batch=25").Start(t.Context()))
	require.NoError(t, s.ranker("ranker", busy...).Start(t.Context()))
	var toggles []*kgo.Record
	start := time.Now().Add(-30 * time.Minute).UnixMilli()
	for i := range int64(10_000) {
		e := schema.Event{PostID: 7, UserID: 1, Action: schema.Like, TimeMs: start + i*60, Region: day.Regions[i%5]}
		if i%2 == 1 {
			e.Action = schema.Unlike
		}
		toggles = append(toggles, record(&e))
	}
	for part := range slices.Chunk(toggles, 500) {
		s.produce(part)
	}
	s.produce(records(closed([]schema.Event{{PostID: 7, UserID: 1, Action: schema.Like, TimeMs: start + 601_000, Region: day.Regions[0]}}, time.Now().UnixMilli())))
	s.drain(2 * time.Minute)
	s.waitRanked(rankingSettings, rankedWithin(0))
	log, err := rankings.Read(t.Context(), s.brokers)
	require.NoError(t, err)
	seen := 0
	for _, rec := range log.Rankings {
		ranking, err := schema.DecodeRanking(rec.Value)
		require.NoError(t, err)
		for _, p := range ranking.Posts {
			if p.PostID == 7 {
				seen++
				require.Equal(t, int64(1), p.Likes, "%s", rec.Value)
			}
		}
	}
	require.Greater(t, seen, 10, "rankings that have the post")
}

// TestAnIdleTopicClosesItsWindows: when nothing comes any more, time goes on all the same.
func TestAnIdleTopicClosesItsWindows(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	require.NoError(t, s.processor("processor").Start(t.Context()))
	config := rankingSettings
	config.Lateness = 0
	require.NoError(t, s.ranker("ranker", "--set", "ranker.idle_after=3s", "--set", "ranker.allowed_lateness=0s").Start(t.Context()))
	events := closed(nil, time.Now().Add(-9*time.Minute).UnixMilli())
	s.produce(records(events))
	waitFor(t, time.Minute, "the likes to be in the window", func() bool { return len(s.lastRanking("US/10m").Posts) == partitions })
	waitFor(t, 3*time.Minute, "the window to close", func() bool {
		r := s.lastRanking("US/10m")
		// One idle partition may be enough: what the others have may be older than the window by then.
		return len(r.Posts) == 0 && slices.ContainsFunc(r.Positions, func(p schema.RankingPosition) bool { return p.Idle != schema.NoMinute })
	})
	require.Len(t, s.lastRanking("US/1h").Posts, partitions, "an hour is longer than that")
	log, err := rankings.Read(t.Context(), s.brokers)
	require.NoError(t, err)
	v, err := rankings.Check(log, config, nil)
	require.NoError(t, err)
	require.Zero(t, v.Differences.Total, v.Differences.String())
}

// lastRanking is the newest of a key, without posts if there is none.
func (s *system) lastRanking(key string) *schema.Ranking {
	s.t.Helper()
	log, err := rankings.Read(s.t.Context(), s.brokers)
	require.NoError(s.t, err)
	for _, rec := range slices.Backward(log.Rankings) {
		if string(rec.Key) == key {
			r, err := schema.DecodeRanking(rec.Value)
			require.NoError(s.t, err)
			return r
		}
	}
	return &schema.Ranking{}
}

// TestModerationTakesAPostOut of rankings that nothing else changes, in Kafka and MySQL,
// and puts it back.
func TestModerationTakesAPostOut(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	s.emitInterval = "2s"
	require.NoError(t, s.processor("processor").Start(t.Context()))
	require.NoError(t, s.ranker("ranker", busy...).Start(t.Context()))
	// In the middle of an hour: windows end with one.
	at := time.Now().Add(-2 * time.Hour).Truncate(time.Hour).Add(30 * time.Minute)
	events := closed(nil, at.UnixMilli())
	out := events[1].PostID
	events = append(events, schema.Event{PostID: out, UserID: 2, Action: schema.Like, TimeMs: events[1].TimeMs, Region: events[1].Region})
	s.produce(records(events))
	has := func(key string, posts int, first bool) func() bool {
		return func() bool {
			r := s.lastRanking(key)
			return len(r.Posts) == posts && (r.Posts[0].PostID == out) == first
		}
	}
	keys := []string{"global/24h", "US/all", "US/day"}
	steps := []struct {
		command string
		posts   int
		first   bool
	}{{"", partitions, true}, {"exclude", partitions - 1, false}, {"include", partitions, true}}
	for _, step := range steps {
		if step.command != "" {
			s.command("ranker", step.command, "--brokers", s.brokerList(), fmt.Sprint(out))
		}
		for _, key := range keys {
			waitFor(t, time.Minute, fmt.Sprintf("%d posts in %s", step.posts, key), has(key, step.posts, step.first))
		}
		s.waitRanked(rankingSettings, rankedWithin(0))
	}
	require.Contains(t, s.command("trending", "--brokers", s.brokerList(), "--region", "us", "--window", "day"), fmt.Sprint(out))
}
