package sql

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/mysqlproxy"
)

func TestMigrateMakesTheTablesOnce(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.store(t)
		err := s.CheckSchema(t.Context())
		var schema *SchemaError
		require.ErrorAs(t, err, &schema)
		require.Equal(t, SchemaError{Have: 0, Need: 7}, *schema)
		require.ErrorContains(t, err, "run `kudos migrate`")

		var progress bytes.Buffer
		require.NoError(t, Migrate(t.Context(), db.options, textLog(&progress)))
		require.NoError(t, s.CheckSchema(t.Context()))
		for _, line := range []string{"msg=migrating", "migration=00001_like_count.sql",
			"migration=00007_kudos_shard.sql", `msg="schema is up to date"`, "version=7"} {
			require.Contains(t, progress.String(), line)
		}
		require.Equal(t, 7, strings.Count(progress.String(), "msg=migrated"))

		progress.Reset()
		require.NoError(t, Migrate(t.Context(), db.options, textLog(&progress)))
		require.NotContains(t, progress.String(), "migrating", "the second run has nothing to do")
		require.Contains(t, progress.String(), "schema is up to date")
	})
}

// A migration whose statement succeeded but whose record is missing must be resumable.
func TestMigrateResumesWhereItWasInterrupted(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		proxy, through := db.through(t)
		proxy.once("INSERT INTO "+versionTable+" (version_id, is_applied) VALUES (2", mysqlproxy.CutBefore())
		require.Error(t, Migrate(t.Context(), through.options, discardLog()))
		require.Equal(t, "1", db.scalar(t, "SELECT MAX(version_id) FROM "+versionTable))
		db.migrated(t)
		require.NoError(t, db.store(t).CheckSchema(t.Context()))
	})
}

func TestMigrateSeveralAtOnce(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		var processes sync.WaitGroup
		for range 6 {
			processes.Go(func() {
				if err := Migrate(t.Context(), db.options, discardLog()); err != nil {
					t.Errorf("concurrent migration: %v", err)
				}
			})
		}
		processes.Wait()
		require.Equal(t, "8", db.scalar(t, "SELECT COUNT(*) FROM "+versionTable),
			"goose's own row and seven migrations")
	})
}

func TestMigrateWaitsForAnother(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		conn, err := db.raw(t).Connx(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		var locked bool
		require.NoError(t, conn.GetContext(t.Context(), &locked, "SELECT GET_LOCK(?, 10)", migrationLock))
		require.True(t, locked)

		waits := make(chan struct{})
		log := textLog(writerFunc(func(line []byte) (int, error) {
			if bytes.Contains(line, []byte("waiting for it")) {
				close(waits)
			}
			return len(line), nil
		}))
		impatient := db.options
		// GET_LOCK answers only after 1 s.
		impatient.ReadTimeout, impatient.LockWaitTimeout = 100*time.Millisecond, 0
		second := inBackground(func() error { return Migrate(t.Context(), impatient, log) })
		testkit.Receive(t, waits, "the statement must be reached")
		require.Equal(t, "0", db.scalar(t,
			"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"))
		_, err = conn.ExecContext(t.Context(), "DO RELEASE_LOCK(?)", migrationLock)
		require.NoError(t, err)
		require.NoError(t, second())
	})
}

// The connection that holds the lock is idle while the others work.
func TestMigrationSessionsMayIdle(t *testing.T) {
	for name, o := range map[string]Options{"store": noServer(t).options, "migrate": noServer(t).options.untimed()} {
		c, err := driverConfig(o, discardLog())
		require.NoError(t, err)
		_, limited := c.Params["wait_timeout"]
		require.Equal(t, name == "store", limited, name)
		require.Equal(t, name == "store", c.ReadTimeout > 0, name)
	}
}

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestSchemaNewerThanThisProgram(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		db.migrated(t).raw(t).MustExec("INSERT INTO " + versionTable + " (version_id, is_applied) VALUES (99, TRUE)")
		require.NoError(t, db.store(t).CheckSchema(t.Context()), "the tables are still usable")
		var progress bytes.Buffer
		require.NoError(t, Migrate(t.Context(), db.options, textLog(&progress)))
		require.Contains(t, progress.String(), "newer than this program")
		db.raw(t).MustExec("ALTER TABLE like_hourly DROP COLUMN dislikes")
		require.ErrorContains(t, db.store(t).CheckSchema(t.Context()), "schema version is 99, but this program knows "+
			"only versions up to 7, and a table differs")
	})
}

func TestCheckSchemaReadsTheTables(t *testing.T) {
	damages := map[string]string{
		"table dropped":                       "DROP TABLE like_hourly",
		"column dropped":                      "ALTER TABLE applied_offset DROP COLUMN next_seq",
		"trending dropped":                    "DROP TABLE trending",
		"leaderboard dropped":                 "DROP TABLE leaderboard",
		"kudos_shard dropped":                 "DROP TABLE kudos_shard",
		"column of trending_position dropped": "ALTER TABLE trending_position DROP COLUMN leader_epoch",
	}
	inEachCase(t, damages, func(t *testing.T, db database, damage string) {
		db.migrated(t).raw(t).MustExec(damage)
		err := db.store(t).CheckSchema(t.Context())
		require.ErrorAs(t, err, new(*SchemaError))
		require.ErrorContains(t, err, "kudos migrate")
		require.False(t, IsTransient(err))
	})
}

func TestMigrateRejectsATableOfAnotherShape(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		db.raw(t).MustExec("CREATE TABLE like_count (post_id BIGINT PRIMARY KEY, likes BIGINT)")
		require.ErrorContains(t, Migrate(t.Context(), db.options, discardLog()), "a separate database")
	})
}
