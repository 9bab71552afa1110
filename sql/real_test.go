package sql

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"kudos/dev/testkit"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
)

// Tests of what only real servers have: row locks, timeouts, grants. Other packages may share the server, so no test
// here changes it globally (and read_only would not bind their privileged user anyway).

const (
	waitLimit = 10 * time.Second
	pollEvery = 150 * time.Millisecond // innodb_trx is a cached copy, refreshed only if nobody read it for 100 ms
)

func (d database) waitForLockWait(t testing.TB) {
	t.Helper()
	raw := d.raw(t)
	require.Eventually(t, func() bool {
		var waiting bool
		err := raw.Get(&waiting, "SELECT COUNT(*) > 0 FROM information_schema.innodb_trx"+
			" JOIN information_schema.processlist ON id = trx_mysql_thread_id"+
			" WHERE db = DATABASE() AND trx_state = 'LOCK WAIT'")
		return err == nil && waiting
	}, waitLimit, pollEvery, "no transaction waits for a row lock")
}

// A real deadlock: Apply holds post 1 and waits for 2, while a larger transaction holds 2 and waits for 1.
func TestDeadlockIsRetried(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		proxy, through := db.through(t)
		s := through.startedStore(t)
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1),
			[]CountDelta{{1, 10, 0}, {2, 10, 0}}, nil))

		other := db.begin(t)
		for post := range 100 { // InnoDB rolls back the transaction with fewer changes
			_, err := other.Exec("INSERT INTO like_count (post_id, `count`, dislike_count) VALUES (?, 0, 0)", 1000+post)
			require.NoError(t, err)
		}
		_, err := other.Exec("UPDATE like_count SET `count` = 99 WHERE post_id = 2")
		require.NoError(t, err)

		proxy.seen()
		apply := inBackground(func() error {
			return s.Apply(t.Context(), likesTopic(), 0, at(1, 1), at(2, 2), []CountDelta{{1, 1, 0}, {2, 1, 0}}, nil)
		})
		db.waitForLockWait(t)
		_, err = other.Exec("UPDATE like_count SET `count` = 99 WHERE post_id = 1")
		require.NoError(t, err, "Apply should have been rolled back")
		require.NoError(t, other.Rollback())
		require.NoError(t, apply())
		require.GreaterOrEqual(t, countQueries(proxy.seen(), "START TRANSACTION"), 2, "there was no deadlock")
		require.Equal(t, map[string]string{"1": "11 0", "2": "11 0"}, db.counts(t))
	})
}

func TestLockWaitTimeoutIsOfTheSession(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		s := db.startedStore(t, func(o *Options) { o.LockWaitTimeout, o.Retries = time.Second, 0 })
		other := db.begin(t)
		_, err := other.Exec("SELECT * FROM applied_offset FOR UPDATE")
		require.NoError(t, err)
		began := time.Now()
		err = likeOnce(t.Context(), s)
		require.True(t, hasNumber(err, errLockWaitTimeout), "%v", err)
		require.True(t, IsTransient(err))
		require.Less(t, time.Since(began), 5*time.Second, "the server's own timeout is 50 s")
		require.NoError(t, other.Rollback())
	})
}

// A process that is paused inside its transaction holds the row lock, so the server has to end its session.
func TestIdleSessionGivesItsLocksUp(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		proxy, through := db.through(t)
		s := through.startedStore(t, func(o *Options) { o.IdleTimeout = time.Second })
		held, release := proxy.hold(t, "COMMIT")
		paused := inBackground(func() error { return likeOnce(t.Context(), s) })
		testkit.Receive(t, held, "the statement must be reached")
		requireAt(t, start, (*Store).Position, db.store(t), likesTopic(), 0)
		release()
		require.Error(t, paused())
		require.Empty(t, db.counts(t))
	})
}

