package reader

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// asked is what MySQL was asked for.
type asked struct {
	region   schema.Region
	from, to time.Time
}

func noHours(into *asked) fakeHistory {
	return func(_ context.Context, region schema.Region, from, to time.Time) ([]HourLikes, error) {
		*into = asked{region, from, to}
		return nil, nil
	}
}

func date(s string) time.Time {
	t, err := time.Parse("2006-01-02T15:04", s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestLikesByHour(t *testing.T) {
	var got asked
	r := newRig(t, nil, fakeHistory(func(_ context.Context, region schema.Region, from, to time.Time) ([]HourLikes, error) {
		got = asked{region, from, to}
		return []HourLikes{{date("2026-01-01T23:00"), 5, 1}, {date("2026-01-02T01:00"), -2, 0}}, nil
	}))
	const span = "&from=2026-01-01T22:59:59Z&to=2026-01-02T01:00:00.001Z"
	a := r.get("/v1/analytics/likes?region=de&interval=hour"+span).requireJSON(http.StatusOK, `{"region":"DE","interval":"hour",
		"from":"2026-01-01T22:00:00Z","to":"2026-01-02T02:00:00Z","points":[
		{"from":"2026-01-01T22:00:00Z","likes":0,"dislikes":0},{"from":"2026-01-01T23:00:00Z","likes":5,"dislikes":1},
		{"from":"2026-01-02T00:00:00Z","likes":0,"dislikes":0},{"from":"2026-01-02T01:00:00Z","likes":-2,"dislikes":0}]}`)
	require.Equal(t, "public, max-age=1", a.header.Get("Cache-Control"))
	require.Equal(t, asked{schema.Region{'D', 'E'}, date("2026-01-01T22:00"), date("2026-01-02T02:00")}, got)

	r.get("/v1/analytics/likes?interval=day"+span).requireJSON(http.StatusOK, `{"region":"global","interval":"day",
		"from":"2026-01-01T00:00:00Z","to":"2026-01-03T00:00:00Z","points":[
		{"from":"2026-01-01T00:00:00Z","likes":5,"dislikes":1},{"from":"2026-01-02T00:00:00Z","likes":-2,"dislikes":0}]}`)
	require.Equal(t, asked{schema.Global, date("2026-01-01T00:00"), date("2026-01-03T00:00")}, got)
}

func TestSpanOfTime(t *testing.T) {
	var got asked
	r := newRig(t, nil, noHours(&got))
	r.now = func() time.Time { return date("2026-03-15T12:34").In(time.FixedZone("", 5*3600)) }
	for query, want := range map[string][2]string{
		"":                              {"2026-03-14T13:00", "2026-03-15T13:00"},
		"?interval=day":                 {"2026-02-14T00:00", "2026-03-16T00:00"},
		"?from=2026-03-15T12:00:00Z":    {"2026-03-15T12:00", "2026-03-15T13:00"},
		"?to=2026-03-15T12:00:00Z":      {"2026-03-14T12:00", "2026-03-15T12:00"},
		"?to=2026-03-15T12:00:01Z":      {"2026-03-14T13:00", "2026-03-15T13:00"},
		"?to=2026-03-15T12:00:00-05:30": {"2026-03-14T18:00", "2026-03-15T18:00"},
		"?interval=day&to=2026-03-15T01:00:00%2B02:00":       {"2026-02-13T00:00", "2026-03-15T00:00"},
		"?from=2026-02-01T00:00:00Z&to=2026-03-14T16:00:00Z": {"2026-02-01T00:00", "2026-03-14T16:00"}, // 1,000 hours
	} {
		a := r.get("/v1/analytics/likes" + query)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", query, a.body)
		require.Equal(t, asked{schema.Global, date(want[0]), date(want[1])}, got, query)
	}
}

func TestInvalidSpans(t *testing.T) {
	r := newRig(t, nil, noHours(new(asked)))
	r.now = func() time.Time { return date("2026-03-15T12:34") }
	for _, tt := range []struct{ query, field, reason, detail string }{
		{"from=yesterday", "from", "undecodable", `"yesterday" is not a time, as 2026-11-21T10:00:00Z (a + is written %2B)`},
		{"to=2026-03-15T01:00:00+02:00", "to", "undecodable", `"2026-03-15T01:00:00 02:00" is not a time, as 2026-11-21T10:00:00Z (a + is written %2B)`},
		{"to=1969-12-31T23:59:59Z", "to", "out_of_range", `"1969-12-31T23:59:59Z" is not between 1970 and 2200`},
		{"from=9999-12-31T23:59:59Z", "from", "out_of_range", `"9999-12-31T23:59:59Z" is not between 1970 and 2200`},
		{"from=2026-03-15T13:00:00Z", "from", "out_of_range", "must be before to, which is 2026-03-15T13:00:00Z"},
		{"from=2026-03-15T14:00:00Z&to=2026-03-15T13:00:00Z", "from", "out_of_range", "must be before to, which is 2026-03-15T13:00:00Z"},
		{"from=2026-02-01T00:00:00Z&to=2026-03-14T16:00:01Z", "from", "out_of_range", "is 1001 intervals before to, which is 2026-03-14T17:00:00Z; 1000 at most"},
		{"from=1970-01-01T00:00:00Z&to=2200-12-31T23:59:59Z", "from", "out_of_range", "is 2024904 intervals before to, which is 2201-01-01T00:00:00Z; 1000 at most"},
		{"interval=week", "interval", "unknown_value", `"week" is none of hour, day`},
		{"region=Europe", "region", "undecodable", `"Europe" is no region, as DE or US-CA, nor global`},
		{"limit=3", "limit", "unknown_field", "is not known here; known are region, interval, from, to"},
	} {
		r.get("/v1/analytics/likes?"+tt.query).requireInvalid(tt.field, tt.reason, tt.detail)
	}
}

func TestNoMySQL(t *testing.T) {
	r := newRig(t, nil, nil)
	require.Contains(t, r.get("/v1/analytics/likes").requireProblem(http.StatusServiceUnavailable, "no-mysql"), "mysql.dsn")
}

// MySQL being away is told in a bounded time, without what its errors may hold, and
// logged once.
func TestMySQLAway(t *testing.T) {
	away := true
	r := newRig(t, func(o *Options) { o.MaxWait, o.ReadTimeout, o.WriteTimeout = 0, time.Millisecond, 2*time.Millisecond },
		fakeHistory(func(ctx context.Context, _ schema.Region, _, _ time.Time) ([]HourLikes, error) {
			if !away {
				return nil, nil
			}
			<-ctx.Done() // for ever, were it not bounded
			return nil, errors.New("no route to 10.0.0.7")
		}))
	for range 3 {
		require.NotContains(t, r.get("/v1/analytics/likes").requireProblem(http.StatusServiceUnavailable, "mysql-away"), "10.0.0.7")
	}
	require.Equal(t, 1, strings.Count(r.logged.String(), "no route to 10.0.0.7"), r.logged.String())
	away = false
	require.Equal(t, http.StatusOK, r.get("/v1/analytics/likes").status)
	require.Equal(t, http.StatusOK, r.get("/v1/analytics/likes").status)
	require.Equal(t, 1, strings.Count(r.logged.String(), "MySQL answers"))

	away = true
	before := r.logged.Len()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	r.askWithin(gone, http.MethodGet, "/v1/analytics/likes", "").requireProblem(http.StatusServiceUnavailable, "mysql-away")
	require.Equal(t, before, r.logged.Len(), "it is the client that is gone")
}
