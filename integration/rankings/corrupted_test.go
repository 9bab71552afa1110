package rankings

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// threeRankings returns a log of two partitions, and three rankings of a key, all of them right.
func threeRankings(t *testing.T) (*diary, []*schema.Ranking) {
	d := newDiary(t, 2)
	d.update(0, 1, delta{"DE", 990, 4})
	d.update(0, 2, delta{"DE", 991, 3})
	d.update(0, 3, delta{"DE", 992, 3})
	d.dislike(0, 1, "DE", 1000)
	d.update(1, 4, delta{"DE", 995, 2})
	d.update(1, 5, delta{"DE", 1000, 5})
	d.progress(1)
	d.exclude(1, `{"excluded":true}`)
	d.update(0, 2, delta{"DE", 991, -2})
	d.update(0, 3, delta{"DE", 1001, 1})
	d.update(1, 4, delta{"DE", 1003, 1})
	d.progress(0)

	first := d.ten("DE", positions(at(4), at(3)), post(1, 4), post(2, 3), post(3, 3))
	second := after(d.ten("DE", positions(at(5), at(3)), post(3, 3), post(4, 2), post(2, 1)), first)
	second.Exclusions, second.Positions[0].Exclusions = 1, 1
	third := after(d.ranking("DE", "10m", 992, 1002, 1001, positions(idle(7, 1003), at(4)), post(5, 5), post(3, 4),
		post(4, 2)), second)
	third.Exclusions, third.Positions[0].Exclusions = 1, 1
	return d, []*schema.Ranking{first, second, third}
}

