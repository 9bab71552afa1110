package reader

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/sql"
)

func ranking(region, window string, posts ...schema.RankedPost) *view.Ranking {
	return &view.Ranking{
		AsOf: wire.Position{Partition: 1, Offset: 7},
		Ranking: &schema.Ranking{
			Version: schema.RankingVersion, Region: region, Window: window,
			RankingBasis: schema.RankingBasis{
				From: schema.NoMinute, To: 29395320, Watermark: 29395318,
				Positions: []schema.RankingPosition{{Partition: 0, Offset: 5, Idle: schema.NoMinute},
					{Partition: 1, Offset: 9, Idle: 3}},
			},
			Posts: posts, Score: "decay", HalfLife: "30m", TopN: 100, MinLikes: 1,
		},
	}
}

func withRankings(t *testing.T) *rig {
	r := newRig(t, nil, nil)
	r.rankings.list = []*view.Ranking{
		ranking("DE", "1h", schema.RankedPost{Rank: 1, PreviousRank: 2, PostID: 1<<64 - 1, Score: 2_500_000, Likes: 3}),
		ranking("US-CA", "day"), ranking("global", "1h"), ranking("global", "all"), ranking("global", "day"),
	}
	return r
}

func rankingJSON(region, window, posts string) string {
	return `{"region":"` + region + `","window":"` + window +
		`","from":null,"to":"2025-11-21T10:00:00Z","watermark":"2025-11-21T09:58:00Z",
		"posts":[` + posts + `],"score":"decay","half_life":"30m","top_n":100,"min_likes":1,
		"positions":[{"partition":0,"offset":5},{"partition":1,"offset":9}]}`
}

func TestTrending(t *testing.T) {
	r := withRankings(t)
	want := rankingJSON("DE", "1h",
		`{"rank":1,"previous_rank":2,"post_id":"18446744073709551615","score":2.5,"likes":3}`)
	for _, target := range []string{"/v1/trending/DE", "/v1/trending/de?window=1h"} {
		r.get(target).RequireJSON(200, want).RequireHeader("Cache-Control", "public, max-age=1")
	}
	r.get("/v1/trending/us-ca?window=day").RequireJSON(200, rankingJSON("US-CA", "day", ""))
	r.get("/v1/trending/global").RequireJSON(200, rankingJSON("global", "1h", ""))
	r.get("/v1/trending/GLOBAL?window=all").RequireJSON(200, rankingJSON("global", "all", ""))

	etag := r.get("/v1/trending/DE").Header.Get("ETag")
	require.Empty(t, r.get("/v1/trending/DE", "If-None-Match", etag).Require(http.StatusNotModified).Body)
	r.rankings.list[0].Posts[0].Likes++
	require.NotEqual(t, etag, r.get("/v1/trending/DE", "If-None-Match", etag).Require(200).Header.Get("ETag"))
}

func TestLeaderboard(t *testing.T) {
	r := withRankings(t)
	r.get("/v1/leaderboard").RequireJSON(200, rankingJSON("global", "all", ""))
	r.get("/v1/leaderboard?period=day").RequireJSON(200, rankingJSON("global", "day", ""))
	a := r.get("/v1/leaderboard?period=day&region=us-ca").RequireJSON(200, rankingJSON("US-CA", "day", ""))
	r.get("/v1/leaderboard?period=day&region=us-ca", "If-None-Match", a.Header.Get("ETag")).
		Require(http.StatusNotModified)
}

func TestListRankings(t *testing.T) {
	r := withRankings(t)
	r.rankings.list = r.rankings.list[:2]
	r.get("/v1/trending").RequireJSON(200, `{"rankings":[
		{"region":"DE","window":"1h","to":"2025-11-21T10:00:00Z","posts":1},{"region":"US-CA","window":"day","to":"2025-11-21T10:00:00Z","posts":0}]}`)
	r.rankings.list = nil
	r.get("/v1/trending").RequireJSON(200, `{"rankings":[]}`)
}

func TestNoRanking(t *testing.T) {
	r := withRankings(t)
	for target, what := range map[string]string{
		"/v1/trending/fr?window=24h": "FR and window 24h", "/v1/leaderboard?region=DE": "DE and window all",
	} {
		r.get(target).RequireProblem(http.StatusNotFound, "no-ranking",
			"there is no ranking of region "+what+"; GET /v1/trending lists those that exist")
	}
}

