package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"
)

// Snapshot reads all tables as of one point in time.
type Snapshot struct{ conn *sqlx.Conn }

// StoredPosition is a row of applied_offset, whichever log it belongs to.
type StoredPosition struct {
	Topic     string `db:"topic"`
	Partition int32  `db:"partition_id"`
	positionRow
}

// Of returns *SourceChangedError unless the row belongs to src.
func (p StoredPosition) Of(src Source) error {
	src.Topic = p.Topic
	return src.same(p.TopicID, p.Partitions)
}

// PostCount is a row of like_count.
type PostCount struct {
	PostID   uint64 `db:"post_id"`
	Likes    int64  `db:"count"`
	Dislikes int64  `db:"dislike_count"`
}

// HourCount is a row of like_hourly.
type HourCount struct {
	Hour            time.Time // UTC
	Region          string
	Partition       int32 `db:"partition_id"`
	Likes, Dislikes int64
}

// Snapshot calls read with a consistent view of the tables, in one read-only transaction that ends when read returns.
// It takes no row locks, but the server keeps old row versions until then, so read should only copy.
func (s *Store) Snapshot(ctx context.Context, read func(*Snapshot) error) (err error) {
	defer func() { err = describe(err, "read MySQL at %s", s) }()
	conn, err := s.db.Connx(ctx)
	if err != nil {
		return err
	}
	ended := false
	defer func() { release(conn, ended) }()
	// BeginTx cannot request the snapshot at the start; InnoDB would take it at the first read.
	for _, statement := range []string{
		"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
		"START TRANSACTION WITH CONSISTENT SNAPSHOT",
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := checkShard(ctx, conn, s.Shard()); err != nil {
		return err
	}
	if err := read(&Snapshot{conn: conn}); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "ROLLBACK")
	ended = err == nil
	return err
}

// Positions returns every row of applied_offset.
func (v *Snapshot) Positions(ctx context.Context) (rows []StoredPosition, err error) {
	err = v.conn.SelectContext(ctx, &rows, "SELECT topic, partition_id, topic_id, partitions, next_offset, next_seq,"+
		" leader_epoch FROM applied_offset ORDER BY topic, partition_id")
	return rows, err
}

// Rows estimates the number of rows of like_count, for a progress bar. It is 0 if the server does not tell.
func (v *Snapshot) Rows(ctx context.Context) int64 {
	var rows stdsql.NullInt64
	_ = v.conn.GetContext(ctx, &rows, "SELECT table_rows FROM information_schema.tables"+
		" WHERE table_schema = DATABASE() AND table_name = 'like_count'")
	return rows.Int64
}

// EachCount calls each for every row of like_count, by post id.
func (v *Snapshot) EachCount(ctx context.Context, each func(PostCount) error) error {
	return eachRow(ctx, v.conn, "SELECT post_id, `count`, dislike_count FROM like_count ORDER BY post_id", each)
}

// EachHour calls each for every row of like_hourly, by hour, region and partition.
func (v *Snapshot) EachHour(ctx context.Context, each func(HourCount) error) error {
	return eachRow(ctx, v.conn, "SELECT hour, region, partition_id, likes, dislikes FROM like_hourly"+
		" ORDER BY hour, region, partition_id", each)
}

// eachRow streams a result; the driver buffers one packet.
func eachRow[R any](ctx context.Context, conn *sqlx.Conn, query string, each func(R) error) (err error) {
	rows, err := conn.QueryxContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var row R
		if err := rows.StructScan(&row); err != nil {
			return err
		}
		if err := each(row); err != nil {
			return err
		}
	}
	return rows.Err()
}
