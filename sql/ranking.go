package sql

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"kudos/schema"
)

// Ranking is the ranking of one region and window; MySQL has one row per rank.
type Ranking struct {
	Region string // ISO 3166-1 or 3166-2 code, upper case, or global
	// Window is a window of trending, or a period of leaderboard: schema.LeaderboardDay or schema.LeaderboardAll.
	Window string
	AsOf   time.Time    // watermark; zero if there is none
	Posts  []RankedPost // best first; if empty, the ranking has no rows
}

// RankedPost is one entry of a ranking.
type RankedPost struct {
	PostID uint64
	Score  schema.Score // unused in leaderboard, which ranks by likes
	Likes  int64
}

// RankingPosition reads up to where a partition of trending has been applied to MySQL (NextSeq is unused), under the
// row lock: it waits for a transaction on this partition whose outcome is still unknown.
//
// Unlike counts, rankings are absolute values: reading the log again replaces them and does no damage. So if the row is
// missing or belongs to another log, the partition restarts at offset 0 instead of parking. Rankings of another log are
// deleted first, because this log may not have all of their keys.
func (s *Store) RankingPosition(ctx context.Context, src Source, partition int32) (position Position, err error) {
	if err := s.check(src, partition); err != nil {
		return Position{}, err
	}
	err = s.lockPosition(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		var row positionRow
		err := tx.GetContext(ctx, &row, "SELECT topic_id, partitions, next_offset, leader_epoch FROM trending_position"+
			" WHERE topic = ? AND partition_id = ? FOR UPDATE", src.Topic, partition)
		switch {
		case err == nil && row.TopicID == src.topicID() && row.Partitions == src.Partitions:
			position = row.Position
			return errRollback
		case err == nil:
			s.log.Warn("the rankings in MySQL come from another log: deleting and rebuilding them", "topic", src.Topic,
				"topic_id", row.TopicID, "partitions", row.Partitions)
			if err := deleteRankings(ctx, tx, src); err != nil {
				return err
			}
		case !errors.Is(err, stdsql.ErrNoRows):
			return err
		}
		position = start
		_, err = tx.ExecContext(ctx,
			"INSERT INTO trending_position (topic, partition_id, topic_id, partitions, next_offset, leader_epoch)"+
				" VALUES (?, ?, ?, ?, ?, ?)",
			src.Topic, partition, src.topicID(), src.Partitions, start.NextOffset, start.LeaderEpoch)
		return err
	})
	return position, describe(err,
		"read the position of %s/%d in trending_position in MySQL at %s", src.Topic, partition, s)
}

// deleteRankings also deletes the positions of the other partitions, so that it runs once and not once per partition.
func deleteRankings(ctx context.Context, tx *sqlx.Tx, src Source) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM trending_position WHERE topic = ?", src.Topic); err != nil {
		return err
	}
	for _, table := range rankingTables {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table.name); err != nil {
			return err
		}
	}
	return nil
}

// ReplaceRankings replaces each of the rankings as a whole. One transaction moves the stored position of the partition
// from → to and rewrites the rows. It sorts rankings in place; each key (region and window) must occur once, with its
// latest value in the range. The position may move back, to read the log again.
//
// It fails and retries like Apply; RankingPosition then says where to resume.
func (s *Store) ReplaceRankings(ctx context.Context, src Source, partition int32, from, to Position, rankings []Ranking,
) (err error) {
	defer func() {
		err = describe(err, "replace rankings by %s/%d [%d, %d) in MySQL at %s",
			src.Topic, partition, from.NextOffset, to.NextOffset, s)
	}()
	if err := s.check(src, partition); err != nil {
		return err
	}
	// The compare-and-swap would succeed every time if it did not change the position.
	if from.NextOffset < 0 || to.NextOffset < 0 || from.NextOffset == to.NextOffset {
		return fmt.Errorf("range from offset %d to offset %d does not move the position",
			from.NextOffset, to.NextOffset)
	}
	slices.SortFunc(rankings, func(a, b Ranking) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Window, b.Window))
	})
	if err := checkRankings(rankings); err != nil {
		return err
	}
	return s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		// This also keeps a process that was paused from replacing newer rankings with older ones.
		err := compareAndSwap(ctx, tx,
			"UPDATE trending_position SET next_offset = ?, leader_epoch = ?, updated_at = UTC_TIMESTAMP(3)"+
				" WHERE topic = ? AND partition_id = ? AND topic_id = ? AND partitions = ? AND next_offset = ?",
			to.NextOffset, to.LeaderEpoch, src.Topic, partition, src.topicID(), src.Partitions, from.NextOffset)
		if err != nil {
			return err
		}
		for _, table := range rankingTables {
			if err := table.replace(ctx, tx, s.packet.statementBytes(), rankings); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkRankings rejects values that the tables cannot hold, before they are written into SQL text. rankings are sorted.
func checkRankings(rankings []Ranking) error {
	for i := range rankings {
		r := &rankings[i]
		if err := r.Validate(); err != nil {
			return err
		}
		if i > 0 && r.Region == rankings[i-1].Region && r.Window == rankings[i-1].Window {
			return fmt.Errorf("ranking %s is a duplicate", schema.RankingKey(r.Region, r.Window))
		}
	}
	return nil
}

// Validate reports the first value that the tables cannot hold.
func (r *Ranking) Validate() error {
	key, year := schema.RankingKey(r.Region, r.Window), r.AsOf.UTC().Year()
	switch {
	case r.Region != schema.GlobalName && !isRegion(r.Region):
		return fmt.Errorf("region %q is neither %s nor of the form AA or AA-AAA", r.Region, schema.GlobalName)
	case !isName(r.Window, 8, "abcdefghijklmnopqrstuvwxyz0123456789"):
		return fmt.Errorf("window %q is not 1 to 8 lowercase letters and digits", r.Window)
	case !r.AsOf.IsZero() && (year < 1000 || year > 9999):
		return fmt.Errorf("ranking %s is as of the year %d, which is outside 1000 to 9999", key, year)
	}
	for _, post := range r.Posts {
		if post.Score < 0 {
			return fmt.Errorf("ranking %s has a score below zero for post %d", key, post.PostID)
		}
	}
	return nil
}

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