func TestRankingsNotReady(t *testing.T) {
	r := withRankings(t)
	for _, target := range []string{"/v1/trending", "/v1/trending/DE", "/v1/leaderboard"} {
		r.rankings.err = &view.NotReadyError{Topic: "trending", Partition: 2, Behind: 3}
		r.get(target).RequireProblem(503, "not-ready", "trending/2: the view is 3 records behind")
		r.rankings.err = errors.New("broken")
		r.get(target).RequireProblem(http.StatusInternalServerError, "internal", "")
	}
}

func TestReaction(t *testing.T) {
	r := newRig(t, nil, nil)
	for user, want := range map[string]string{
		"7": `"reaction":"LIKE","since":"2025-11-21T10:00:00.123Z","region":"DE"`,
		"8": `"reaction":"DISLIKE","since":"2025-11-21T10:00:00.000Z","region":"ZZ"`,
		"9": `"reaction":"NONE"`,
	} {
		r.get(likesOf1+"/"+user).RequireHeader("Cache-Control", "private, no-cache").RequireJSON(200,
			`{"post_id":"1","user_id":"`+user+`",`+want+`,"as_of":{"partition":1,"offset":20}}`)
	}
}

func TestLikers(t *testing.T) {
	r := newRig(t, nil, nil)
	var want []string
	for i := range uint64(5) {
		user := 1<<64 - 5 + i
		r.likes.mu.likers = append(r.likes.mu.likers,
			wire.Liker{UserID: user, Since: 1763719200000 + wire.Millis(i), Region: "US-CA"})
		want = append(want, fmt.Sprintf(`{"user_id":"%d","since":"2025-11-21T10:00:00.00%dZ","region":"US-CA"}`, user, i))
	}
	page := func(post, likers, more string) string {
		return `{"post_id":"` + post + `","likers":[` + likers + `]` + more + `,"as_of":{"partition":` + post +
			`,"offset":` + post + "1}}"
	}
	r.likes.mu.asOf = [5]int64{1: 11, 3: 31}
	const target = "/v1/posts/1/likers"
	r.get(target).RequireJSON(200, page("1", strings.Join(want, ","), "")).
		RequireHeader("Cache-Control", "private, no-cache")
	r.get("/v1/posts/3/likers").RequireJSON(200, page("3", "", ""))

	token := func(after uint64) string {
		return newPageToken(1, cursor{after, wire.Position{Partition: 1, Offset: 11}})
	}
	more := func(after uint64) string { return `,"next_page_token":"` + token(after) + `"` }
	second, last := token(1<<64-4), token(1<<64-2)
	require.LessOrEqual(t, len(last), 100)
	r.get(target+"?page_size=2").RequireJSON(200, page("1", want[0]+","+want[1], more(1<<64-4)))
	r.get(target+"?page_size=2&page_token="+second).RequireJSON(200, page("1", want[2]+","+want[3], more(1<<64-2)))
	r.get(target+"?page_size=2&page_token="+last).RequireJSON(200, page("1", want[4], ""))
}

