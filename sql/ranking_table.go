package sql

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"kudos/schema"
)

type rankingTable struct {
	name   string
	window string // its column name
	holds  func(window string) bool
	upsert statementText
	append func([]byte, rankingRow) []byte
}

// rankingTables are in locking order.
var rankingTables = []rankingTable{
	{
		name: "trending", window: "`window`",
		holds: func(window string) bool { return !schema.IsLeaderboard(window) },
		upsert: statementText{
			prefix: "INSERT INTO trending (region, `window`, `rank`, post_id, score, likes, as_of) VALUES ",
			suffix: " ON DUPLICATE KEY UPDATE post_id = VALUES(post_id), score = VALUES(score)," +
				" likes = VALUES(likes), as_of = VALUES(as_of)",
		},
		append: func(text []byte, r rankingRow) []byte {
			return fmt.Appendf(text, "('%s','%s',%d,%d,%s,%d,%s)",
				r.Region, r.Window, r.rank, r.post.PostID, r.post.Score, r.post.Likes, r.asOf())
		},
	},
	{
		name: "leaderboard", window: "period",
		holds: schema.IsLeaderboard,
		upsert: statementText{
			prefix: "INSERT INTO leaderboard (region, period, `rank`, post_id, likes, as_of) VALUES ",
			suffix: " ON DUPLICATE KEY UPDATE post_id = VALUES(post_id), likes = VALUES(likes), as_of = VALUES(as_of)",
		},
		append: func(text []byte, r rankingRow) []byte {
			return fmt.Appendf(text, "('%s','%s',%d,%d,%d,%s)",
				r.Region, r.Window, r.rank, r.post.PostID, r.post.Likes, r.asOf())
		},
	},
}

type rankingRow struct {
	*Ranking
	rank int // from 1
	post RankedPost
}

func (r rankingRow) asOf() string {
	if r.AsOf.IsZero() {
		return "NULL"
	}
	return r.AsOf.UTC().Format("'" + time.DateTime + "'")
}

// conditionBytes bounds a statement with many keys in its condition: with too many keys, the optimizers scan the table.
const conditionBytes = 8 << 10

// replace updates the rows of this table's rankings in place, and deletes those beyond the last rank. Its statements
// list full keys, in order, so that they lock only rows of this partition: a condition `rank` > n would also lock the
// first row of the next key, and for many keys in one DELETE the optimizers prefer a table scan.
func (t rankingTable) replace(ctx context.Context, tx *sqlx.Tx, limit int, rankings []Ranking) error {
	var own []*Ranking
	var rows []rankingRow
	for i := range rankings {
		r := &rankings[i]
		if !t.holds(r.Window) {
			continue
		}
		own = append(own, r)
		for i, post := range r.Posts {
			rows = append(rows, rankingRow{r, i + 1, post})
		}
	}
	before, err := t.selectPlaces(ctx, tx, limit, own)
	if err != nil {
		return err
	}
	if err := eachStatement(limit, t.upsert, rows, t.append, execute(ctx, tx)); err != nil {
		return err
	}
	for _, r := range own {
		var gone []int
		for rank := len(r.Posts) + 1; rank <= before[schema.RankingKey(r.Region, r.Window)]; rank++ {
			gone = append(gone, rank)
		}
		prefix := t.appendKey([]byte("DELETE FROM "+t.name+" WHERE "), r)
		around := statementText{prefix: string(prefix) + " AND `rank` IN (", suffix: ")"}
		appendRank := func(text []byte, rank int) []byte { return strconv.AppendInt(text, int64(rank), 10) }
		if err := eachStatement(limit, around, gone, appendRank, execute(ctx, tx)); err != nil {
			return err
		}
	}
	return nil
}

// selectPlaces returns how many ranks each ranking has in the table, by key; rankings without rows are absent. It takes
// no lock: only the holder of the position changes these keys.
func (t rankingTable) selectPlaces(ctx context.Context, tx *sqlx.Tx, limit int, rankings []*Ranking,
) (map[string]int, error) {
	places := map[string]int{}
	around := statementText{
		prefix: "SELECT region, " + t.window + " AS name, MAX(`rank`) AS places FROM " + t.name + " WHERE ",
		suffix: " GROUP BY region, " + t.window, between: " OR ",
	}
	err := eachStatement(min(limit, conditionBytes), around, rankings, t.appendKey, func(text string) error {
		var rows []struct {
			Region, Name string
			Places       int
		}
		err := tx.SelectContext(ctx, &rows, text)
		for _, row := range rows {
			places[schema.RankingKey(row.Region, row.Name)] = row.Places
		}
		return err
	})
	return places, err
}

func (t rankingTable) appendKey(text []byte, r *Ranking) []byte {
	return fmt.Appendf(text, "region = '%s' AND %s = '%s'", r.Region, t.window, r.Window)
}
