package sql

import (
	"context"
	stdsql "database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	// versionTable is goose's record. Its name is not the default: an application in the same database may use goose.
	versionTable = "kudos_schema_version"

	migrationLock = "kudos.migrate" // per server, not per database: migrations of two databases take turns

	// migrationLockWait bounds the wait for another `kudos migrate`, which can take long on a large table.
	migrationLockWait = 15 * time.Minute
)

// Migrate creates or upgrades the tables of every database and logs its progress. Then each database records which
// shard it is, unless it already has; a different record fails with *ShardError. Migrate is idempotent, and safe to run
// in several processes: one works, the others wait and find nothing to do.
//
// It needs the CREATE and ALTER privileges. Each migration is a single statement, because MySQL cannot roll back DDL.
func Migrate(ctx context.Context, o Options, log *slog.Logger) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("mysql options: %w", err)
	}
	var errs []error
	for _, one := range o.Each() {
		errs = append(errs, migrateOne(ctx, one, log))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	shards, err := Open(o, log)
	if err != nil {
		return err
	}
	return errors.Join(shards.record(ctx, log), shards.Close())
}

func migrateOne(ctx context.Context, o Options, log *slog.Logger) (err error) {
	s, err := newUntimed(o, log)
	if err != nil {
		return err
	}
	defer s.Close()
	defer func() { err = describe(err, "migrate MySQL at %s", s) }()
	log = log.With("server", s.String())
	conn, err := s.db.Connx(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := lockMigrations(ctx, conn, log); err != nil {
		return err
	}
	if err := migrate(ctx, s.db, log); err != nil {
		return err
	}
	return checkSchema(ctx, s.db)
}

// migrations returns a provider of the embedded migrations. It does no I/O.
func migrations(db *sqlx.DB, log *slog.Logger) (*goose.Provider, error) {
	files, _ := fs.Sub(migrationFiles, "migrations") // cannot fail: the path is valid
	provider, err := goose.NewProvider(goose.DialectMySQL, db.DB, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithSlog(log))
	if err != nil {
		return nil, fmt.Errorf("read embedded migrations: %w", err)
	}
	return provider, nil
}

func migrate(ctx context.Context, db *sqlx.DB, log *slog.Logger) error {
	provider, err := migrations(db, log)
	if err != nil {
		return err
	}
	have, need, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	if have > need {
		log.Warn("the schema is newer than this program; left unchanged", "version", have, "known", need)
		return nil
	}
	for _, migration := range provider.ListSources() {
		if migration.Version <= have {
			continue
		}
		name := path.Base(migration.Path)
		log.Info("migrating", "migration", name, "newest", need)
		result, err := provider.ApplyVersion(ctx, migration.Version, true)
		if err != nil {
			return fmt.Errorf("migration %s: %w", name, err)
		}
		log.Info("migrated", "migration", name, "duration", result.Duration.Round(time.Millisecond))
	}
	log.Info("schema is up to date", "version", need)
	return nil
}

// lockMigrations keeps out other `kudos migrate` processes: goose's steps are not safe to run concurrently, and MySQL's
// DDL is not transactional. The lock ends with its connection, so a dead process does not keep it.
func lockMigrations(ctx context.Context, conn *sqlx.Conn, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, migrationLockWait)
	defer cancel()
	for told := false; ; told = true {
		var got stdsql.NullBool
		if err := conn.GetContext(ctx, &got, "SELECT GET_LOCK(?, 1)", migrationLock); err != nil {
			return fmt.Errorf("wait for another `kudos migrate`: %w", err)
		}
		if got.Bool {
			return nil
		}
		if !told {
			log.Info("another `kudos migrate` is running on this server; waiting for it")
		}
	}
}

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
