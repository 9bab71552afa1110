package sql

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/schema"
)

// hourOf is an hour of the test day, in hours since 1970.
func hourOf(hour int64) int64 { return noon.Unix()/3600 - 12 + hour }

func timeOf(hour int64) time.Time { return time.Unix(hourOf(hour)*3600, 0).UTC() }

func regionNamed(t testing.TB, name string) schema.Region {
	t.Helper()
	region, wellFormed := schema.ParseRegion(name)
	require.True(t, wellFormed, name)
	return region
}

// hourlyStore has a day with three regions in two partitions, one of which starts later.
func (d database) hourlyStore(t testing.TB, change ...func(*Options)) *Store {
	t.Helper()
	s := d.startedStore(t, change...)
	requireAt(t, start, (*Store).Position, s, likesTopic(), 1)
	require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(10, 10), nil, []HourDelta{
		{hourOf(2), "DE", 5, 1}, {hourOf(3), "DE", 2, 0}, {hourOf(3), "US", 100, 10},
		{hourOf(5), "US-CA", 1, 0}, {hourOf(23), "DE", 1, 0}, {firstHour, "DE", 1, 1}, {lastHour, "DE", 2, 2},
	}))
	require.NoError(t, s.Apply(t.Context(), likesTopic(), 1, at(0, 0), at(10, 10), nil, []HourDelta{
		{hourOf(3), "DE", 40, 3}, {hourOf(5), "DE", 7, -1}, {hourOf(5), "ZZ", 1 << 50, 1<<50 + 2},
	}))
	return s
}

func TestLikesByHour(t *testing.T) {
	day := func(hour, likes, dislikes int64) HourLikes { return HourLikes{timeOf(hour), likes, dislikes} }
	inDE := []HourLikes{day(2, 5, 1), day(3, 42, 3), day(5, 7, -1), day(23, 1, 0)}
	first, last := time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)
	de, us := regionNamed(t, "DE"), regionNamed(t, "US")
	cases := map[string]struct {
		region   schema.Region
		from, to time.Time
		want     []HourLikes
	}{
		"one region":             {de, timeOf(0), timeOf(24), inDE},
		"prefix of another code": {us, timeOf(0), timeOf(24), []HourLikes{day(3, 100, 10)}},
		"all regions": {schema.Global, timeOf(0), timeOf(23),
			[]HourLikes{day(2, 5, 1), day(3, 142, 13), day(5, 1<<50+8, 1<<50+1)}},
		"from is inclusive, to is exclusive": {de, timeOf(3), timeOf(5), []HourLikes{day(3, 42, 3)}},
		"the same for all regions":           {schema.Global, timeOf(3), timeOf(5), []HourLikes{day(3, 142, 13)}},
		"bounds between full hours": {de, timeOf(2).Add(time.Nanosecond),
			timeOf(5).Add(time.Nanosecond), []HourLikes{day(3, 42, 3), day(5, 7, -1)}},
		"other time zones": {schema.Global, timeOf(3).In(time.FixedZone("east", 7200)),
			timeOf(4).In(time.FixedZone("west", -7200)), []HourLikes{day(3, 142, 13)}},
		"region without likes":    {regionNamed(t, "FR"), timeOf(0), timeOf(24), nil},
		"empty range":             {schema.Global, timeOf(5), timeOf(5), nil},
		"to before from":          {schema.Global, timeOf(6), timeOf(5), nil},
		"first possible hour":     {de, time.Time{}, first.Add(time.Hour), []HourLikes{{first, 1, 1}}},
		"last possible hour":      {schema.Global, last, last.AddDate(1, 0, 0), []HourLikes{{last, 2, 2}}},
		"more than one statement": {de, timeOf(-maxHours / 2), timeOf(maxHours / 2), inDE},
	}
	onEachServer(t, func(t *testing.T, db database) {
		s := db.hourlyStore(t, func(o *Options) {
			o.ReadTimeout = DefaultOptions().ReadTimeout
			if !db.real { // tens of thousands of hours take seconds, more on a busy machine
				o.ReadTimeout = 5 * time.Minute
			}
		})
		for name, c := range cases {
			hours, err := s.LikesByHour(t.Context(), c.region, c.from, c.to)
			require.NoError(t, err, name)
			require.Equal(t, c.want, hours, name)
		}
	})
}

// A month of all regions surrounds the hours of one; the query must neither read those rows nor sort.
func TestLikesByHourReadsRangesOfThePrimaryKey(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.startedStore(t)
	proxy.seen()
	for _, region := range []schema.Region{regionNamed(t, "DE"), schema.Global} {
		_, err := s.LikesByHour(t.Context(), region, timeOf(0), timeOf(1000))
		require.NoError(t, err)
	}
	var queries []string
	for _, query := range proxy.seen() {
		if strings.HasPrefix(query, "SELECT hour") {
			require.LessOrEqual(t, len(query), conditionBytes)
			queries = append(queries, query)
		}
	}
	require.Len(t, queries, 4, "1,000 hours take three queries for one region, and one for all regions")

	onRealServers(t, func(t *testing.T, db database) {
		s := db.startedStore(t)
		var deltas []HourDelta
		for hour := range int64(1000) {
			for region := range 20 {
				deltas = append(deltas, HourDelta{hourOf(hour), fmt.Sprintf("D%c", 'A'+region), 1, 0})
			}
		}
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), nil, deltas))
		raw := db.raw(t)
		raw.MustExec("ANALYZE TABLE like_hourly")
		for _, query := range queries {
			db.requireIndexed(t, raw, query, false)
		}
		raw.SetMaxOpenConns(1)
		raw.SetMaxIdleConns(1)
		raw.MustExec("FLUSH STATUS")
		for _, query := range queries[:3] {
			require.NotEmpty(t, resultText(t, raw, query))
		}
		var variable string
		var read, next int
		require.NoError(t, raw.QueryRow("SHOW STATUS LIKE 'Handler_read_key'").Scan(&variable, &read))
		require.NoError(t, raw.QueryRow("SHOW STATUS LIKE 'Handler_read_next'").Scan(&variable, &next))
		require.Less(t, read+next, 4*1000, "the queries ask for 1,000 of 20,000 rows")
	})
}

func TestLikesByHourIsBounded(t *testing.T) {
	s := noServer(t).store(t)
	_, err := s.LikesByHour(t.Context(), schema.Region{'\''}, timeOf(0), timeOf(1))
	require.ErrorContains(t, err, "not of the form")
	require.False(t, IsTransient(err))
	_, err = s.LikesByHour(t.Context(), schema.Global, timeOf(0), timeOf(maxHours+1))
	require.ErrorContains(t, err, "100001 hours are too many for one read")
	require.False(t, IsTransient(err))

	onRealServers(t, func(t *testing.T, direct database) {
		proxy, slowly := direct.through(t)
		s := slowly.hourlyStore(t, func(o *Options) { o.ReadTimeout = 3 * time.Second })
		held, release := proxy.hold(t, "SELECT hour")
		defer release()
		_, err := s.LikesByHour(t.Context(), schema.Global, timeOf(0), timeOf(24))
		testkit.Receive(t, held, "the statement must be reached")
		require.ErrorContains(t, err, "read like_hourly of global from 2026-07-01T00:00:00Z to 2026-07-02T00:00:00Z")
		require.True(t, IsTransient(err), "%v", err)

		_, err = s.LikesByHour(testkit.Canceled(), schema.Global, timeOf(0), timeOf(24))
		require.ErrorIs(t, err, context.Canceled)
	})
}
