package reader

import (
	"errors"
	"net/http"

	"kudos/reader/view"
	"kudos/reader/wire"
)

// getStats answers totals, and how far behind the reader is.
func (a *api) getStats(w http.ResponseWriter, r *http.Request, _ *slot) error {
	in := read(r)
	if err := in.refusal(); err != nil {
		return err
	}
	partitions, err := a.likes.Partitions()
	if err != nil {
		return err
	}
	totals := a.likes.Totals()
	stats := wire.Stats{
		Posts: totals.Posts, Likes: totals.Likes, Dislikes: totals.Dislikes,
		EventsBehind: -1, LagMs: -1, Partitions: make([]wire.PartitionStats, partitions),
	}
	for i := range partitions {
		asOf, err := a.likes.AsOf(i)
		var notReady *view.NotReadyError
		switch {
		case err == nil:
			stats.Partitions[i] = wire.PartitionStats{AsOf: asOf, Ready: true}
			stats.Events += asOf.Offset
		case errors.As(err, &notReady):
			stats.Partitions[i] = wire.PartitionStats{AsOf: wire.Position{Partition: i}}
		default:
			return err
		}
	}
	if events, behind, known := a.likes.Lag(); known {
		stats.EventsBehind, stats.LagMs = events, behind.Milliseconds()
	}
	return a.writeJSON(w, r, a.headers.noCache, stats)
}
