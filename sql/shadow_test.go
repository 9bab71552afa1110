package sql

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

// errDenied is what a server answers whose user may not do that: no lock conflict.
const errDenied = 1142

// newShadow is a Shadow on tables that have counted a like, seen through a proxy. It waits
// hardly between its tries.
func newShadow(t *testing.T, db database) (*wireProxy, *Shadow) {
	t.Helper()
	require.NoError(t, db.startedStore(t).Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil))
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

// fill fills the shadow tables with five likes.
func fill(t *testing.T, h *Shadow) {
	t.Helper()
	require.NoError(t, h.AddCounts(t.Context(), fiveLikes))
	require.NoError(t, h.AddHours(t.Context(), 0, fiveInAnHour))
	require.NoError(t, h.SetPositions(t.Context(), likesTopic(), []Position{at(5, 5), at(6, 6), at(7, 7), at(8, 8)}))
}

func requireFilled(t *testing.T, db database) {
	t.Helper()
	require.Equal(t, map[uint64]postCounts{1: {5, 0}}, db.counts(t))
	require.Equal(t, map[hourKey]postCounts{{"1970-01-01 00:00:00", "ZZ", 0}: {5, 0}}, db.hours(t))
	require.Equal(t, "5,6,7,8", db.scalar(t, "SELECT GROUP_CONCAT(next_offset ORDER BY partition_id) FROM applied_offset"))
}

// Wherever a lock conflict hits, the rows are sent again, and are there once.
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
				require.Equal(t, 4, countQueries(proxy.seen(), "START TRANSACTION"), "%s refused with %d: three, and one of them again", statement, number)
			}
		}
		require.NoError(t, h.Swap(t.Context(), true))
		requireFilled(t, db)
	})
}

// always lets v happen to every statement that begins with prefix.
func (p *wireProxy) always(prefix string, v mysqlproxy.Verdict) {
	p.On(func(query string) mysqlproxy.Verdict {
		if countQueries([]string{query}, prefix) > 0 {
			return v
		}
		return mysqlproxy.Verdict{}
	})
}

// What is no lock conflict is not tried again, and a conflict not for ever: neither rows nor the RENAME.
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
			{"RENAME TABLE", errLockWaitTimeout, swap, 1 + renameRetries, "find it in information_schema.innodb_trx, end it, and run this again"},
		} {
			proxy.always(c.statement, mysqlproxy.Refuse(c.number))
			err := c.do()
			require.ErrorContains(t, err, c.says)
			require.True(t, hasNumber(err, c.number), "%v", err)
			require.Equal(t, c.tries, countQueries(proxy.seen(), c.statement), "%s refused with %d", c.statement, c.number)
			require.EqualValues(t, 1, db.count1(t), "the tables in use stay")
		}
		proxy.On(nil)
		fill(t, h)
		require.NoError(t, swap())
		requireFilled(t, db)
	})
}

// While the tables are busy, the RENAME is tried again.
func TestShadowSwapsOnceTheTablesAreFree(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		proxy, h := newShadow(t, db)
		fill(t, h)
		proxy.seen()
		refusals := []uint16{errLockWaitTimeout, errDeadlock}
		proxy.On(func(query string) mysqlproxy.Verdict {
			if countQueries([]string{query}, "RENAME TABLE") == 0 || len(refusals) == 0 {
				return mysqlproxy.Verdict{}
			}
			number := refusals[0]
			refusals = refusals[1:]
			return mysqlproxy.Refuse(number)
		})
		require.NoError(t, h.Swap(t.Context(), true))
		require.Equal(t, 3, countQueries(proxy.seen(), "RENAME TABLE"))
		requireFilled(t, db)
	})
}

// When the answer to the RENAME is lost, a look at the tables tells whether it was done. Where that fails too, nobody
// knows, and nothing is claimed to be in place.
func TestShadowLooksWhetherItWasSwapped(t *testing.T) {
	const look = "SELECT post_id FROM like_count_rebuild"
	for _, c := range []struct {
		name   string
		rename mysqlproxy.Verdict
		look   *mysqlproxy.Verdict
		fails  bool
		likes  int64
	}{
		{"done", mysqlproxy.CutAfter(nil), nil, false, 5},
		{"not done", mysqlproxy.CutBefore(), nil, true, 1},
		{"done, and the look is refused", mysqlproxy.CutAfter(nil), new(mysqlproxy.Refuse(errDenied)), true, 5},
		{"not done, and the look is refused", mysqlproxy.CutBefore(), new(mysqlproxy.Refuse(errDenied)), true, 1},
		{"not done, and the look is lost", mysqlproxy.CutBefore(), new(mysqlproxy.CutBefore()), true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			onRealServers(t, func(t *testing.T, db database) {
				proxy, h := newShadow(t, db)
				fill(t, h)
				proxy.seen()
				proxy.On(func(query string) mysqlproxy.Verdict {
					switch {
					case countQueries([]string{query}, "RENAME TABLE") > 0:
						return c.rename
					case c.look != nil && countQueries([]string{query}, look) > 0:
						return *c.look
					}
					return mysqlproxy.Verdict{}
				})
				err := h.Swap(t.Context(), false)
				seen := proxy.seen()
				require.Equal(t, 1, countQueries(seen, "RENAME TABLE"), "an unknown outcome is not tried again")
				require.NotZero(t, countQueries(seen, look), fmt.Sprint(seen))
				require.Equal(t, c.fails, err != nil, "%v", err)
				require.Equal(t, c.likes, db.count1(t))
				if c.fails {
					require.ErrorContains(t, err, "put the new tables in place")
				}
			})
		})
	}
}
