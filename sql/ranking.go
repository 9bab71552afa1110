package sql

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"kudos/schema"
)

// Ranking is all that MySQL has of one region and window: a row for each place.
type Ranking struct {
	Region string // ISO 3166-1 or -2, upper case, or global
	// Window is that of trending; schema.LeaderboardDay and LeaderboardAll are the periods of leaderboard.
	Window string
	AsOf   time.Time    // watermark; zero: none
	Posts  []RankedPost // best first; none: the ranking has no rows
}

// RankedPost is one place of a ranking.
type RankedPost struct {
	PostID uint64
	Score  schema.Score // not in leaderboard, which is by likes
	Likes  int64
}

// ReplaceRankings replaces rankings by those of the range from → to of a partition, each whole: one transaction moves
// the stored position and makes the rows of each ranking what it says. It sorts rankings in place; each key (region and
// window) occurs once, as the newest of the range has it. It may move the position back, to have the log read once more.
//
// Fails with ErrPositionMoved (nothing changed) and *UnknownOutcomeError (perhaps replaced). After either, read
// RankingPosition and go on there. Deadlocks and lock wait timeouts are repeated within Options.Retries.
func (s *Store) ReplaceRankings(ctx context.Context, src Source, partition int32, from, to Position, rankings []Ranking) error {
	err := s.replaceRankings(ctx, src, partition, from, to, rankings)
	if err != nil {
		return describe(err, "replace rankings by %s/%d [%d, %d) in MySQL at %s", src.Topic, partition, from.NextOffset, to.NextOffset, s)
	}
	return nil
}

func (s *Store) replaceRankings(ctx context.Context, src Source, partition int32, from, to Position, rankings []Ranking) error {
	if err := s.check(src, partition); err != nil {
		return err
	}
	if err := checkRankingRange(from, to); err != nil {
		return err
	}
	slices.SortFunc(rankings, func(a, b Ranking) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Window, b.Window))
	})
	if err := checkRankings(rankings); err != nil {
		return err
	}
	return s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		if err := moveRankingPosition(ctx, tx, src, partition, from, to); err != nil {
			return err
		}
		limit := s.packet.statementBytes(s.options.MaxStatementBytes)
		for _, table := range rankingTables {
			if err := table.replace(ctx, tx, limit, table.of(rankings)); err != nil {
				return err
			}
		}
		return nil
	})
}

// rankingTable is trending or leaderboard.
type rankingTable struct {
	name   string
	window string // the column
	holds  func(window string) bool
	upsert statementText
	append func([]byte, place) []byte
}

// The tables, in the order in which they are locked.
var rankingTables = []rankingTable{
	{
		name: "trending", window: "`window`", append: appendTrending,
		holds: func(window string) bool { return !isPeriod(window) },
		upsert: statementText{
			prefix: "INSERT INTO trending (region, `window`, `rank`, post_id, score, likes, as_of) VALUES ",
			suffix: " ON DUPLICATE KEY UPDATE post_id = VALUES(post_id), score = VALUES(score), likes = VALUES(likes), as_of = VALUES(as_of)",
		},
	},
	{
		name: "leaderboard", window: "period", append: appendLeaderboard,
		holds: isPeriod,
		upsert: statementText{
			prefix: "INSERT INTO leaderboard (region, period, `rank`, post_id, likes, as_of) VALUES ",
			suffix: " ON DUPLICATE KEY UPDATE post_id = VALUES(post_id), likes = VALUES(likes), as_of = VALUES(as_of)",
		},
	},
}

// conditionBytes bounds a statement with many keys in its condition: of too many the optimizers make nothing, and scan.
const conditionBytes = 8 << 10

// place is a row.
type place struct {
	region, window string
	rank           int // from 1
	post           RankedPost
	asOf           time.Time
}

func (t rankingTable) of(rankings []Ranking) []Ranking {
	var own []Ranking
	for _, r := range rankings {
		if t.holds(r.Window) {
			own = append(own, r)
		}
	}
	return own
}

// replace updates rows in place and deletes those behind the last place. Rows are named by their whole keys and in their
// order, so that only this partition's are locked: for `rank` > n the next key's first row would be, too, and for many
// keys in one DELETE the optimizers find it cheaper to scan the table.
func (t rankingTable) replace(ctx context.Context, tx *sqlx.Tx, limit int, rankings []Ranking) error {
	before, err := t.selectPlaces(ctx, tx, limit, rankings)
	if err != nil {
		return err
	}
	var rows []place
	for _, r := range rankings {
		for i, post := range r.Posts {
			rows = append(rows, place{r.Region, r.Window, i + 1, post, r.AsOf})
		}
	}
	if err := upsert(ctx, tx, limit, t.upsert, rows, t.append); err != nil {
		return err
	}
	for _, r := range rankings {
		if err := t.deletePlaces(ctx, tx, limit, r, before[[2]string{r.Region, r.Window}]); err != nil {
			return err
		}
	}
	return nil
}

