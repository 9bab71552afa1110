package reader

import (
	"encoding/json"
	"fmt"
	"net/http"

	"kudos/httpserver/problem"
	"kudos/reader/wire"
	"kudos/schema"
)

// listRankings answers which rankings there are.
func (a *api) listRankings(w http.ResponseWriter, r *http.Request, _ *slot) error {
	in := read(r)
	if err := in.refusal(); err != nil {
		return err
	}
	rankings, err := a.rankings.List()
	if err != nil {
		return err
	}
	body := wire.Rankings{Rankings: make([]wire.RankingName, len(rankings))}
	for i, k := range rankings {
		body.Rankings[i] = wire.RankingName{Region: k.Region, Window: k.Window, To: k.To, Posts: len(k.Posts)}
	}
	return a.writeJSON(w, r, a.headers.public, body)
}

// getTrending answers the newest ranking of a region and window.
func (a *api) getTrending(w http.ResponseWriter, r *http.Request, _ *slot) error {
	in := read(r, "window")
	region, window := in.Region("region", r.PathValue("region")), in.Window("window")
	if err := in.refusal(); err != nil {
		return err
	}
	return a.writeRanking(w, r, region, window)
}

// getLeaderboard answers the most liked posts of the day or of all time.
func (a *api) getLeaderboard(w http.ResponseWriter, r *http.Request, _ *slot) error {
	in := read(r, "region", "period")
	region := in.Region("region", in.Value("region"))
	period := in.OneOf("period", schema.LeaderboardAll, schema.LeaderboardDay, schema.LeaderboardAll)
	if err := in.refusal(); err != nil {
		return err
	}
	return a.writeRanking(w, r, region, period)
}

func (a *api) writeRanking(w http.ResponseWriter, r *http.Request, region schema.Region, window string) error {
	name := schema.RankingRegion(region)
	ranking, err := a.rankings.Get(name, window)
	if err != nil {
		return err
	}
	if ranking == nil {
		return refuse(problem.New(http.StatusNotFound, "no-ranking", "There is no such ranking",
			"nothing was ever ranked for region %s and window %s; GET /v1/trending lists what there is", name, window))
	}
	body, err := json.Marshal(wire.NewRanking(ranking.Ranking))
	if err != nil {
		return fmt.Errorf("encoding ranking %s: %w", schema.RankingKey(name, window), err)
	}
	a.write(w, r, written{body: body, contentType: a.headers.json, caching: a.headers.public, etag: etagOf(body)})
	return nil
}
