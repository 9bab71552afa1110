package ranker_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/rankings/day"
	"kudos/integration/rankings"
	"kudos/schema"
)

func TestZZ(t *testing.T) {
	a := newArena(t, nil)
	a.start()
	tapes := records(t, 40000, day.DefaultBatching(partitions))
	at := make([]int, partitions)
	for i := 0; a.feed(tapes, at, 1700); i++ {
		if i == 2 || i == 7 { a.start() }
		if i == 4 || i == 6 { a.exclude(mostLiked(a), true) }
	}
	for range 20 {
		v, err := rankings.Check(a.logs(), a.config(), &rankings.End{Idle: schema.NoMinute})
		require.NoError(t, err)
		if v.Differences.Total == 0 { t.Log(v.Rankings); return }
		fmt.Fprintln(os.Stderr, v.Differences.String())
		logs := a.logs()
		for _, r := range logs.Rankings {
			rk, _ := schema.DecodeRanking(r.Value)
			if string(r.Key) == "global/24h" {
				fmt.Fprintln(os.Stderr, rk.From, rk.To, rk.Watermark, rk.Positions)
				for i, p := range rk.Posts {
					var sum int64
					part := schema.PartitionFor(p.PostID, partitions)
					last := ""
					for rec := range logs.Updates[part].All() {
						if string(rec.Key) != fmt.Sprint(p.PostID) { continue }
						var u schema.Update
						_ = schema.DecodeUpdate(rec.Value, &u)
						for _, d := range u.Deltas {
							in := schema.Minute(d.Minute) >= rk.From && schema.Minute(d.Minute) < rk.To
							if rec.Offset < rk.Positions[part].Offset && in { sum += d.Likes } 
							if rec.Offset > rk.Positions[part].Offset-30 && rec.Offset < rk.Positions[part].Offset+30 { last += fmt.Sprint(" ", rec.Offset, ":", schema.Minute(d.Minute), d.Likes, in) }
						}
					}
					if sum != p.Likes { fmt.Fprintln(os.Stderr, i, p.PostID, p.Likes, "sum", sum, "part", part, last) }
				}
			}
		}
		return
	}
}
