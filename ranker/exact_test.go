package ranker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/dev/devtest"
	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/ranker"
	"kudos/schema"
)

// TestRankingsAreExact ranks a day's likes in batches of any size, while rankers stop and start and posts are excluded.
func TestRankingsAreExact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		configure func(*ranker.Options)
		tapes     func(testing.TB) [][]rankings.Record
	}{
		{"large batches", nil, aDay(40_000, day.DefaultBatching(partitions))},
		{"batches of 7", func(o *ranker.Options) { o.MaxBatch = 7 },
			aDay(1_500, day.Batching{Partitions: partitions, MaxEvents: 3, WaitMs: 1000, Seed: 2})},
		{"decay", func(o *ranker.Options) { o.Score, o.AllowedLateness, o.TopN = "decay", 5*time.Minute, 5 },
			aDay(40_000, day.DefaultBatching(partitions))},
		{"other windows", func(o *ranker.Options) {
			o.Windows = []time.Duration{time.Minute, 90 * time.Minute, 12 * time.Hour}
			o.AllowedLateness, o.MinLikes = 0, 2
		}, aDay(40_000, day.DefaultBatching(partitions))},
		{"the most liked posts shared", func(o *ranker.Options) { o.MaxBatch, o.TopN = 2000, 5 }, sharedDay(20_000, 0)},
		{"some posts shared, decay", func(o *ranker.Options) { o.Score, o.TopN, o.MinLikes = "decay", 3, 2 },
			sharedDay(10_000, 1)},
		{"MovieLens, each person", nil, movieLens(day.EachPerson, 8)},
		{"MovieLens, people who change their minds", func(o *ranker.Options) { o.MaxBatch = 100 },
			movieLens(day.ChangingMinds, 30)},
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
				case 4, 6:
					a.exclude(a.best()[0])
				}
			}
			v := a.waitSettled()
			t.Logf("%d updates, %d rankings", v.Updates, v.Rankings)
			require.Positive(t, v.Rankings)
		})
	}
}

// TestUnsealedListsAreInvisible: lists after an exclusion take effect together, even if each arrives in its own batch.
func TestUnsealedListsAreInvisible(t *testing.T) {
	t.Parallel()
	a := newArena(t, func(o *ranker.Options) { o.MaxBatch, o.EmitInterval, o.TopN = 1, time.Millisecond, 5 })
	a.feedAll(aDay(150, day.DefaultBatching(partitions))(t), 1000)
	a.start()
	a.waitSettled()
	for range 3 {
		for _, post := range a.best() {
			a.exclude(post)
		}
		a.waitSettled()
	}
}

// TestCountedLikesAreListedAfterARestart: lists are only written at intervals; the next ranker writes those due.
func TestCountedLikesAreListedAfterARestart(t *testing.T) {
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

// TestRegionsThatAreNotListedCountTogether: only configured regions have their own rankings.
func TestRegionsThatAreNotListedCountTogether(t *testing.T) {
	t.Parallel()
	listed := day.Regions[0].String()
	a := newArena(t, func(o *ranker.Options) { o.Regions = []string{listed} })
	a.start()
	a.feedAll(aDay(16_000, day.DefaultBatching(partitions))(t), 1000)
	a.waitFor("likes of listed and other regions, and more of all", func() (bool, any) {
		likes := map[string]int64{}
		for _, rec := range a.logs().Rankings {
			r, err := schema.DecodeRanking(rec.Value)
			require.NoError(t, err)
			require.Contains(t, []string{schema.GlobalName, "ZZ", listed}, r.Region)
			if r.Window == schema.LeaderboardAll {
				likes[r.Region] = r.Posts[0].Likes
			}
		}
		both := likes["ZZ"] > 0 && likes[listed] > 0
		return both && likes[schema.GlobalName] > max(likes["ZZ"], likes[listed]), fmt.Sprint(likes)
	})
}

// TestPostsThatGetUserBuckets: posts that become shared leave the leaders, and others replace them. If there are no
// others, only shared posts tell the next ranker that the region exists.
func TestPostsThatGetUserBuckets(t *testing.T) {
	t.Parallel()
	a := newArena(t, func(o *ranker.Options) { o.TopN = 2 })
	l, at := &likes{minute: 29_000_000, counts: map[likesOf]int64{}}, make([]int, partitions)
	everywhere := func(add func(p int32, posts []uint64)) {
		t.Helper()
		for p := range int32(partitions) {
			add(p, postsOf(p, 1, 8))
		}
		a.feed(l.tapes[:], at, 1000)
		a.waitSettled()
	}
	here, there, elsewhere := day.Regions[0], day.Regions[1], day.Regions[2]
	a.start()
	everywhere(func(p int32, posts []uint64) {
		for i, post := range posts {
			l.add(p, post, 20-i, here, 0)
		}
	})
	everywhere(func(p int32, posts []uint64) { l.add(p, posts[0], 1, there, 2) })
	a.start()
	everywhere(func(p int32, posts []uint64) { l.add(p, posts[0], 1, here, 2) })
	everywhere(func(p int32, posts []uint64) { // more than the leaders kept in memory
		for _, post := range posts[1:5] {
			l.add(p, post, 1, here, 2)
		}
	})
	const most, least = 1 << 40, 1 << 41 // both shared, liked in all partitions
	everywhere(func(p int32, _ []uint64) {
		l.add(p, most, 5, elsewhere, 2)
		l.add(p, least, 2, elsewhere, 2)
	})
	a.start()
	everywhere(func(p int32, _ []uint64) { l.add(p, most, 1, elsewhere, 2) })
}

// TestSettingsChange: whatever was reported before, all that is published follows from log and new settings.
func TestSettingsChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ranker.Options){
		"another window": func(o *ranker.Options) { o.Windows = append(o.Windows, 30*time.Minute) },
		"longer lists":   func(o *ranker.Options) { o.TopN = 30 },
		"shorter lists":  func(o *ranker.Options) { o.TopN, o.MinLikes = 3, 2 },
		"another score":  func(o *ranker.Options) { o.Score = "decay" },
		"more lateness":  func(o *ranker.Options) { o.AllowedLateness += 10 * time.Minute },
		"less lateness":  func(o *ranker.Options) { o.AllowedLateness = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, nil)
			a.start()
			tapes := aDay(10_000, day.Batching{Partitions: partitions, MaxEvents: 20, WaitMs: 60_000, Seed: 3})(t)
			at := make([]int, partitions)
			// The partitions are at different event times when the settings change.
			var heads [][]rankings.Record
			for p, tape := range tapes {
				then := day.DefaultOptions(1).Start.Add(10*time.Hour + time.Duration(p)*8*time.Minute).UnixMilli()
				at[p] = slices.IndexFunc(tape, func(r rankings.Record) bool { return r.TimeMs >= then })
				heads = append(heads, tape[:at[p]])
			}
			a.feedAll(heads, len(tapes[0]))
			waitCaughtUp(t, a.run.Ready, a.run.reg)
			a.run.stop()
			before := a.logs()
			change(&a.opts)
			a.start()
			waitCaughtUp(t, a.run.Ready, a.run.reg)
			for a.feed(tapes, at, 200) {
			}
			v := a.waitSettledOf(func() *rankings.Log { return a.logsSince(before.Rankings) })
			require.Positive(t, v.Rankings)
		})
	}
}

