package window

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// reopened is a partition that continues from the rows of another one, with other windows.
func reopened(t *testing.T, old *Partition, rows map[RowKey][]byte, windows ...Window) *Partition {
	t.Helper()
	p := NewPartition(configOf(windows...))
	for key, value := range rows {
		require.NoError(t, p.LoadRow(key, value))
	}
	p.LoadClock(old.Clock, old.Idle, old.Kept(), map[Key][]Post{})
	return p
}

func configOf(windows ...Window) *Config { return &Config{Windows: windows, TopN: 5, MinLikes: 1} }

func rowsOf(p *Partition, rows map[RowKey][]byte) map[RowKey][]byte {
	for key, value := range p.Changed() {
		if rows[key] = value; value == nil {
			delete(rows, key)
		}
	}
	return rows
}

func like(p *Partition, post uint64, at schema.Minute) {
	p.Add(post, []schema.Delta{{Region: schema.Region{'D', 'E'}, Minute: int64(at), Likes: 1}}, 0)
}

// newest computes the lists and returns the last version of a global one.
func newest(p *Partition, name string) (posts []Post) { p.MakeVersions(1); return last(p, name) }

// last is the last version of a global list.
func last(p *Partition, name string) (posts []Post) {
	for _, v := range p.Versions {
		if v.Key == (Key{schema.Global, name}) {
			posts = v.Posts
		}
	}
	return posts
}

// TestLongerWindowIsPartial: likes dropped by a shorter window are reported missing until the longer one has filled.
func TestLongerWindowIsPartial(t *testing.T) {
	const start = schema.Minute(30_000_000)
	old := NewPartition(configOf(New(10, 0)))
	like(old, 1, start)
	like(old, 2, start+9)
	require.Empty(t, old.Partial())
	away := rowsOf(old, map[RowKey][]byte{}) // of a store that was offline in the meantime
	like(old, 3, start+15)
	rows := rowsOf(old, map[RowKey][]byte{})
	maps.Copy(rows, away)

	p := reopened(t, old, rows, New(10, 0), New(60, 0))
	require.Equal(t, []Partial{{Window: "1h", Since: start + 6, Complete: start + 66}}, p.Partial())
	require.Equal(t, []uint64{2, 3}, ids(newest(p, "1h")), "post 1 was dropped")
	like(p, 1, start+5)
	require.Equal(t, []uint64{2, 3}, ids(newest(p, "1h")), "older than what is kept")
	rowsOf(p, rows)
	require.Equal(t, p.Partial(), reopened(t, p, rows, New(10, 0), New(60, 0)).Partial(), "the same after a restart")
	like(p, 4, start+64)
	require.NotEmpty(t, p.Partial())
	like(p, 4, start+65)
	require.Empty(t, p.Partial())
}

// TestWindowOfOtherBucketsStartsEmpty: there are no minute buckets if all windows use hours.
func TestWindowOfOtherBucketsStartsEmpty(t *testing.T) {
	const start = schema.Minute(30_000_000)
	old := NewPartition(configOf(Day()))
	like(old, 1, start)
	p := reopened(t, old, rowsOf(old, map[RowKey][]byte{}), New(10, 0), Day())
	require.Equal(t, []Partial{{Window: "10m", Since: start + 1, Complete: start + 11}}, p.Partial())
	require.Empty(t, newest(p, "10m"))
	require.Len(t, newest(p, "day"), 1)
}

// TestRowsThatNoWindowNeedsAreDeleted, after windows were made shorter.
func TestRowsThatNoWindowNeedsAreDeleted(t *testing.T) {
	const start = schema.Minute(30_000_000)
	old := NewPartition(configOf(New(60, 0)))
	like(old, 1, start)
	like(old, 2, start+30)
	rows := rowsOf(old, map[RowKey][]byte{})
	require.Len(t, rows, 2)
	require.Len(t, rowsOf(reopened(t, old, rows, New(10, 0)), rows), 1)
}

// TestSettingsTellConfigurationsApart, by everything that a list depends on.
func TestSettingsTellConfigurationsApart(t *testing.T) {
	base := func() *Config { return configOf(New(10, 30), New(60, 30)) }
	require.Equal(t, base().Settings(), base().Settings())
	for name, change := range map[string]func(*Config){
		"windows":   func(c *Config) { c.Windows = append(c.Windows, Day()) },
		"size":      func(c *Config) { c.Windows[0] = New(11, 30) },
		"half-life": func(c *Config) { c.Windows[0] = New(10, 31) },
		"lateness":  func(c *Config) { c.Lateness++ },
		"length":    func(c *Config) { c.TopN++ },
		"likes":     func(c *Config) { c.MinLikes++ },
	} {
		c := base()
		change(c)
		require.NotEqual(t, base().Settings(), c.Settings(), name)
	}
}

// TestLateLikesAreCounted: likes whose minute has left a window, per window.
func TestLateLikesAreCounted(t *testing.T) {
	const start = schema.Minute(30_000_000)
	p := NewPartition(configOf(New(10, 0), New(60, 0)))
	like(p, 1, start)
	p.MakeVersions(1)
	like(p, 1, start+30)
	p.MakeVersions(2)
	require.Equal(t, []int64{0, 0}, p.Late)
	like(p, 2, start+30)
	like(p, 2, start+25)
	require.Equal(t, []int64{0, 0}, p.Late, "in time for both")
	like(p, 2, start+1)
	require.Equal(t, []int64{1, 0}, p.Late)
	p.Add(2, []schema.Delta{{Region: schema.Region{'D', 'E'}, Minute: int64(start - 100), Likes: 3}}, 0)
	require.Equal(t, []int64{4, 3}, p.Late)
	p.Add(1, []schema.Delta{{Region: schema.Region{'D', 'E'}, Minute: int64(start), Likes: -1}}, 0)
	require.Equal(t, []int64{4, 3}, p.Late, "an unlike is not a late like")
}
