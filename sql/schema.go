package sql

import (
	"context"
	stdsql "database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// versionTable is goose's record of what has been applied. Not goose's default name: another application in the same
// database may use goose as well.
const versionTable = "kudos_schema_version"

// CheckSchema tells whether the tables are there as this program needs them: *SchemaError if not. A newer schema than
// this program knows is accepted if the tables still serve, so that a release can be rolled back.
func (s *Store) CheckSchema(ctx context.Context) error {
	if err := checkSchema(ctx, s.db); err != nil {
		return describe(err, "check the tables in MySQL at %s", s.server)
	}
	return nil
}

func checkSchema(ctx context.Context, db *sqlx.DB) error {
	need, err := newestMigration()
	if err != nil {
		return err
	}
	have, err := schemaVersion(ctx, db)
	if err != nil {
		return err
	}
	if have < need {
		return &SchemaError{Have: have, Need: need}
	}
	// The version alone proves little: a table may have been there before, or dropped since.
	for _, probe := range []string{
		"SELECT post_id, `count`, dislike_count, updated_at FROM like_count LIMIT 0",
		"SELECT topic, partition_id, topic_id, partitions, next_offset, next_seq, leader_epoch, updated_at FROM applied_offset LIMIT 0",
		"SELECT hour, region, partition_id, likes, dislikes FROM like_hourly LIMIT 0",
		"SELECT region, `window`, `rank`, post_id, score, likes, as_of FROM trending LIMIT 0",
		"SELECT region, period, `rank`, post_id, likes, as_of FROM leaderboard LIMIT 0",
		"SELECT topic, partition_id, topic_id, partitions, next_offset, leader_epoch, updated_at FROM trending_position LIMIT 0",
		"SELECT id, shard, shards, recorded_at FROM kudos_shard LIMIT 0",
	} {
		if _, err := db.ExecContext(ctx, probe); IsTransient(err) || ctx.Err() != nil {
			return err
		} else if err != nil {
			return &SchemaError{Have: have, Need: need, Err: err}
		}
	}
	return nil
}

// schemaVersion is the newest migration applied, 0 for none. It only reads: goose's own check would create its table.
func schemaVersion(ctx context.Context, db *sqlx.DB) (int64, error) {
	var version stdsql.NullInt64
	err := db.GetContext(ctx, &version, "SELECT MAX(version_id) FROM "+versionTable+" WHERE is_applied")
	if hasNumber(err, errNoSuchTable) {
		return 0, nil
	}
	return version.Int64, err
}

func newestMigration() (newest int64, _ error) {
	files, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		return 0, fmt.Errorf("list embedded migrations: %w", err)
	}
	for _, file := range files {
		version, err := goose.NumericComponent(file.Name())
		if err != nil {
			return 0, fmt.Errorf("embedded migration %s: %w", file.Name(), err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}