func TestCorruptedRankingsAreSeen(t *testing.T) {
	d, right := threeRankings(t)
	for _, list := range [][]*schema.Ranking{right, nil} {
		d.faultless(nil, list...)
	}
	seen := func(name, rule string, corrupt func(r []*schema.Ranking) []*schema.Ranking) {
		t.Run(name, func(t *testing.T) {
			d, rankings := threeRankings(t)
			d.seen(d.check(nil, corrupt(rankings)...), rule)
		})
	}
	for name, second := range map[string]struct {
		rule    string
		corrupt func(r *schema.Ranking)
	}{
		"a later version":       {"record", func(r *schema.Ranking) { r.Version = 2 }},
		"another region":        {"posts", func(r *schema.Ranking) { r.Region = "FR" }},
		"an unknown window":     {"record", func(r *schema.Ranking) { r.Window = "11m" }},
		"another score":         {"record", func(r *schema.Ranking) { r.Score = "decay" }},
		"a half-life":           {"record", func(r *schema.Ranking) { r.HalfLife = "30m" }},
		"another top_n":         {"record", func(r *schema.Ranking) { r.TopN = 4 }},
		"another min_likes":     {"record", func(r *schema.Ranking) { r.MinLikes = 2 }},
		"a wrong score":         {"posts", func(r *schema.Ranking) { r.Posts[1].Score++ }},
		"wrong likes":           {"posts", func(r *schema.Ranking) { r.Posts[2].Likes++ }},
		"a swapped order":       {"posts", func(r *schema.Ranking) { r.Posts[0].PostID, r.Posts[1].PostID = 4, 3 }},
		"a wrong rank":          {"posts", func(r *schema.Ranking) { r.Posts[2].Rank = 2 }},
		"a missing post":        {"posts", func(r *schema.Ranking) { r.Posts = r.Posts[:2] }},
		"an additional post":    {"posts", func(r *schema.Ranking) { r.Posts = append(r.Posts, r.Posts[0]) }},
		"a duplicate post":      {"posts", func(r *schema.Ranking) { r.Posts[1] = r.Posts[0] }},
		"a previous rank":       {"previous", func(r *schema.Ranking) { r.Posts[1].PreviousRank = 1 }},
		"no previous ranking":   {"previous", func(r *schema.Ranking) { r.Previous = nil }},
		"a previous position":   {"previous", func(r *schema.Ranking) { r.Previous.Positions[0].Offset = 3 }},
		"a previous watermark":  {"previous", func(r *schema.Ranking) { r.Previous.Watermark-- }},
		"a hop behind":          {"alignment", func(r *schema.Ranking) { r.From, r.To = r.From-1, r.To-1 }},
		"a hop ahead":           {"alignment", func(r *schema.Ranking) { r.From, r.To = r.From+1, r.To+1 }},
		"another window size":   {"bounds", func(r *schema.Ranking) { r.From-- }},
		"a wrong watermark":     {"watermark", func(r *schema.Ranking) { r.Watermark++ }},
		"a stale exclusion":     {"posts", func(r *schema.Ranking) { r.Exclusions, r.Positions[0].Exclusions = 0, 0 }},
		"a stale position":      {"posts", func(r *schema.Ranking) { r.Positions[0].Offset = 4 }},
		"a lower position":      {"positions", func(r *schema.Ranking) { r.Positions[1].Offset = 2 }},
		"a position too high":   {"positions", func(r *schema.Ranking) { r.Positions[1].Offset = 5 }},
		"a missing partition":   {"positions", func(r *schema.Ranking) { r.Positions = r.Positions[:1] }},
		"a duplicate partition": {"positions", func(r *schema.Ranking) { r.Positions[1].Partition = 0 }},
		"another idle advance": {"alignment", func(r *schema.Ranking) {
			r.Positions[0].Idle, r.Positions[1].Idle = 1005, 1005
		}},
	} {
		seen(name, second.rule, func(rankings []*schema.Ranking) []*schema.Ranking {
			r := rankings[1]
			previous := *r.Previous // it is shared with the first ranking
			previous.Positions = slices.Clone(previous.Positions)
			r.Previous = &previous
			second.corrupt(r)
			return rankings
		})
	}
	for name, fourth := range map[string]struct {
		rule   string
		of     int
		change func(r *schema.Ranking)
	}{
		"nothing changed":        {"needless", 2, func(*schema.Ranking) {}},
		"a lower idle advance":   {"positions", 2, func(r *schema.Ranking) { r.Positions[0].Idle = schema.NoMinute }},
		"lower exclusions":       {"positions", 2, func(r *schema.Ranking) { r.Exclusions = 0 }},
		"lower known exclusions": {"positions", 2, func(r *schema.Ranking) { r.Positions[0].Exclusions = 0 }},
		"to decreases":           {"positions", 1, func(*schema.Ranking) {}},
	} {
		seen(name, fourth.rule, func(r []*schema.Ranking) []*schema.Ranking {
			last := after(deepCopy(t, r[fourth.of]), r[2])
			fourth.change(last)
			return append(r, last)
		})
	}
	d.seen(d.check(nil, right[0], right[2]), "previous") // the second is missing
	d.seen(d.check(nil, right[1:]...), "previous")
	d.seen(d.check(nil, d.ten("FR", positions(at(4), at(3)))), "needless") // the first is empty
}

func deepCopy(t *testing.T, r *schema.Ranking) *schema.Ranking {
	value, err := schema.EncodeRanking(r)
	require.NoError(t, err)
	r, err = schema.DecodeRanking(value)
	require.NoError(t, err)
	return r
}

func TestInvalidRankingRecords(t *testing.T) {
	d, right := threeRankings(t)
	value, err := schema.EncodeRanking(right[0])
	require.NoError(t, err)
	for _, rec := range []Record{{Key: []byte("DE/1h"), Value: value}, {Key: []byte("DE/10m"), Value: []byte("{")},
		{Key: []byte("DE/10m")}} {
		d.log.Rankings = []Record{rec}
		v, err := Check(&d.log, d.config, nil)
		require.NoError(t, err)
		d.seen(v.Differences, "record")
	}
}

