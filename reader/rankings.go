package reader

import (
	"errors"
	"net/http"

	"kudos/httpserver/problem"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

func (a *api) listRankings(q *request) (reply, error) {
	if err := q.refusal(); err != nil {
		return reply{}, err
	}
	rankings, err := a.rankings.List()
	if err != nil {
		return reply{}, err
	}
	body := wire.Rankings{Rankings: make([]wire.RankingName, len(rankings))}
	for i, k := range rankings {
		body.Rankings[i] = wire.RankingName{Region: k.Region, Window: k.Window, To: k.To, Posts: len(k.Posts)}
	}
	return encode(q, a.public, body)
}

func (a *api) getTrending(q *request) (reply, error) {
	region, window := q.Region("region", q.Request.PathValue("region")), q.Window("window")
	return a.ranking(q, region, window)
}

func (a *api) getLeaderboard(q *request) (reply, error) {
	region := q.Region("region", q.Value("region"))
	period := q.OneOf("period", schema.LeaderboardAll, schema.LeaderboardDay, schema.LeaderboardAll)
	return a.ranking(q, region, period)
}

func (a *api) ranking(q *request, region schema.Region, window string) (reply, error) {
	if err := q.refusal(); err != nil {
		return reply{}, err
	}
	name := schema.RankingRegion(region)
	ranking, err := a.rankings.Get(name, window)
	if err != nil {
		return reply{}, err
	}
	if ranking == nil {
		return reply{}, refuse(problem.New(http.StatusNotFound, "no-ranking", "Ranking not found",
			"there is no ranking of region %s and window %s; GET /v1/trending lists those that exist", name, window))
	}
	r, err := encode(q, a.public, wire.NewRanking(ranking.Ranking))
	r.etag = etagOf(r.body)
	return r, err
}

func (a *api) getStats(q *request) (reply, error) {
	if err := q.refusal(); err != nil {
		return reply{}, err
	}
	totals := a.counts.Totals()
	stats := wire.Stats{Posts: totals.Posts, Likes: totals.Likes, Dislikes: totals.Dislikes, EventsBehind: -1,
		LagMs: -1, Transactions: []wire.OpenTransaction{}}
	var err error
	if stats.Partitions, err = laneStats(a.counts); err != nil {
		return reply{}, err
	}
	for _, p := range stats.Partitions {
		stats.Events += p.AsOf.Offset
	}
	stats.Reactions = []wire.PartitionStats{} // [], not null
	if a.reactions != nil {
		list, err := laneStats(a.reactions)
		if err != nil && !errors.As(err, new(*view.NotReadyError)) {
			return reply{}, err
		}
		stats.Reactions = append(stats.Reactions, list...)
	}
	if events, behind, open, known := a.counts.Lag(); known {
		stats.EventsBehind, stats.LagMs, stats.Transactions = events, behind.Milliseconds(), open
	}
	return encode(q, noCache, stats)
}

func laneStats(of lane) ([]wire.PartitionStats, error) {
	partitions, err := of.Partitions()
	if err != nil {
		return nil, err
	}
	stats := []wire.PartitionStats{}
	for p := range partitions {
		asOf, err := of.AsOf(p)
		var notReady *view.NotReadyError
		switch {
		case err == nil:
			stats = append(stats, wire.PartitionStats{AsOf: asOf, Ready: true})
		case !errors.As(err, &notReady):
			return nil, err
		case !notReady.NotKept:
			stats = append(stats, wire.PartitionStats{AsOf: wire.Position{Partition: p}})
		}
	}
	return stats, nil
}
