package ranker_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/ranker"
	"kudos/schema"
)

// TestSettingsChange: with other settings everything that is published is what they make of
// the log, whatever the partitions had reported before.
func TestSettingsChange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*ranker.Options)
	}{
		{"another window", func(o *ranker.Options) { o.Windows = append(o.Windows, 30*time.Minute) }},
		{"longer lists", func(o *ranker.Options) { o.TopN = 30 }},
		{"shorter lists", func(o *ranker.Options) { o.TopN, o.MinLikes = 3, 2 }},
		{"another score", func(o *ranker.Options) { o.Score = "decay" }},
		{"more lateness", func(o *ranker.Options) { o.AllowedLateness += 10 * time.Minute }},
		{"less lateness", func(o *ranker.Options) { o.AllowedLateness = 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, nil)
			a.start()
			tapes := aDay(10_000, day.Batching{Partitions: partitions, MaxEvents: 20, WaitMs: 60_000, Seed: 3})(t)
			at := make([]int, partitions)
			// The partitions stand at different times when the settings change.
			for p := range at {
				then := day.DefaultOptions(1).Start.Add(10*time.Hour + time.Duration(p)*8*time.Minute).UnixMilli()
				at[p] = slices.IndexFunc(tapes[p], func(r rankings.Record) bool { return r.TimeMs >= then })
			}
			a.feed(heads(tapes, at), make([]int, partitions), len(tapes[0]))
			a.waitCounted()
			a.run.stop()
			before := a.logs()
			tt.change(&a.opts)
			a.start()
			a.waitCounted()
			for a.feed(tapes, at, 200) {
			}
			v := a.waitSettledSince(before.Rankings)
			require.Positive(t, v.Rankings)
		})
	}
}

// TestSettingsChangeAtRest: lists that are the same with other settings are made anew, too.
func TestSettingsChangeAtRest(t *testing.T) {
	t.Parallel()
	a := newArena(t, nil)
	a.start()
	tapes := aDay(2_000, day.DefaultBatching(partitions))(t)
	for at := make([]int, partitions); a.feed(tapes, at, 1000); {
	}
	a.waitSettled()
	a.run.stop()
	a.opts.Windows = append(a.opts.Windows, 30*time.Minute)
	a.start()
	a.waitCounted()
	a.exclude(mostLiked(a), true)
	a.waitSettled()
}

// heads are the tapes up to some places.
func heads(tapes [][]rankings.Record, at []int) [][]rankings.Record {
	var heads [][]rankings.Record
	for p, n := range at {
		heads = append(heads, tapes[p][:n])
	}
	return heads
}

// waitCounted waits until the ranker has nothing left to do.
func (a *arena) waitCounted() {
	a.t.Helper()
	deadline := time.Now().Add(patience)
	for a.run.Ready() != nil || a.run.Lag() > 0 {
		if time.Now().After(deadline) {
			a.t.Fatalf("after %s: lag %d; readiness: %v", patience, a.run.Lag(), a.run.Ready())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-a.t.Context().Done():
		}
	}
}

// waitSettledSince is waitSettled for the rankings after some, as if they were the first.
func (a *arena) waitSettledSince(before []rankings.Record) *rankings.Verdict {
	a.t.Helper()
	skip := map[string]int{}
	for _, r := range before {
		skip[string(r.Key)]++
	}
	deadline := time.Now().Add(patience)
	for {
		log := a.logs()
		skip := maps.Clone(skip)
		seen := map[string]int{}
		published := log.Rankings
		log.Rankings = nil
		for _, r := range published {
			key := string(r.Key)
			if seen[key]++; seen[key] <= skip[key] {
				continue
			}
			if first := seen[key] == skip[key]+1; !first {
				log.Rankings = append(log.Rankings, r)
			} else if r, empty := a.asFirst(r); empty {
				skip[key]++
			} else {
				log.Rankings = append(log.Rankings, r)
			}
		}
		v, err := rankings.Check(log, a.config(), &rankings.End{Idle: schema.NoMinute})
		require.NoError(a.t, err)
		if v.Differences.Total == 0 {
			return v
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("after %s: %v; readiness: %v", patience, v.Differences.String(), a.run.Ready())
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-a.t.Context().Done():
		}
	}
}

// asFirst is a ranking that speaks of none before. An empty one is none.
func (a *arena) asFirst(r rankings.Record) (first rankings.Record, empty bool) {
	ranking, err := schema.DecodeRanking(r.Value)
	require.NoError(a.t, err)
	ranking.Previous = nil
	for i := range ranking.Posts {
		ranking.Posts[i].PreviousRank = 0
	}
	r.Value, err = schema.EncodeRanking(ranking)
	require.NoError(a.t, err)
	return r, len(ranking.Posts) == 0
}