// deletePlaces deletes what a ranking does not have any more of the places it had.
func (t rankingTable) deletePlaces(ctx context.Context, tx *sqlx.Tx, limit int, r Ranking, before int) error {
	var gone []int64
	for rank := len(r.Posts) + 1; rank <= before; rank++ {
		gone = append(gone, int64(rank))
	}
	around := statementText{
		prefix: string(append(t.appendKey([]byte("DELETE FROM "+t.name+" WHERE "), r.Region, r.Window), " AND `rank` IN ("...)),
		suffix: ")",
	}
	return eachStatement(limit, around, gone,
		func(text []byte, rank int64) []byte { return strconv.AppendInt(text, rank, 10) },
		execute(ctx, tx))
}

// selectPlaces tells how many places the rankings have in the table; those that have none are left out. It takes no lock:
// nobody but the holder of the position changes these keys.
func (t rankingTable) selectPlaces(ctx context.Context, tx *sqlx.Tx, limit int, rankings []Ranking) (map[[2]string]int, error) {
	places := map[[2]string]int{}
	around := statementText{
		prefix:  "SELECT region, " + t.window + ", MAX(`rank`) FROM " + t.name + " WHERE ",
		suffix:  " GROUP BY region, " + t.window,
		between: " OR ",
	}
	err := eachStatement(min(limit, conditionBytes), around, rankings,
		func(text []byte, r Ranking) []byte { return t.appendKey(text, r.Region, r.Window) },
		func(text string) error {
			rows, err := tx.QueryContext(ctx, text)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var key [2]string
				var last int
				if err := rows.Scan(&key[0], &key[1], &last); err != nil {
					return err
				}
				places[key] = last
			}
			return rows.Err()
		})
	return places, err
}

func (t rankingTable) appendKey(text []byte, region, window string) []byte {
	text = append(text, "region = '"...)
	text = append(text, region...)
	text = append(text, "' AND "...)
	text = append(text, t.window...)
	text = append(text, " = '"...)
	text = append(text, window...)
	return append(text, '\'')
}

func appendTrending(text []byte, p place) []byte {
	text = append(appendPlace(text, p), ',')
	text = append(text, p.post.Score.String()...)
	return appendLikes(text, p)
}

func appendLeaderboard(text []byte, p place) []byte {
	return appendLikes(appendPlace(text, p), p)
}

func appendPlace(text []byte, p place) []byte {
	text = append(text, "('"...)
	text = append(text, p.region...)
	text = append(text, "','"...)
	text = append(text, p.window...)
	text = append(text, "',"...)
	text = strconv.AppendInt(text, int64(p.rank), 10)
	text = append(text, ',')
	return strconv.AppendUint(text, p.post.PostID, 10)
}

func appendLikes(text []byte, p place) []byte {
	text = append(text, ',')
	text = strconv.AppendInt(text, p.post.Likes, 10)
	if p.asOf.IsZero() {
		return append(text, ",NULL)"...)
	}
	return append(p.asOf.UTC().AppendFormat(text, ",'2006-01-02 15:04:05'"), ')')
}

func isPeriod(window string) bool {
	return window == schema.LeaderboardDay || window == schema.LeaderboardAll
}

// checkRankings refuses what the tables cannot hold, before it could become SQL. rankings are sorted.
func checkRankings(rankings []Ranking) error {
	for i := range rankings {
		r := &rankings[i]
		if err := r.Validate(); err != nil {
			return err
		}
		if i > 0 && r.Region == rankings[i-1].Region && r.Window == rankings[i-1].Window {
			return fmt.Errorf("ranking %s is there twice", schema.RankingKey(r.Region, r.Window))
		}
	}
	return nil
}

// Validate tells what the tables cannot hold.
func (r *Ranking) Validate() error {
	year := r.AsOf.UTC().Year()
	switch {
	case r.Region != schema.GlobalName && !isRegion(r.Region):
		return fmt.Errorf("region %q is neither %s nor of the form AA or AA-AAA", r.Region, schema.GlobalName)
	case !isWindow(r.Window):
		return fmt.Errorf("window %q has not 1 to 8 small letters and digits", r.Window)
	case !r.AsOf.IsZero() && (year < 1000 || year > 9999):
		return fmt.Errorf("ranking %s is as of the year %d, which is outside 1000 to 9999", schema.RankingKey(r.Region, r.Window), year)
	}
	for _, post := range r.Posts {
		if post.Score < 0 {
			return fmt.Errorf("ranking %s has a score below zero for post %d", schema.RankingKey(r.Region, r.Window), post.PostID)
		}
	}
	return nil
}

func isWindow(window string) bool {
	for i := range len(window) {
		c := window[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(window) >= 1 && len(window) <= 8
}
