package day

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"kudos/integration/oracle"
	"kudos/integration/rankings"
	"kudos/schema"
	"kudos/schema/kudosv1"
)

func TestADay(t *testing.T) {
	const n = 200_000
	o := DefaultOptions(n)
	type pair struct{ post, user uint64 }
	var (
		events, unlikes, dislikes, late, ahead, duplicates, quiet int
		posts                                                     = map[uint64]int{}
		toggled                                                   = map[pair]int{}
		regions                                                   = map[schema.Region]int{}
		seen                                                      = map[schema.Event]bool{}
		last                                                      = o.Start.UnixMilli()
	)
	for e := range Events(o) {
		require.NoError(t, e.Check())
		require.GreaterOrEqual(t, e.ArrivalMs, last)
		last = e.ArrivalMs
		events++
		switch e.Action {
		case schema.Unlike:
			unlikes++
		case schema.Dislike:
			dislikes++
		}
		if e.TimeMs < e.ArrivalMs-3*minuteMs {
			late++
		}
		if e.TimeMs > e.ArrivalMs+schema.MaxAheadMs {
			ahead++
		}
		if seen[e.Event] {
			duplicates++
		}
		if m := (e.ArrivalMs - o.Start.UnixMilli()) / minuteMs; m >= quietFrom && m < quietTo {
			quiet++
		}
		seen[e.Event] = true
		posts[e.PostID]++
		regions[e.Region]++
		toggled[pair{e.PostID, e.UserID}]++
	}
	require.Equal(t, n, events)
	require.Less(t, last, o.Start.Add(24*time.Hour).UnixMilli())
	require.Greater(t, last, o.Start.Add(24*time.Hour-time.Minute).UnixMilli())
	require.Zero(t, quiet)
	require.Len(t, regions, 5)
	require.Greater(t, unlikes, n/20)
	require.Greater(t, dislikes, n/50)
	require.Greater(t, late, n/50)
	require.Greater(t, ahead, n/2000)
	require.Greater(t, duplicates, n/50)
	require.Greater(t, len(posts), o.Posts/2)
	require.Greater(t, slices.Max(slices.Collect(maps.Values(toggled))), n/1500, "togglers")
	viral := 0
	for post, n := range posts {
		if post >= 1<<40 && n > 100 {
			viral++
		}
	}
	require.Greater(t, viral, bursts/3)
}

func digest(tapes []*rankings.Tape) string {
	h := fnv.New64a()
	for _, tape := range tapes {
		for rec := range tape.All() {
			fmt.Fprintln(h, rec.Offset, rec.TimeMs, rec.Key, rec.Value)
		}
		fmt.Fprintln(h, tape.End())
	}
	return fmt.Sprintf("%x", h.Sum64())
}

// A seed must give the same result on every machine.
func TestSameDay(t *testing.T) {
	tapes, err := Updates(Events(DefaultOptions(20_000)), DefaultBatching(4))
	require.NoError(t, err)
	require.Equal(t, "10d62bdbd5d6020f", digest(tapes), "if you changed the generator on purpose, update this digest")
	o := DefaultOptions(20_000)
	o.Seed++
	other, err := Updates(Events(o), DefaultBatching(4))
	require.NoError(t, err)
	require.NotEqual(t, digest(tapes), digest(other))
}

// sums adds up the tapes, and checks the invariants of every log of updates. counts are from each post's last update.
func sums(t *testing.T, tapes []*rankings.Tape) (cells map[oracle.Cell]oracle.Count, counts map[uint64]int64) {
	cells, counts = map[oracle.Cell]oracle.Count{}, map[uint64]int64{}
	for i, tape := range tapes {
		var next, appended int64
		var seq uint64
		for rec := range tape.All() {
			var u kudosv1.LikeUpdate
			require.NoError(t, proto.Unmarshal(rec.Value, &u))
			require.Equal(t, seq, u.Seq)
			require.Equal(t, next, rec.Offset)
			require.GreaterOrEqual(t, rec.TimeMs, appended)
			seq, next, appended = seq+1, next+1, rec.TimeMs
			if string(rec.Key) == schema.ProgressKey {
				next++ // the marker
				continue
			}
			post, err := schema.ParsePostKey(rec.Key)
			require.NoError(t, err)
			require.EqualValues(t, i, schema.PartitionFor(post, int32(len(tapes))))
			counts[post] = u.LikeCount
			for _, d := range u.Deltas {
				oracle.Add(cells, oracle.Cell{Post: post, Region: string(d.Region), Minute: d.Minute},
					oracle.Count{Likes: d.Likes, Dislikes: d.Dislikes})
			}
		}
		require.Equal(t, next, tape.End())
	}
	maps.DeleteFunc(counts, func(_ uint64, n int64) bool { return n == 0 })
	return cells, counts
}

func TestBatchingDoesNotChangeTheResult(t *testing.T) {
	o := DefaultOptions(30_000)
	var cells map[oracle.Cell]oracle.Count
	var counts map[uint64]int64
	for _, b := range []Batching{DefaultBatching(4), {Partitions: 1, MaxEvents: 1},
		{Partitions: 3, MaxEvents: 20_000, WaitMs: 3_600_000, Seed: 7}} {
		tapes, err := Updates(Events(o), b)
		require.NoError(t, err)
		inCells, inCounts := sums(t, tapes)
		byPost := map[uint64]int64{}
		for c, n := range inCells {
			require.GreaterOrEqual(t, n.Likes, int64(0))
			if byPost[c.Post] += n.Likes; byPost[c.Post] == 0 {
				delete(byPost, c.Post)
			}
		}
		require.Equal(t, inCounts, byPost)
		if cells == nil {
			cells, counts = inCells, inCounts
		}
		require.Equal(t, cells, inCells, "%+v", b)
		require.Equal(t, counts, inCounts, "%+v", b)
	}
	require.Greater(t, len(cells), 10_000)
}

// The expected counts were computed from the ratings with awk, independently of this code.
func TestMovieLens(t *testing.T) {
	directory := MovieLensDir(t)
	for expected, user := range map[string]func(uint64) uint64{
		"expected-like-counts.tsv": EachPerson, "expected-latest-wins.tsv": ChangingMinds,
	} {
		events, err := MovieLens(filepath.Join(directory, "ratings.csv.gz"), user)
		require.NoError(t, err)
		require.Len(t, events, 100_026)
		tapes, err := Updates(slices.Values(events), DefaultBatching(4))
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(directory, expected))
		require.NoError(t, err)
		want := map[uint64]int64{}
		for line := range bytes.Lines(text) {
			var post uint64
			var n int64
			_, err := fmt.Sscanf(string(line), "%d\t%d", &post, &n)
			require.NoError(t, err)
			if n != 0 {
				want[post] = n
			}
		}
		_, counts := sums(t, tapes)
		require.Equal(t, want, counts, expected)
	}
	_, err := MovieLens(filepath.Join(directory, "none"), EachPerson)
	require.ErrorIs(t, err, os.ErrNotExist)
}
