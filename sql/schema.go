package sql

import (
	"context"
	stdsql "database/sql"
	"log/slog"

	"github.com/jmoiron/sqlx"
)

// CheckSchema returns *SchemaError unless the tables are as this program needs them. It accepts a schema newer than
// this program if the tables still fit, so that a release can be rolled back.
func (s *Store) CheckSchema(ctx context.Context) error {
	return describe(checkSchema(ctx, s.db), "check the tables in MySQL at %s", s)
}

func checkSchema(ctx context.Context, db *sqlx.DB) error {
	provider, err := migrations(db, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	sources := provider.ListSources()
	need := sources[len(sources)-1].Version
	// Not by goose, whose check would create the table.
	var have stdsql.NullInt64 // NULL if no migration is applied
	err = db.GetContext(ctx, &have, "SELECT MAX(version_id) FROM "+versionTable+" WHERE is_applied")
	if err != nil && !hasNumber(err, errNoSuchTable) {
		return err
	}
	if have.Int64 < need {
		return &SchemaError{Have: have.Int64, Need: need}
	}
	// The version is not enough: a table may have existed before the migration, or been dropped since.
	for _, columns := range []string{
		"post_id, `count`, dislike_count, updated_at FROM like_count",
		"topic, partition_id, topic_id, partitions, next_offset, next_seq, leader_epoch, updated_at" +
			" FROM applied_offset",
		"hour, region, partition_id, likes, dislikes FROM like_hourly",
		"region, `window`, `rank`, post_id, score, likes, as_of FROM trending",
		"region, period, `rank`, post_id, likes, as_of FROM leaderboard",
		"topic, partition_id, topic_id, partitions, next_offset, leader_epoch, updated_at FROM trending_position",
		"id, shard, shards, recorded_at FROM kudos_shard",
	} {
		_, err := db.ExecContext(ctx, "SELECT "+columns+" LIMIT 0")
		switch {
		case IsTransient(err) || ctx.Err() != nil:
			return err
		case err != nil:
			return &SchemaError{Have: have.Int64, Need: need, Err: err}
		}
	}
	return nil
}