func TestInvalidPageTokens(t *testing.T) {
	r := newRig(t, nil, nil)
	const none = "is not the next_page_token of a page; start again without it"
	token := newPageToken(1, cursor{after: 7})
	r.get("/v1/posts/1/likers?page_token=" + token).Require(200)
	r.get("/v1/posts/2/likers?page_token="+token).RequireInvalid("page_token", "undecodable",
		"belongs to another post; start again without it")
	for _, bad := range []string{"x", "Ag", token[:len(token)-1], token + "A", token + "=", "!" + token[1:]} {
		r.get("/v1/posts/1/likers?page_token="+bad).RequireInvalid("page_token", "undecodable", none)
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	for i := range raw {
		forged := append([]byte(nil), raw...)
		forged[i] ^= 0x10
		detail := none
		if i == 0 {
			detail = "has an unknown format; it may come from another version of the reader; start again without it"
		}
		r.get("/v1/posts/1/likers?page_token="+
			base64.RawURLEncoding.EncodeToString(forged)).RequireInvalid("page_token", "undecodable", detail)
	}
	r.get("/v1/posts/0/likers?page_token=x").RequireInvalid("post_id", "zero_id", "is 0")
}

func TestWithoutReactions(t *testing.T) {
	r := newRig(t, nil, nil)
	r.api.reactions = nil
	for _, target := range []string{"/v1/posts/1/likers", "/v1/posts/1/likes/7"} {
		r.get(target).RequireProblem(http.StatusNotFound, "no-reactions",
			"this reader does not keep reactions (reader.reactions is false)")
	}
	r.get(likesOf1).Require(200)
}

// asked is the last query to MySQL.
type asked struct {
	region   schema.Region
	from, to time.Time
}

// hours is a MySQL with these hours.
func hours(into *asked, have ...sql.HourLikes) history {
	return func(_ context.Context, region schema.Region, from, to time.Time) ([]sql.HourLikes, error) {
		*into = asked{region, from, to}
		return have, nil
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
	r := newRig(t, nil, hours(&got, sql.HourLikes{Hour: date("2026-01-01T23:00"), Likes: 5, Dislikes: 1},
		sql.HourLikes{Hour: date("2026-01-02T01:00"), Likes: -2}))
	const span = "&from=2026-01-01T22:59:59Z&to=2026-01-02T01:00:00.001Z"
	r.get(overTime+"?region=de&interval=hour"+span).RequireHeader("Cache-Control", "public, max-age=1").RequireJSON(200,
		`{"region":"DE","interval":"hour",
		"from":"2026-01-01T22:00:00Z","to":"2026-01-02T02:00:00Z","points":[
		{"from":"2026-01-01T22:00:00Z","likes":0,"dislikes":0},{"from":"2026-01-01T23:00:00Z","likes":5,"dislikes":1},
		{"from":"2026-01-02T00:00:00Z","likes":0,"dislikes":0},{"from":"2026-01-02T01:00:00Z","likes":-2,"dislikes":0}]}`)
	require.Equal(t, asked{schema.Region{'D', 'E'}, date("2026-01-01T22:00"), date("2026-01-02T02:00")}, got)

	r.get("/v1/analytics/likes?interval=day"+span).RequireJSON(200, `{"region":"global","interval":"day",
		"from":"2026-01-01T00:00:00Z","to":"2026-01-03T00:00:00Z","points":[
		{"from":"2026-01-01T00:00:00Z","likes":5,"dislikes":1},{"from":"2026-01-02T00:00:00Z","likes":-2,"dislikes":0}]}`)
	require.Equal(t, asked{schema.Global, date("2026-01-01T00:00"), date("2026-01-03T00:00")}, got)
}

func TestSpanOfTime(t *testing.T) {
	var got asked
	r := newRig(t, nil, hours(&got))
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
		r.get(overTime + query).Require(200)
		require.Equal(t, asked{schema.Global, date(want[0]), date(want[1])}, got, query)
	}
}

func TestNoMySQL(t *testing.T) {
	newRig(t, nil, nil).get(overTime).RequireProblem(503, "no-mysql", "mysql.dsn")
}

// If MySQL is unavailable, the error comes in bounded time, without the content of MySQL's error, and is logged once.
func TestMySQLUnavailable(t *testing.T) {
	away := true
	history := func(ctx context.Context, _ schema.Region, _, _ time.Time) ([]sql.HourLikes, error) {
		if !away {
			return nil, nil
		}
		<-ctx.Done() // forever, unless bounded
		return nil, errors.New("no route to 10.0.0.7")
	}
	r := newRig(t, func(o *Options) {
		o.MaxWait, o.ReadTimeout, o.WriteTimeout = 0, time.Millisecond, 2*time.Millisecond
	}, history)
	for range 3 {
		require.NotContains(t, r.get(overTime).RequireProblem(503, "mysql-away", "").Body, "10.0.0.7")
	}
	require.Equal(t, 1, strings.Count(r.logged.String(), "no route to 10.0.0.7"), r.logged.String())
	away = false
	r.get(overTime).Require(200)
	r.get(overTime).Require(200)
	require.Equal(t, 1, strings.Count(r.logged.String(), "MySQL answers"))

	away = true
	before := r.logged.Len()
	r.getGone(overTime).RequireProblem(503, "mysql-away", "")
	require.Equal(t, before, r.logged.Len(), "the client disconnected; MySQL did not fail")
}