func (d database) asUser(t testing.TB, privileges string) database {
	t.Helper()
	raw, name := d.raw(t), d.name(t)
	host := d.scalar(t, "SELECT SUBSTRING_INDEX(USER(), '@', -1)") // our host as the server sees it
	user := fmt.Sprintf("'%s'@'%s'", name, host)                   // the database name is unique
	raw.MustExec("CREATE USER " + user + " IDENTIFIED BY 'secret'")
	t.Cleanup(func() { raw.MustExec("DROP USER " + user) })
	if privileges != "" {
		raw.MustExec("GRANT " + privileges + " ON " + name + ".* TO " + user)
	}
	return d.with(t, func(c *mysql.Config) { c.User, c.Passwd = name, "secret" })
}

// The privileges that Migrate documents, and those that a store needs.
func TestGrantsOfMigrate(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		s := db.asUser(t, "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER").startedStore(t)
		require.NoError(t, s.CheckSchema(t.Context()))
		require.NoError(t, likeOnce(t.Context(), s))
	})
}

func TestReadOnlyServer(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		db.migrated(t)
		s := db.asUser(t, "SELECT, INSERT, UPDATE, DELETE").store(t)
		_, err := s.Position(t.Context(), likesTopic(), 0)
		require.NoError(t, err)
		raw := db.raw(t)
		raw.MustExec("SET GLOBAL read_only = 1")
		readWrite := sync.OnceFunc(func() { raw.MustExec("SET GLOBAL read_only = 0") })
		defer readWrite()
		err = likeOnce(t.Context(), s)
		require.True(t, IsTransient(err), "%v", err)
		require.ErrorContains(t, err, "read-only")
		readWrite()
		require.NoError(t, likeOnce(t.Context(), s))
	})
}

func TestMessagesForPeople(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		user := db.asUser(t, "") // may log in, but nothing else
		const noGrants = "check user, password and grants"
		for name, c := range map[string]struct {
			database database
			change   func(*mysql.Config)
			want     string
		}{
			"wrong password": {user, func(c *mysql.Config) { c.Passwd = "wrong" }, noGrants},
			"no grants":      {user, func(*mysql.Config) {}, noGrants},
			"no database": {db, func(c *mysql.Config) { c.DBName = "kudos_no_such_database" },
				"create the database, then run `kudos migrate`"},
		} {
			var password string
			changed := c.database.with(t, func(config *mysql.Config) {
				c.change(config)
				password = config.Passwd
			})
			err := changed.store(t).CheckSchema(t.Context())
			require.ErrorContains(t, err, c.want, name)
			require.False(t, IsTransient(err), name)
			if password != "" {
				require.NotContains(t, err.Error(), password)
			}
		}
		t.Run("no tables", func(t *testing.T) {
			_, err := db.store(t).Position(t.Context(), likesTopic(), 0)
			require.ErrorContains(t, err, "run `kudos migrate`")
			require.False(t, IsTransient(err))
		})
	})
}

// posts are every second post from first up to n.
func posts(first, n uint64) (counts []CountDelta) {
	for id := first; id < n; id += 2 {
		counts = append(counts, CountDelta{PostID: id, Likes: 1})
	}
	return counts
}

// Sessions have the values in Options, whatever the server's defaults.
func TestSessionVariables(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		s := db.store(t, func(o *Options) { o.LockWaitTimeout, o.IdleTimeout = 3*time.Second, 40*time.Second })
		var got struct {
			LockWait int    `db:"lock_wait"`
			Idle     int    `db:"idle"`
			Zone     string `db:"zone"`
			Mode     string `db:"mode"`
		}
		require.NoError(t, sqlx.Get(s.db, &got, "SELECT @@innodb_lock_wait_timeout lock_wait, @@wait_timeout idle,"+
			" @@time_zone zone, @@sql_mode mode"))
		require.Equal(t, 3, got.LockWait)
		require.Equal(t, 40, got.Idle)
		require.Equal(t, "+00:00", got.Zone)
		require.Equal(t, "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION", got.Mode)
	})
}
