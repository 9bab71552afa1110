package window

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func clockAt(watermark schema.Minute) Clock {
	return Clock{Since: schema.NoMinute, Seal: Seal{Clock: watermark + 2, Watermark: watermark, Idle: schema.NoMinute}}
}

// TestAlign: a window ends where all have come who have something in it, unless that is not
// known or behind what was.
func TestAlign(t *testing.T) {
	none := clockAt(0)
	none.Seal.Clock, none.Seal.Watermark = schema.NoMinute, schema.NoMinute
	since := clockAt(110)
	since.Since = 105
	w := New(10, 0)
	for _, tt := range []struct {
		name   string
		clocks []Clock
		last   schema.Minute
		end    schema.Minute
		ok     bool
	}{
		{"nobody has a clock", []Clock{none, none}, schema.NoMinute, schema.NoMinute, false},
		{"one alone", []Clock{clockAt(100), none}, schema.NoMinute, 101, true},
		{"the one behind", []Clock{clockAt(100), clockAt(105)}, schema.NoMinute, 101, true},
		{"far behind: nothing in the window", []Clock{clockAt(80), clockAt(105)}, schema.NoMinute, 106, true},
		{"just in the window", []Clock{clockAt(94), clockAt(105)}, schema.NoMinute, 95, true},
		{"going back it meets another", []Clock{clockAt(88), clockAt(96), clockAt(105)}, schema.NoMinute, 89, true},
		{"that far already", []Clock{clockAt(100), clockAt(105)}, 101, 101, true},
		{"behind what was", []Clock{clockAt(100), clockAt(105)}, 102, 101, false},
		{"lists of that end are not known", []Clock{clockAt(104), since}, schema.NoMinute, 105, false},
		{"the first known ones", []Clock{clockAt(105), since}, schema.NoMinute, 106, true},
	} {
		end, ok := Align(&w, tt.clocks, tt.last)
		require.Equal(t, tt.end, end, tt.name)
		require.Equal(t, tt.ok, ok, tt.name)
	}
}

// TestForgetKeepsWhatLaterEndsNeed: the mark at an end is the one with which that was left.
func TestForgetKeepsWhatLaterEndsNeed(t *testing.T) {
	c := clockAt(110)
	for _, at := range []schema.Minute{99, 100, 104} {
		c.Marks = append(c.Marks, SealedMark{Mark: Mark{Watermark: at, Offset: int64(at)}})
	}
	before := c.Position(0, 100)
	require.Len(t, c.Forget(100), 1)
	require.Equal(t, before, c.Position(0, 100))
	require.EqualValues(t, 104, c.Position(0, 101).Offset)
	require.Equal(t, c.Now(0), c.Position(0, 105))
	require.Len(t, c.Forget(200), 2, "all of them")
	require.Empty(t, c.Marks)
}

// TestWatermark is behind the clock by the allowed lateness.
func TestWatermark(t *testing.T) {
	config := configOf(New(10, 0))
	config.Lateness = 3
	p := NewPartition(config)
	require.Equal(t, schema.NoMinute, p.Watermark())
	like(p, 1, 1000)
	require.Equal(t, schema.Minute(997), p.Watermark())
}

// TestAScoreThatHasDecayedIsNone: nothing is listed that does not count any more.
func TestAScoreThatHasDecayedIsNone(t *testing.T) {
	p := NewPartition(configOf(New(60, 1)))
	like(p, 1, 1000)
	require.Equal(t, []uint64{1}, ids(newest(p, "1h")))
	like(p, 2, 1040)
	require.Equal(t, []uint64{2}, ids(newest(p, "1h")))
}

// TestAWithdrawnLikeDoesNotHideAPost: of equal scores the one that came first is listed, also
// where the last that happened to it came to nothing.
func TestAWithdrawnLikeDoesNotHideAPost(t *testing.T) {
	config := configOf(New(10, 0), New(60, 0))
	config.TopN = 1
	p := NewPartition(config)
	for post := range uint64(100) { // so that the others are looked for by what happened in the window
		like(p, 1000+post, 960)
	}
	like(p, 2, 999)
	like(p, 1, 1000)
	like(p, 2, 1005)
	p.Add(2, []schema.Delta{{Region: schema.Region{'D', 'E'}, Minute: 1005, Likes: -1}}, 0)
	require.Equal(t, []uint64{2}, ids(newest(p, "10m")))
}

// TestExcludedPostsLeaveAndComeBack, whether they are active when it is said or later.
func TestExcludedPostsLeaveAndComeBack(t *testing.T) {
	p := NewPartition(configOf(New(10, 0), New(60, 0)))
	requireListed := func(want ...uint64) {
		t.Helper()
		p.Versions = nil
		require.Equal(t, want, ids(newest(p, "10m")))
		require.Equal(t, want, ids(last(p, "1h")))
	}
	p.Exclude(1, true)
	like(p, 1, 1000)
	like(p, 2, 1000)
	requireListed(2)
	p.Exclude(1, false)
	requireListed(1, 2)
	p.Exclude(2, true)
	p.Exclude(2, true)
	requireListed(1)
}

// TestListsOfRegionsThatAreGone: what was listed and is empty after a restart is told.
func TestListsOfRegionsThatAreGone(t *testing.T) {
	gone := Key{schema.Region{'F', 'R'}, "10m"}
	p := NewPartition(configOf(New(10, 0)))
	p.LoadClock(1000, schema.NoMinute, []Kept{{1, 991}}, map[Key][]Post{gone: {LeaderOf(1, 1, 995)}})
	p.MakeVersions(7)
	require.Equal(t, []Version{{Key: gone, End: 1001, Offset: 7}}, p.Versions)
	p.Versions = nil
	p.MakeVersions(8)
	require.Empty(t, p.Versions, "once")
	require.Empty(t, p.regions)
}