// TestSettingsChangeWhileStopped: lists that the new settings do not change are written again, too.
func TestSettingsChangeWhileStopped(t *testing.T) {
	t.Parallel()
	a := newArena(t, nil)
	a.start()
	a.feedAll(aDay(2_000, day.DefaultBatching(partitions))(t), 1000)
	a.waitSettled()
	a.run.stop()
	a.opts.Windows = append(a.opts.Windows, 30*time.Minute)
	a.start()
	waitCaughtUp(t, a.run.Ready, a.run.reg)
	a.exclude(a.best()[0])
	a.waitSettled()
}

// logsSince returns the logs without the rankings in before, so that those after them count as the first.
func (a *arena) logsSince(before []rankings.Record) *rankings.Log {
	a.t.Helper()
	skip, seen := map[string]int{}, map[string]int{}
	for _, r := range before {
		skip[string(r.Key)]++
	}
	log := a.logs()
	all := log.Rankings
	log.Rankings = nil
	for _, r := range all {
		key := string(r.Key)
		if seen[key]++; seen[key] <= skip[key] {
			continue
		}
		if seen[key] == skip[key]+1 { // the first one has no previous ranking, and an empty one does not count
			ranking, err := schema.DecodeRanking(r.Value)
			require.NoError(a.t, err)
			if len(ranking.Posts) == 0 {
				skip[key]++
				continue
			}
			ranking.Previous = nil
			for i := range ranking.Posts {
				ranking.Posts[i].PreviousRank = 0
			}
			r.Value, err = schema.EncodeRanking(ranking)
			require.NoError(a.t, err)
		}
		log.Rankings = append(log.Rankings, r)
	}
	return log
}

// TestGapInTheUpdatesParks: a recent update is missing. What was counted stays as it is.
func TestGapInTheUpdatesParks(t *testing.T) {
	t.Parallel()
	a := newArena(t, nil)
	tapes, at := likesAt(time.Now().Unix()/60, 4), make([]int, partitions)
	a.start()
	a.feed(tapes, at, 2)
	a.waitCommitted(2)
	at[1]++ // lost
	a.feed(tapes, at, 1)
	devtest.WaitReadiness(t, a.run.Ready, "like-updates/1 offset 2 has seq 3 where 2 was expected",
		"kudos ranker reset")
}

// TestStateOfAnotherTopicParks, and the action in the error repairs it.
func TestStateOfAnotherTopicParks(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*arena, *kadm.Client){
		"is at offset": func(a *arena, adm *kadm.Client) { // somebody reset the group's offset
			var o kadm.Offsets
			o.AddOffset(schema.TopicUpdates, 1, 1, -1)
			_, err := adm.CommitOffsets(a.t.Context(), schema.GroupTrendingLocal, o)
			require.NoError(a.t, err)
		},
		"was recreated": func(a *arena, adm *kadm.Client) {
			_, err := adm.DeleteTopics(a.t.Context(), schema.TopicTrendingLocal)
			require.NoError(a.t, err)
			_, err = adm.CreateTopic(a.t.Context(), partitions, 1, nil, schema.TopicTrendingLocal)
			require.NoError(a.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, nil)
			tapes, at := likesAt(29_000_000, 20), make([]int, partitions)
			a.start()
			a.feed(tapes, at, 10)
			a.waitCommitted(10)
			a.run.stop()
			adm := kadm.NewClient(a.Client)
			spoil(a, adm)
			a.start()
			devtest.WaitReadiness(t, a.run.Ready, name, "kudos ranker reset")
			a.run.stop()

			a.reset(partitions)
			a.feed(tapes, at, 10)
			a.start()
			a.waitSettled()
		})
	}
}
