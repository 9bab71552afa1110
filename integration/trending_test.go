package integration

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/dev/testkit/contract"
	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/integration/tier"
	"kudos/schema"
)

var busy = []string{"--set", "ranker.idle_after=24h"} // for old logs: no partition may advance by the wall clock

var rankingSettings = rankings.Config{Windows: []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour},
	Lateness: 2 * time.Minute, Score: "count", HalfLife: 30 * time.Minute, TopN: 100, MinLikes: 1}

// rankerLag returns how many records of like-updates are not ranked yet, and how many are.
func (s *system) rankerLag() (lag, ranked int64) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	offsets, err := s.admin().FetchOffsets(ctx, schema.GroupTrendingLocal)
	if err == nil {
		offsets.Each(func(o kadm.OffsetResponse) { ranked += o.At })
	}
	return s.written(ctx, schema.TopicUpdates) - ranked, ranked
}

// rankedWithin bounds the wait for the last rankings of a number of events: ranking, reading and checking take a while.
func rankedWithin(events int) time.Duration {
	return 2*time.Minute + time.Duration(events)*50*time.Microsecond
}

// waitRanked waits until the last rankings cover the whole log, in Kafka and in MySQL.
func (s *system) waitRanked(config rankings.Config, within time.Duration) {
	var want []string
	ctx := testkit.Within(s.t, within)
	waitSaid(s.t, within, "the last rankings", func() (bool, any) {
		log, err := rankings.Read(ctx, s.brokers)
		require.NoError(s.t, err)
		v, err := rankings.Check(log, config, &rankings.End{Idle: schema.NoMinute})
		require.NoError(s.t, err)
		if v.Differences.Total > 0 {
			pause(s.t, time.Second) // the check itself takes as long
			return false, v.Differences.String()
		}
		require.Positive(s.t, v.Rankings)
		want = lastPosts(s.t, log)
		return true, nil
	})
	waitFor(s.t, time.Minute, "MySQL to have the last rankings", func() bool {
		return slices.Equal(want, s.postsInMySQL())
	})
}

func lastPosts(t testing.TB, log *rankings.Log) []string {
	var places []string
	for key, r := range maps.Collect(decoded(t, log)) {
		for _, p := range r.Posts {
			places = append(places, fmt.Sprintf("%s %d: %d has %s, %d likes, as of %s", key, p.Rank, p.PostID, p.Score,
				p.Likes, r.Watermark))
		}
	}
	slices.Sort(places)
	return places
}

func (s *system) postsInMySQL() (places []string) {
	require.NoError(s.t, s.db.Select(&places, "SELECT CONCAT(region, '/', `window`, ' ', `rank`, ': ', post_id, "+
		"' has ', TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM score)), ', ', likes, ' likes, as of ', "+
		"DATE_FORMAT(as_of, '%Y-%m-%dT%TZ')) FROM trending"+
		" UNION ALL SELECT CONCAT(region, '/', period, ' ', `rank`, ': ', post_id, ' has ', likes, ', ', likes, "+
		"' likes, as of ', DATE_FORMAT(as_of, '%Y-%m-%dT%TZ')) FROM leaderboard"))
	slices.Sort(places)
	return places
}

// inTime sorts events by time and closes the log: it adds a last event to each partition, at the same time.
func inTime(events []schema.Event) []schema.Event {
	slices.SortStableFunc(events, func(a, b schema.Event) int { return cmp.Compare(a.TimeMs, b.TimeMs) })
	return closed(events, events[len(events)-1].TimeMs+time.Hour.Milliseconds())
}

func closed(events []schema.Event, at int64) []schema.Event {
	for p := range int32(partitions) {
		events = append(events, likeIn(day.Regions[0], postFrom(1_000_000_007, p, partitions), 1, at))
	}
	return events
}

// aDay returns events of the last 24 hours, in order of arrival.
func aDay(events int) []schema.Event {
	o := day.DefaultOptions(events)
	o.Start = time.Now().Add(-25 * time.Hour).Truncate(time.Minute)
	all := make([]schema.Event, 0, events)
	for e := range day.Events(o) {
		all = append(all, e.Event)
	}
	return closed(all, time.Now().UnixMilli())
}

