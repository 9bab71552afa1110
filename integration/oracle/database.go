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

// inSnapshot calls read with a connection whose queries see the database as of one moment.
func inSnapshot(ctx context.Context, db *sql.DB, read func(*sql.Conn) error) error {
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
	if err := read(conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		return fmt.Errorf("reading MySQL: %w", err)
	}
	return nil
}

func eachPost(ctx context.Context, conn *sql.Conn, add func(post uint64, c Count)) error {
	return each(ctx, conn, "SELECT post_id, count, dislike_count FROM like_count", func(rows *sql.Rows) error {
		var post uint64
		var c Count
		err := rows.Scan(&post, &c.Likes, &c.Dislikes)
		add(post, c)
		return err
	})
}

// Seen is what MySQL has of a partition: its position, and the sums of its rows of like_count and like_hourly.
type Seen struct {
	Position
	Posts, Hours Count
}

// Look returns what MySQL has of each partition, as of one moment. owner returns the partition of a post.
func Look(ctx context.Context, db *sql.DB, owner func(post uint64) int32) (map[int32]Seen, error) {
	seen := map[int32]Seen{}
	add := func(p int32, posts, hours Count) {
		s := seen[p]
		s.Posts, s.Hours = s.Posts.plus(posts), s.Hours.plus(hours)
		seen[p] = s
	}
	return seen, inSnapshot(ctx, db, func(conn *sql.Conn) error {
		positions, err := Positions(ctx, conn)
		if err != nil {
			return err
		}
		for p, at := range positions {
			seen[p] = Seen{Position: at}
		}
		if err := eachPost(ctx, conn, func(post uint64, c Count) { add(owner(post), c, Count{}) }); err != nil {
			return err
		}
		return each(ctx, conn, "SELECT partition_id, SUM(likes), SUM(dislikes) FROM like_hourly GROUP BY partition_id",
			func(rows *sql.Rows) error {
				var p int32
				var c Count
				err := rows.Scan(&p, &c.Likes, &c.Dislikes)
				add(p, Count{}, c)
				return err
			})
	})
}

func (s *snapshot) read(ctx context.Context, db *sql.DB) error {
	return inSnapshot(ctx, db, func(conn *sql.Conn) error { return s.readAll(ctx, conn) })
}

func (s *snapshot) readAll(ctx context.Context, conn *sql.Conn) error {
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
	if err := eachPost(ctx, conn, func(post uint64, c Count) { Add(s.posts, post, c) }); err != nil {
		return err
	}
	return each(ctx, conn, "SELECT TIMESTAMPDIFF(HOUR, '1970-01-01', hour), region, partition_id, likes, dislikes "+
		"FROM like_hourly", func(rows *sql.Rows) error {
		var h Hour
		var c Count
		err := rows.Scan(&h.Hour, &h.Region, &h.Partition, &c.Likes, &c.Dislikes)
		Add(s.hours, h, c)
		return err
	})
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
