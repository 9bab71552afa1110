package sql

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

const errDenied = 1142 // the server's error for missing privileges: not a lock conflict

// newShadow is a Shadow, behind a proxy, on tables that have counted one like. It hardly waits between tries.
func newShadow(t *testing.T, db database) (*wireProxy, *Shadow) {
	t.Helper()
	require.NoError(t, likeOnce(t.Context(), db.startedStore(t)))
	proxy, db := db.through(t)
	h, err := NewShadow(t.Context(), db.options, discardLog())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	h.renamePause, h.writeBackoff = time.Millisecond, time.Millisecond
	proxy.seen()
	return proxy, h
}

var (
	fiveLikes    = []CountDelta{{PostID: 1, Likes: 5}}
	fiveInAnHour = []HourDelta{{Region: "ZZ", Likes: 5}}
)

func fill(t *testing.T, h *Shadow) {
	t.Helper()
	require.NoError(t, h.AddCounts(t.Context(), fiveLikes))
	require.NoError(t, h.AddHours(t.Context(), 0, fiveInAnHour))
	require.NoError(t, h.SetPositions(t.Context(), likesTopic(), []Position{at(5, 5), at(6, 6), at(7, 7), at(8, 8)}))
}

func requireFilled(t *testing.T, db database) {
	t.Helper()
	require.Equal(t, map[string]string{"1": "5 0"}, db.counts(t))
	require.Equal(t, map[string]string{"1970-01-01 00:00:00 ZZ 0": "5 0"}, db.hours(t))
	require.Equal(t, "5,6,7,8", db.offsets(t))
}

// Wherever a lock conflict occurs, the rows are sent again and are stored once.
func TestShadowSendsRowsAgainAfterALockConflict(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		proxy, h := newShadow(t, db)
		for _, statement := range []string{
			"INSERT INTO like_count_rebuild", "INSERT INTO like_hourly_rebuild",
			"DELETE FROM applied_offset_rebuild", "INSERT INTO applied_offset_rebuild", "COMMIT",
		} {
			for _, number := range []uint16{errDeadlock, errLockWaitTimeout} {
				proxy.once(statement, mysqlproxy.Refuse(number))
				fill(t, h)
				require.Equal(t, 4, countQueries(proxy.seen(), "START TRANSACTION"),
					"%s fails with %d: want 3 transactions and 1 retry", statement, number)
			}
		}
		require.NoError(t, h.Swap(t.Context(), true))
		requireFilled(t, db)
	})
}

// Errors other than lock conflicts are not retried, and conflicts only so often, for rows as well as the RENAME.
func TestShadowGivesUp(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		proxy, h := newShadow(t, db)
		write := func() error { return h.AddCounts(t.Context(), fiveLikes) }
		swap := func() error { return h.Swap(t.Context(), true) }
		for _, c := range []struct {
			statement string
			number    uint16
			do        func() error
			tries     int
			says      string
		}{
			{"INSERT INTO like_count_rebuild", errDenied, write, 1, "fill shadow tables"},
			{"INSERT INTO like_count_rebuild", errDeadlock, write, 1 + writeRetries, "fill shadow tables"},
			{"RENAME TABLE", errDenied, swap, 1, "put the new tables in place"},
			{"RENAME TABLE", errDeadlock, swap, 1 + renameRetries, "put the new tables in place"},
			{"RENAME TABLE", errLockWaitTimeout, swap, 1 + renameRetries,
				"find it in information_schema.innodb_trx, end it, and run this again"},
		} {
			proxy.always(map[string]mysqlproxy.Decision{c.statement: mysqlproxy.Refuse(c.number)})
			err := c.do()
			require.ErrorContains(t, err, c.says)
			require.True(t, hasNumber(err, c.number), "%v", err)
			require.Equal(t, c.tries, countQueries(proxy.seen(), c.statement), "%s: %d", c.statement, c.number)
			require.Equal(t, oneLiked, db.counts(t), "the live tables must not change")
		}
		proxy.On(nil)
		fill(t, h)
		require.NoError(t, swap())
		requireFilled(t, db)
	})
}

func TestShadowSwapsOnceTheTablesAreFree(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		proxy, h := newShadow(t, db)
		fill(t, h)
		proxy.seen()
		proxy.inTurn("RENAME TABLE", mysqlproxy.Refuse(errLockWaitTimeout), mysqlproxy.Refuse(errDeadlock))
		require.NoError(t, h.Swap(t.Context(), true))
		require.Equal(t, 3, countQueries(proxy.seen(), "RENAME TABLE"))
		requireFilled(t, db)
	})
}

// If the answer to RENAME is lost, Shadow checks the tables; if that fails too, Swap must not report success.
func TestShadowLooksWhetherItWasSwapped(t *testing.T) {
	const look = "SELECT post_id FROM like_count_rebuild"
	for _, c := range []struct {
		name   string
		rename mysqlproxy.Decision
		look   mysqlproxy.Decision
		fails  bool
		counts string
	}{
		{"renamed", mysqlproxy.CutAfter(nil), mysqlproxy.Decision{}, false, "5 0"},
		{"not renamed", mysqlproxy.CutBefore(), mysqlproxy.Decision{}, true, "1 0"},
		{"renamed, and the check is rejected", mysqlproxy.CutAfter(nil), mysqlproxy.Refuse(errDenied), true, "5 0"},
		{"not renamed, and the check is rejected", mysqlproxy.CutBefore(), mysqlproxy.Refuse(errDenied), true, "1 0"},
		{"not renamed, and the check is interrupted", mysqlproxy.CutBefore(), mysqlproxy.CutBefore(), true, "1 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onRealServers(t, func(t *testing.T, db database) {
				proxy, h := newShadow(t, db)
				fill(t, h)
				proxy.seen()
				proxy.always(map[string]mysqlproxy.Decision{"RENAME TABLE": c.rename, look: c.look})
				err := h.Swap(t.Context(), false)
				seen := proxy.seen()
				require.Equal(t, 1, countQueries(seen, "RENAME TABLE"), "an unknown outcome must not be retried")
				require.NotZero(t, countQueries(seen, look), fmt.Sprint(seen))
				require.Equal(t, c.fails, err != nil, "%v", err)
				require.Equal(t, map[string]string{"1": c.counts}, db.counts(t))
				if c.fails {
					require.ErrorContains(t, err, "put the new tables in place")
				}
			})
		})
	}
}

func TestARebuildMayFollowAtOnce(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		db.migrated(t)
		for range 20 {
			h, err := NewShadow(t.Context(), db.options, discardLog())
			require.NoError(t, err)
			require.NoError(t, h.Close())
			require.Equal(t, "1", db.scalar(t, "SELECT IS_FREE_LOCK('"+shadowLock+"')"))
		}
	})
}
