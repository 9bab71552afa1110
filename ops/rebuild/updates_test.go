package rebuild

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/ops/audit"
	"kudos/schema"
)

// Exactly the events folded before are folded again: the fold continues after them, so a skipped one would be lost.
func TestReplayStopsAtTheFoldedOffset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		standing
		until int64
	}{
		"all agree": {standing{6, 6, 6}, 6},
		"the published offset decides if it is lower":  {standing{8, 7, 5}, 5},
		"the published offset decides if it is higher": {standing{4, 5, 9}, 9},
		"nothing published, the offset is ahead":       {standing{4, 7, -1}, 7},
		"nothing published, the state table is ahead":  {standing{7, 4, -1}, 7},
		"nothing published, no committed offset":       {standing{5, -1, -1}, 5},
		"nothing published, the state table is lost":   {standing{-1, 5, -1}, 5},
		"published, everything else is lost":           {standing{-1, -1, 3}, 3},
		"up to the end":                                {standing{10, 10, 10}, 10},
		"nothing published, the offset is at the end":  {standing{2, 10, -1}, 10},
		"nothing published, nothing folded":            {standing{0, 0, -1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobs, err := newStanding(t, c.standing, nothing).rebuild(Events).plan(t.Context())
			require.NoError(t, err)
			require.Equal(t, []job{
				{partition: 0, empty: true, events: true},
				{partition: damaged, empty: c.published < 0, until: c.until, events: true},
			}, jobs)
		})
	}
}

// From the events down to MySQL: as many as were folded, whichever source says so.
func TestRebuildsEverythingFromEvents(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]standing{
		"the state table is lost":        {-1, 7, -1},
		"the state table was rewound":    {2, 7, -1},
		"the group's offset was rewound": {7, 2, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStanding(t, s, nothing)
			db := w.startDatabase()
			require.True(t, w.mustRun(Events).Swapped)
			require.Equal(t, int64(7), likesIn(t, db), "3 of 10 events are still to be folded")
			require.Equal(t, int64(7), w.progress().NextOffset)
			require.Equal(t, int32(0), w.progress().LeaderEpoch)
			require.Equal(t, int64(7), w.committed())
			require.Contains(t, w.out.String(), "rebuild: folding the events of partition 1: 7 offsets")
			w.in = 0
			require.Equal(t, int32(-1), w.progress().LeaderEpoch, "no event was folded, so there is no epoch")
		})
	}
}

func TestEachDifference(t *testing.T) {
	t.Parallel()
	counts := func(post uint64) string { return string(schema.AppendCountsKey(nil, post)) }
	table := func(rows map[string]string) *audit.Table {
		table, err := audit.NewTable(t.TempDir(), damaged, devtest.Log())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, table.Close()) })
		w := table.NewWrite()
		for key, value := range rows {
			require.NoError(t, w.Set([]byte(key), []byte(value)))
		}
		require.NoError(t, w.Commit(0))
		return table
	}
	old := table(map[string]string{
		counts(1): "old alone", counts(3): "same", counts(4): "other", counts(9): "old alone, last"})
	fresh := table(map[string]string{
		counts(2): "fresh alone", counts(3): "same", counts(4): "another", counts(5): "fresh alone"})
	type change struct{ key, value string }
	var changes []change
	require.NoError(t, eachDifference(old, fresh, func(key, value []byte) error {
		if value == nil {
			value = []byte("deleted")
		}
		changes = append(changes, change{string(key), string(value)})
		return nil
	}))
	require.Equal(t, []change{{counts(1), "deleted"}, {counts(2), "fresh alone"}, {counts(4), "another"},
		{counts(5), "fresh alone"}, {counts(9), "deleted"}}, changes)
}

// reaction is the state-table record of a user's reaction in a given minute.
func reaction(post, user uint64, reaction schema.Reaction, minute int64) *kgo.Record {
	at := time.Unix(minute*60, 0).UnixMilli()
	return devtest.PairRecord(damaged, post, user, schema.Pair{Reaction: reaction, TimeMs: at, SinceMs: at, Region: us})
}

// TestRebuildsUpdatesFromReactions: each delta is the sum of its cell's pairs, and wrong stored counts are corrected.
func TestRebuildsUpdatesFromReactions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stored schema.Counts
		said   string
		counts int // number of counts records written
	}{
		"correct": {schema.Counts{Likes: 3, Dislikes: 2}, "partition 1: 3 updates and 1 state records written", 0},
		"wrong":   {schema.Counts{Likes: 9}, "partition 1: 3 updates and 2 state records written", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			other := postAfter(thePost)
			w.Write(reaction(thePost, 1, schema.Liked, 100), reaction(thePost, 2, schema.Liked, 100),
				reaction(thePost, 3, schema.Liked, 101), reaction(thePost, 7, schema.Disliked, 100),
				reaction(thePost, 8, schema.Disliked, 100), reaction(thePost, 9, schema.NoReaction, 100),
				reaction(other, 1, schema.Liked, 99), devtest.CountsRecord(damaged, thePost, c.stored),
				devtest.CountsRecord(damaged, other, schema.Counts{Likes: 1}))
			w.runKafka(Updates)
			updates := w.updates()
			require.Len(t, updates, 3, "including the progress record")
			require.Equal(t, []schema.Update{{
				Counts: schema.Counts{Likes: 3, Dislikes: 2},
				Deltas: []schema.Delta{
					{Region: us, Minute: 100, Likes: 2, Dislikes: 2}, {Region: us, Minute: 101, Likes: 1},
				},
			}, {
				Seq:    1,
				Counts: schema.Counts{Likes: 1},
				Deltas: []schema.Delta{{Region: us, Minute: 99, Likes: 1}},
			}}, updates[:2])
			require.Contains(t, w.said, c.said)
			repaired := "partition 1: the state table's counts of 1 posts differed from their reactions; corrected"
			if c.counts > 0 {
				require.Contains(t, w.said, repaired)
			} else {
				require.NotContains(t, w.said, repaired)
			}
			require.Contains(t, w.out.String(), "rebuild: writing the updates of partition 1: 2 updates")
			require.Equal(t, uint64(3), w.progress().NextSeq)
		})
	}
}

// TestUpdatesOfAPostWithManyCells: the deltas of a record are bounded, and none is lost.
func TestUpdatesOfAPostWithManyCells(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const cells = schema.MaxDeltas + 1
	records := []*kgo.Record{devtest.CountsRecord(damaged, thePost, schema.Counts{Likes: cells})}
	for minute := range int64(cells) {
		records = append(records, reaction(thePost, uint64(minute)+1, schema.Liked, minute))
	}
	w.Write(records...)
	w.runKafka(Updates)
	updates := w.updates()
	require.Len(t, updates, 3, "including the progress record")
	require.Len(t, updates[0].Deltas, schema.MaxDeltas)
	require.Equal(t, schema.Counts{Likes: schema.MaxDeltas}, updates[0].Counts, "after this record")
	require.Equal(t, schema.Counts{Likes: cells}, updates[1].Counts)
	require.Equal(t, []schema.Delta{{Region: us, Minute: cells - 1, Likes: 1}}, updates[1].Deltas)
}
