package reader

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

func ranking(region, window string, posts ...schema.RankedPost) *view.Ranking {
	return &view.Ranking{
		AsOf: wire.Position{Partition: 1, Offset: 7},
		Ranking: &schema.Ranking{
			Version: schema.RankingVersion, Region: region, Window: window,
			RankingBasis: schema.RankingBasis{
				From: schema.NoMinute, To: 29395320, Watermark: 29395318,
				Positions: []schema.RankingPosition{{Partition: 0, Offset: 5, Idle: schema.NoMinute}, {Partition: 1, Offset: 9, Idle: 3}},
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
	return `{"region":"` + region + `","window":"` + window + `","from":null,"to":"2025-11-21T10:00:00Z","watermark":"2025-11-21T09:58:00Z",
		"posts":[` + posts + `],"score":"decay","half_life":"30m","top_n":100,"min_likes":1,
		"positions":[{"partition":0,"offset":5},{"partition":1,"offset":9}]}`
}

func TestTrending(t *testing.T) {
	r := withRankings(t)
	want := rankingJSON("DE", "1h", `{"rank":1,"previous_rank":2,"post_id":"18446744073709551615","score":2.5,"likes":3}`)
	for _, target := range []string{"/v1/trending/DE", "/v1/trending/de?window=1h"} {
		a := r.get(target).requireJSON(http.StatusOK, want)
		require.Equal(t, "public, max-age=1", a.header.Get("Cache-Control"))
	}
	r.get("/v1/trending/us-ca?window=day").requireJSON(http.StatusOK, rankingJSON("US-CA", "day", ""))
	r.get("/v1/trending/global").requireJSON(http.StatusOK, rankingJSON("global", "1h", ""))
	r.get("/v1/trending/GLOBAL?window=all").requireJSON(http.StatusOK, rankingJSON("global", "all", ""))

	a := r.get("/v1/trending/DE")
	again := r.get("/v1/trending/DE", "If-None-Match", a.header.Get("ETag"))
	require.Equal(t, http.StatusNotModified, again.status)
	require.Empty(t, again.body)
	r.rankings.list[0].Posts[0].Likes++
	again = r.get("/v1/trending/DE", "If-None-Match", a.header.Get("ETag"))
	require.Equal(t, http.StatusOK, again.status)
	require.NotEqual(t, a.header.Get("ETag"), again.header.Get("ETag"))
}

func TestLeaderboard(t *testing.T) {
	r := withRankings(t)
	r.get("/v1/leaderboard").requireJSON(http.StatusOK, rankingJSON("global", "all", ""))
	r.get("/v1/leaderboard?period=day").requireJSON(http.StatusOK, rankingJSON("global", "day", ""))
	a := r.get("/v1/leaderboard?period=day&region=us-ca").requireJSON(http.StatusOK, rankingJSON("US-CA", "day", ""))
	require.Equal(t, http.StatusNotModified, r.get("/v1/leaderboard?period=day&region=us-ca", "If-None-Match", a.header.Get("ETag")).status)
}

func TestListRankings(t *testing.T) {
	r := withRankings(t)
	r.rankings.list = r.rankings.list[:2]
	r.get("/v1/trending").requireJSON(http.StatusOK, `{"rankings":[
		{"region":"DE","window":"1h","to":"2025-11-21T10:00:00Z","posts":1},{"region":"US-CA","window":"day","to":"2025-11-21T10:00:00Z","posts":0}]}`)
	r.rankings.list = nil
	r.get("/v1/trending").requireJSON(http.StatusOK, `{"rankings":[]}`)
	r.get("/v1/trending?region=DE").requireInvalid("region", "unknown_field", "is not known here; none is")
}

func TestNoRanking(t *testing.T) {
	r := withRankings(t)
	require.Equal(t, "nothing was ever ranked for region FR and window 24h; GET /v1/trending lists what there is",
		r.get("/v1/trending/fr?window=24h").requireProblem(http.StatusNotFound, "no-ranking"))
	require.Equal(t, "nothing was ever ranked for region DE and window all; GET /v1/trending lists what there is",
		r.get("/v1/leaderboard?region=DE").requireProblem(http.StatusNotFound, "no-ranking"))
}

func TestInvalidRankings(t *testing.T) {
	r := withRankings(t)
	const noRegion = `"Europe" is no region, as DE or US-CA, nor global`
	r.get("/v1/trending/Europe").requireInvalid("region", "undecodable", noRegion)
	r.get("/v1/leaderboard?region=Europe").requireInvalid("region", "undecodable", noRegion)
	r.get("/v1/leaderboard?region=").requireInvalid("region", "empty", "is empty")
	r.get("/v1/leaderboard?period=week").requireInvalid("period", "unknown_value", `"week" is none of day, all`)
	r.get("/v1/leaderboard?window=day").requireInvalid("window", "unknown_field", "is not known here; known are region, period")
	for _, window := range []string{"1H", "1h/x", "0123456789abcdefg"} {
		r.get("/v1/trending/DE?window="+window).requireInvalid("window", "undecodable", `"`+window+`" is not the name of a window, as 1h or day`)
	}
}

func TestRankingsNotReady(t *testing.T) {
	r := withRankings(t)
	for _, target := range []string{"/v1/trending", "/v1/trending/DE", "/v1/leaderboard"} {
		r.rankings.err = &view.NotReadyError{Topic: "trending", Partition: 2, Behind: 3}
		require.Equal(t, "trending/2: the local copy is 3 records behind", r.get(target).requireProblem(http.StatusServiceUnavailable, "not-ready"))
		r.rankings.err = errors.New("broken")
		r.get(target).requireProblem(http.StatusInternalServerError, "internal")
	}
}