func TestIncompleteLog(t *testing.T) {
	d, _ := threeRankings(t)
	d.seq[0]++
	d.progress(0)
	d.seen(d.check(nil), "log")
	d.log.Updates[1].Add(Record{Offset: 100, Key: []byte("1"), Value: []byte{0xff}})
	d.seen(d.check(nil), "log")
	d.log.Exclusions = []Record{{Key: []byte("1"), Value: []byte("no")}}
	_, err := Check(&d.log, d.config, nil)
	require.ErrorContains(t, err, "trending-exclusions offset 0")
}

// Every key that has something to rank at the end of the log must have a last ranking with it.
func TestEnd(t *testing.T) {
	d, right := threeRankings(t)
	d.config.Windows = d.config.Windows[:1]
	none := &End{Idle: schema.NoMinute}
	// The last rankings of all keys other than DE/10m.
	end := positions(idle(7, 1003), at(4))
	others := func() []*schema.Ranking {
		list := []*schema.Ranking{
			d.ranking("global", "10m", 992, 1002, 1001, slices.Clone(end), post(5, 5), post(3, 4), post(4, 2)),
			d.ranking("DE", "day", 0, 1440, 1001, slices.Clone(end), post(5, 5), post(3, 4), post(4, 3)),
			d.ranking("global", "day", 0, 1440, 1001, slices.Clone(end), post(5, 5), post(3, 4), post(4, 3)),
			d.allTime("DE", 1001, slices.Clone(end), post(5, 5), post(3, 4), post(4, 3)),
			d.allTime("global", 1001, slices.Clone(end), post(5, 5), post(3, 4), post(4, 3)),
		}
		for _, r := range list {
			r.Exclusions, r.Positions[0].Exclusions, r.Positions[1].Exclusions = 1, 1, 1
		}
		return list
	}
	all := append(right, others()...)
	d.faultless(none, all...)

	for i := len(right); i < len(all); i++ {
		d.seen(d.check(none, slices.Delete(slices.Clone(all), i, i+1)...), "missing")
	}
	d.seen(d.check(none, slices.Delete(slices.Clone(all), 2, 3)...), "missing") // the window has moved
	d.seen(d.check(&End{Idle: 1010}, all...), "missing")                        // and moves further with time
	d.exclude(5, `{"excluded":true}`)
	d.seen(d.check(none, all...), "missing")
}

// When time closes a window, its ranking ends empty; a partition that has fallen behind prevents that.
func TestEndOfAnIdleTopic(t *testing.T) {
	d := newDiary(t, 2)
	d.config.Windows = d.config.Windows[:1]
	d.update(0, 1, delta{"DE", 998, 1})
	d.dislike(0, 1, "DE", 1000)
	only := func(rankings ...*schema.Ranking) []*schema.Ranking {
		keys := []*schema.Ranking{}
		for _, region := range []string{"DE", "global"} {
			var last *schema.Ranking
			for _, r := range rankings {
				r := deepCopy(t, r)
				r.Region = region
				if last != nil {
					after(r, last)
				}
				last = r
				keys = append(keys, r)
			}
			keys = append(keys,
				d.ranking(region, "day", 0, 1440, 998, positions(at(2), at(0)), post(1, 1)),
				d.allTime(region, 998, positions(at(2), at(0)), post(1, 1)))
		}
		return keys
	}
	open := d.ten("DE", positions(at(2), at(0)), post(1, 1))
	closed := d.ranking("DE", "10m", 999, 1009, 1008, positions(idle(2, 1010), at(0)))
	d.faultless(&End{Idle: 1010}, only(open, closed)...)
	d.faultless(&End{Idle: 1020}, only(open, closed)...) // an empty ranking is not repeated
	d.seen(d.check(&End{Idle: 1010}, only(open)...), "missing")

	d.update(1, 2, delta{"DE", 990, 1}) // in the window, whose end the partition has not reached
	found := d.check(&End{Idle: schema.NoMinute}, only(open)...)
	for _, line := range found.Details {
		require.NotContains(t, line, "10m")
	}
	require.Equal(t, 4, found.Total, "day and all have one more post: %s", found.String())
}
