package oracle

import (
	"context"
	"database/sql"
	"fmt"
)

type snapshot struct {
	positions map[int32]Position
	posts     map[uint64]Count
	hours     map[Hour]Count
}

// readSnapshot reads each database in one consistent snapshot, and adds up counts that are in several.
func readSnapshot(ctx context.Context, dbs []*sql.DB) (*snapshot, error) {
	s := &snapshot{positions: map[int32]Position{}, posts: map[uint64]Count{}, hours: map[Hour]Count{}}
	for _, db := range dbs {
		if err := s.read(ctx, db); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *snapshot) read(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("reading MySQL: %w", err)
	}
	defer conn.Close()
	for _, statement := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
		"START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("reading MySQL: %s: %w", statement, err)
		}
	}
	positions, err := Positions(ctx, conn)
	if err != nil {
		return err
	}
	for p, at := range positions {
		if _, twice := s.positions[p]; twice {
			return fmt.Errorf("two databases have a position of like-updates/%d", p)
		}
		s.positions[p] = at
	}
	err = each(ctx, conn, "SELECT post_id, count, dislike_count FROM like_count", func(rows *sql.Rows) error {
		var post uint64
		var c Count
		err := rows.Scan(&post, &c.Likes, &c.Dislikes)
		Add(s.posts, post, c)
		return err
	})
	if err != nil {
		return err
	}
	err = each(ctx, conn, "SELECT TIMESTAMPDIFF(HOUR, '1970-01-01', hour), region, partition_id, likes, dislikes "+
		"FROM like_hourly", func(rows *sql.Rows) error {
		var h Hour
		var c Count
		err := rows.Scan(&h.Hour, &h.Region, &h.Partition, &c.Likes, &c.Dislikes)
		Add(s.hours, h, c)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		return fmt.Errorf("reading MySQL: %w", err)
	}
	return nil
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Positions returns the positions of the partitions in MySQL.
func Positions(ctx context.Context, db queryer) (map[int32]Position, error) {
	positions := map[int32]Position{}
	err := each(ctx, db, "SELECT partition_id, next_offset, next_seq FROM applied_offset", func(rows *sql.Rows) error {
		var p int32
		var at Position
		err := rows.Scan(&p, &at.Offset, &at.Seq)
		positions[p] = at
		return err
	})
	return positions, err
}

// Seen is what MySQL has of a partition: its position, and the sums of its rows of like_count and like_hourly.
type Seen struct {
	Partition int32
	Position
	Posts, Hours Count
	source       int64 // the position in likes, by like-updates
}

// Look returns what MySQL has of each partition, as of one moment: a statement reads one snapshot. owner returns the
// partition of a post.
func Look(ctx context.Context, db queryer, owner func(post uint64) int32) (map[int32]Seen, error) {
	seen := map[int32]Seen{}
	const query = "SELECT partition_id, 0, next_offset, next_seq, 0, 0, 0, 0 FROM applied_offset UNION ALL " +
		"SELECT 0, post_id, 0, 0, count, dislike_count, 0, 0 FROM like_count UNION ALL " +
		"SELECT partition_id, 0, 0, 0, 0, 0, SUM(likes), SUM(dislikes) FROM like_hourly GROUP BY partition_id"
	return seen, each(ctx, db, query, func(rows *sql.Rows) error {
		var row Seen
		var post uint64
		err := rows.Scan(&row.Partition, &post, &row.Offset, &row.Seq, &row.Posts.Likes, &row.Posts.Dislikes,
			&row.Hours.Likes, &row.Hours.Dislikes)
		if post != 0 {
			row.Partition = owner(post)
		}
		s := seen[row.Partition]
		row.Offset, row.Seq = row.Offset+s.Offset, row.Seq+s.Seq
		row.Posts, row.Hours = row.Posts.plus(s.Posts), row.Hours.plus(s.Hours)
		seen[row.Partition] = row
		return err
	})
}

func each(ctx context.Context, db queryer, query string, row func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("reading MySQL: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return fmt.Errorf("reading MySQL: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading MySQL: %w", err)
	}
	return nil
}