// Every ranking matches the log at the positions it names, while two rankers are killed repeatedly before catching up.
func TestRankingsAreExactWhenRankersAreKilled(t *testing.T) {
	parallel(t, tier.Test)
	for _, tt := range []struct {
		name   string
		events func(testing.TB) []schema.Event
		// batch is the processor's batch size: in a large one, the likes of a popular post become one update.
		batch, kills int
	}{
		{"each_person", func(t testing.TB) []schema.Event { return inTime(eachPerson.events(t)) }, 500, 3},
		{"people_who_change_their_minds", func(t testing.TB) []schema.Event {
			return inTime(changingMinds.events(t))
		}, 500, 3},
		{"a_day", func(t testing.TB) []schema.Event {
			return aDay(fromEnv(t, "KUDOS_TEST_EVENTS", 300_000))
		}, 500, fromEnv(t, "KUDOS_TEST_KILLS", 20)},
		{"a_day_of_large_batches", func(t testing.TB) []schema.Event { return aDay(300_000) }, 50_000, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRealSystem(t)
			events := tt.events(t)
			processor := s.processor("processor", "--set", fmt.Sprintf("processor.max_batch=%d", tt.batch)).start()
			for part := range slices.Chunk(events, 100_000) {
				s.produce(part...)
			}
			s.drain(30 * time.Minute)
			processor.stop()
			s.killRankers(tt.kills)
			s.waitRanked(rankingSettings, rankedWithin(len(events)))
			published, n := contract.Read(t, "../schema/json", "ranking"), 0
			s.readAll(schema.TopicTrending, func(rec *kgo.Record) {
				if n++; n%100 == 1 {
					require.NoError(t, contract.Obeys(t, published, rec.Value), "%s", rec.Value)
				}
			})
			require.NotZero(t, n)
		})
	}
}

