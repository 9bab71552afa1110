package sql

import (
	"context"
	stdsql "database/sql"
	"log/slog"

	"github.com/jmoiron/sqlx"
)

// CheckSchema tells whether the tables are there as this program needs them: *SchemaError if not. A newer schema than
// this program knows is accepted if the tables still serve, so that a release can be rolled back.
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
	// goose's own check would create its table.
	var have stdsql.NullInt64 // NULL: none is applied
	err = db.GetContext(ctx, &have, "SELECT MAX(version_id) FROM "+versionTable+" WHERE is_applied")
	if err != nil && !hasNumber(err, errNoSuchTable) {
		return err
	}
	if have.Int64 < need {
		return &SchemaError{Have: have.Int64, Need: need}
	}
	// The version alone proves little: a table may have been there before, or dropped since.
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