// The same with ten million updates, written as the fold would write them.
func TestADayOfTenMillionUpdates(t *testing.T) {
	tier.Nightly(t)
	s := newRealSystem(t)
	o := day.DefaultOptions(fromEnv(t, "KUDOS_TEST_EVENTS", 12_000_000))
	tapes, err := day.Updates(day.Events(o), day.DefaultBatching(partitions))
	require.NoError(t, err)
	w := s.writer(schema.TopicUpdates, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce := func(p int, key, value []byte) { w.send(&kgo.Record{Partition: int32(p), Key: key, Value: value}) }
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
	require.NoError(t, w.close())
	t.Logf("%d updates", updates)
	s.killRankers(fromEnv(t, "KUDOS_TEST_KILLS", 20))
	s.waitRanked(rankingSettings, rankedWithin(updates))
}

// killRankers has two rankers share the log, kills one repeatedly while there is more to rank, and lets another finish.
func (s *system) killRankers(kills int) {
	all, _ := s.rankerLag()
	// Batches are so small that the log lasts for all kills.
	batch := fmt.Sprintf("ranker.max_batch=%d", max(20, all/int64(200*kills)))
	r := rand.New(rand.NewPCG(uint64(kills), 1))
	args := append([]string{"--set", batch}, busy...)
	rankers := []*process{s.ranker("ranker-0", args...).start(), s.ranker("ranker-1", args...).start()}
	for kill := range kills {
		_, before := s.rankerLag()
		waitFor(s.t, time.Minute, "the rankers to move", func() bool { _, now := s.rankerLag(); return now > before })
		pause(s.t, time.Duration(r.IntN(300))*time.Millisecond)
		victim := rankers[r.IntN(2)]
		victim.kill()
		lag, _ := s.rankerLag()
		require.Positive(s.t, lag, "kill %d: the log was fully consumed before", kill)
		victim.start()
	}
	for _, p := range rankers {
		p.stop()
	}
	lag, _ := s.rankerLag()
	s.t.Logf("%d kills; %d of %d offsets are left for the last ranker", kills, lag, all)
	s.ranker("ranker-2", busy...).start()
}

// TestOneUserMovesAPostByOne: however often a user toggles, no ranking counts more than one like of that user.
func TestOneUserMovesAPostByOne(t *testing.T) {
	s := verified(t)
	s.processor("processor", "--set", "processor.max_batch=25").start()
	s.ranker("ranker", busy...).start()
	var toggles []schema.Event
	start := time.Now().Add(-30 * time.Minute).UnixMilli()
	for i := range int64(10_000) {
		e := likeIn(day.Regions[i%5], 7, 1, start+i*60)
		if i%2 == 1 {
			e.Action = schema.Unlike
		}
		toggles = append(toggles, e)
	}
	for part := range slices.Chunk(toggles, 500) {
		s.produce(part...)
	}
	s.produce(closed([]schema.Event{likeIn(day.Regions[0], 7, 1, start+601_000)}, time.Now().UnixMilli())...)
	s.drain(2 * time.Minute)
	s.waitRanked(rankingSettings, rankedWithin(0))
	seen := 0
	for key, ranking := range s.rankings() {
		for _, p := range ranking.Posts {
			if p.PostID == 7 {
				seen++
				require.Equal(t, int64(1), p.Likes, "%s as of %s", key, ranking.Watermark)
			}
		}
	}
	require.Greater(t, seen, 10, "rankings with the post")
}

// TestIdleTopicClosesItsWindows: without new likes, windows still close with time.
func TestIdleTopicClosesItsWindows(t *testing.T) {
	s := verified(t)
	s.processor("processor").start()
	s.ranker("ranker", "--set", "ranker.idle_after=3s", "--set", "ranker.allowed_lateness=0s").start()
	s.produce(closed(nil, time.Now().Add(-9*time.Minute).UnixMilli())...)
	waitFor(t, time.Minute, "the likes to be in the window", func() bool {
		return len(s.lastRanking("US/10m").Posts) == partitions
	})
	waitFor(t, 3*time.Minute, "the window to close", func() bool {
		r := s.lastRanking("US/10m")
		// One idle partition may suffice: the records of the others may be older than the window by then.
		return len(r.Posts) == 0 && slices.ContainsFunc(r.Positions, func(p schema.RankingPosition) bool {
			return p.Idle != schema.NoMinute
		})
	})
	require.Len(t, s.lastRanking("US/1h").Posts, partitions, "the 1-hour window still has the likes")
	log, err := rankings.Read(t.Context(), s.brokers)
	require.NoError(t, err)
	config := rankingSettings
	config.Lateness = 0
	v, err := rankings.Check(log, config, nil)
	require.NoError(t, err)
	require.Zero(t, v.Differences.Total, v.Differences.String())
}

// rankings yields all published rankings, by key.
func (s *system) rankings() iter.Seq2[string, *schema.Ranking] {
	log, err := rankings.Read(s.t.Context(), s.brokers)
	require.NoError(s.t, err)
	return decoded(s.t, log)
}

func decoded(t testing.TB, log *rankings.Log) iter.Seq2[string, *schema.Ranking] {
	return func(yield func(string, *schema.Ranking) bool) {
		for _, rec := range log.Rankings {
			r, err := schema.DecodeRanking(rec.Value)
			require.NoError(t, err)
			if !yield(string(rec.Key), r) {
				return
			}
		}
	}
}

// lastRanking returns the newest ranking of a key, without posts if there is none.
func (s *system) lastRanking(key string) *schema.Ranking {
	return cmp.Or(maps.Collect(s.rankings())[key], &schema.Ranking{})
}

// TestModerationTakesAPostOut excludes a post, then includes it, in otherwise unchanged rankings in Kafka and MySQL.
func TestModerationTakesAPostOut(t *testing.T) {
	s := verified(t)
	s.emitInterval = "2s"
	s.processor("processor").start()
	s.ranker("ranker", busy...).start()
	// In the middle of an hour: windows end on the hour.
	at := time.Now().Add(-2 * time.Hour).Truncate(time.Hour).Add(30 * time.Minute)
	events := closed(nil, at.UnixMilli())
	out := events[1].PostID
	s.produce(append(events, likeIn(events[1].Region, out, 2, events[1].TimeMs))...)
	for _, command := range []string{"", "exclude", "include"} {
		posts := partitions
		if command != "" {
			s.command("ranker", command, "--brokers", s.brokerList(), fmt.Sprint(out))
		}
		if command == "exclude" {
			posts--
		}
		for _, key := range []string{"global/24h", "US/all", "US/day"} {
			waitFor(t, time.Minute, fmt.Sprintf("%d posts in %s", posts, key), func() bool {
				r := s.lastRanking(key)
				return len(r.Posts) == posts && (r.Posts[0].PostID == out) == (command != "exclude")
			})
		}
		s.waitRanked(rankingSettings, rankedWithin(0))
	}
	require.Contains(t, s.command("trending", "--brokers", s.brokerList(), "--region", "us", "--window", "day"),
		fmt.Sprint(out))
}
