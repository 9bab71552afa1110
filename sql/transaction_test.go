package sql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

// Wherever a lock conflict occurs, the whole transaction is retried and counts once. (Error 1205 undoes one statement.)
func TestLockConflictsAreRetriedAsAWholeTransaction(t *testing.T) {
	for _, c := range []struct {
		statement string
		number    uint16
	}{
		{"UPDATE applied_offset", errDeadlock},
		{"UPDATE applied_offset", errLockWaitTimeout},
		{"INSERT INTO like_count", errDeadlock},
		{"INSERT INTO like_count", errLockWaitTimeout},
		{"INSERT INTO like_hourly", errDeadlock},
		{"INSERT INTO like_hourly", errLockWaitTimeout},
		{"COMMIT", errDeadlock},
	} {
		t.Run(fmt.Sprint(c.statement, c.number), func(t *testing.T) {
			db := embeddedDatabase(t)
			proxy, s := db.proxied(t)
			proxy.once(c.statement, mysqlproxy.Refuse(c.number))
			require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, oneHour))
			require.Equal(t, 2, countQueries(proxy.seen(), "START TRANSACTION"))
			require.Equal(t, oneLiked, db.counts(t))
			require.InDelta(t, 1, testutil.ToFloat64(s.collectors()[1]), 0)
		})
	}
}

func TestRetriesAreBounded(t *testing.T) {
	proxy, s := embeddedDatabase(t).proxied(t, func(o *Options) { o.Retries = 3 })
	proxy.always(map[string]mysqlproxy.Decision{"UPDATE": mysqlproxy.Refuse(errDeadlock)})
	err := likeOnce(t.Context(), s)
	require.True(t, hasNumber(err, errDeadlock), "%v", err)
	require.True(t, IsTransient(err))
	require.Equal(t, 4, countQueries(proxy.seen(), "START TRANSACTION"))
}

func TestOtherErrorsAreNotRetried(t *testing.T) {
	db := embeddedDatabase(t)
	proxy, s := db.proxied(t)
	proxy.once("INSERT INTO like_count", mysqlproxy.Refuse(1690))
	err := likeOnce(t.Context(), s)
	require.ErrorContains(t, err, "kudos audit")
	require.False(t, IsTransient(err))
	require.Equal(t, 1, countQueries(proxy.seen(), "START TRANSACTION"))
	require.Equal(t, "0", db.scalar(t, "SELECT next_offset FROM applied_offset WHERE partition_id = 0"), "rolled back")
}

// The answer to COMMIT is lost. The caller must learn that it may have worked, and Position must tell whether it did.
func TestUnknownOutcomeOfCommit(t *testing.T) {
	type lost struct {
		cut  mysqlproxy.Decision
		want Position
	}
	inEachCase(t, map[string]lost{
		"server did not receive it": {mysqlproxy.CutBefore(), start},
		"server committed":          {mysqlproxy.CutAfter(nil), at(1, 1)},
	}, func(t *testing.T, db database, c lost) {
		proxy, s := db.proxied(t)
		proxy.once("COMMIT", c.cut)
		err := s.Apply(t.Context(), likesTopic(), 0, start, at(1, 1), oneLike, nil)
		requireUnknown(t, true, err)
		require.True(t, IsTransient(err))

		requireAt(t, c.want, (*Store).Position, s, likesTopic(), 0)
		if c.want == start {
			require.NoError(t, likeOnce(t.Context(), s))
		}
		require.Equal(t, oneLiked, db.counts(t))
	})
}

func requireUnknown(t testing.TB, want bool, err error) {
	t.Helper()
	require.Equal(t, want, errors.As(err, new(*UnknownOutcomeError)), "%v", err)
}

// Any error at COMMIT other than a deadlock leaves the outcome unknown: some servers report one after they committed.
func TestErrorAtCommitIsUnknownOutcome(t *testing.T) {
	for _, number := range []uint16{1053, 1180, errLockWaitTimeout, 1290, 1317} {
		proxy, s := embeddedDatabase(t).proxied(t)
		proxy.once("COMMIT", mysqlproxy.Refuse(number))
		requireUnknown(t, true, likeOnce(t.Context(), s))
		require.Equal(t, 1, countQueries(proxy.seen(), "START TRANSACTION"), "error %d must not be retried", number)
	}
}

// A connection lost before COMMIT is not an unknown outcome: nothing can have been counted.
func TestConnectionLostBeforeCommit(t *testing.T) {
	for _, cut := range []mysqlproxy.Decision{mysqlproxy.CutBefore(), mysqlproxy.CutAfter(nil)} {
		for _, statement := range []string{"START TRANSACTION", "UPDATE applied_offset", "INSERT INTO like_count"} {
			t.Run(statement, func(t *testing.T) {
				onEachServer(t, func(t *testing.T, db database) {
					proxy, s := db.proxied(t)
					proxy.once(statement, cut)
					err := likeOnce(t.Context(), s)
					requireUnknown(t, false, err)
					require.True(t, IsTransient(err), "%v", err)
					require.NoError(t, likeOnce(t.Context(), s))
					require.Equal(t, oneLiked, db.counts(t))
				})
			})
		}
	}
}

// After a failover the pool may still have connections to the old primary, which is read-only now.
func TestReadOnlyServerIsLeft(t *testing.T) {
	for _, number := range []uint16{1290, 1792, 1836} {
		proxy, s := embeddedDatabase(t).proxied(t)
		before := proxy.Connections()
		proxy.once("UPDATE applied_offset", mysqlproxy.Refuse(number))
		err := likeOnce(t.Context(), s)
		require.True(t, IsTransient(err), "%v", err)
		require.ErrorContains(t, err, "read-only")
		require.NoError(t, likeOnce(t.Context(), s))
		require.Equal(t, before+1, proxy.Connections(), "error %d: the next call must reconnect", number)
	}
}

// An unfinished transaction must not stay open on a pooled connection: the next START TRANSACTION would commit it.
func TestConnectionWithAnOpenTransactionIsDropped(t *testing.T) {
	inEachCase(t, map[string]map[string]mysqlproxy.Decision{
		"ROLLBACK fails": {"INSERT INTO like_hourly": mysqlproxy.Refuse(1264), "ROLLBACK": mysqlproxy.Refuse(1317)},
		"COMMIT fails":   {"COMMIT": mysqlproxy.Refuse(1180)},
	}, func(t *testing.T, db database, decisions map[string]mysqlproxy.Decision) {
		proxy, s := db.proxied(t, func(o *Options) { o.MaxOpenConns = 1 })
		proxy.always(decisions)
		err := s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, oneHour)
		require.Error(t, err)
		require.Equal(t, len(decisions) > 1, hasNumber(err, 1264), "the first failure must be the cause: %v", err)
		proxy.On(nil)
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 1, at(0, 0), at(1, 1), nil, nil))
		require.Empty(t, db.counts(t), "the next transaction must not commit the failed one's changes")
	})
}

func TestCancelledContextEndsApplyWithoutCommit(t *testing.T) {
	for _, statement := range []string{"START TRANSACTION", "UPDATE applied_offset", "INSERT INTO like_count"} {
		t.Run(statement, func(t *testing.T) {
			db := embeddedDatabase(t)
			proxy, s := db.proxied(t)
			err := likeOnce(proxy.cancelledAt(t, statement), s)
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, IsTransient(err))
			proxy.On(nil)
			require.NoError(t, likeOnce(t.Context(), s))
			require.Equal(t, oneLiked, db.counts(t))
		})
	}
}

// Nothing may interrupt a COMMIT in flight: that would make a known outcome unknown.
func TestCommitIsNotInterruptedByTheContext(t *testing.T) {
	db := embeddedDatabase(t)
	proxy, s := db.proxied(t)
	require.NoError(t, likeOnce(proxy.cancelledAt(t, "COMMIT"), s))
	require.Equal(t, oneLiked, db.counts(t))
}

func TestCancelledContextEndsTheWaitBetweenRetries(t *testing.T) {
	proxy, s := embeddedDatabase(t).proxied(t, func(o *Options) {
		o.Retries, o.RetryBackoff, o.RetryBackoffMax = 1000, 1e12, 1e12
	})
	ctx, cancel := context.WithCancel(t.Context())
	proxy.On(func(query string) (v mysqlproxy.Decision) {
		switch {
		case strings.HasPrefix(query, "UPDATE"):
			v = mysqlproxy.Refuse(errDeadlock)
		case query == "ROLLBACK": // the 1000 s wait follows
			cancel()
		}
		return v
	})
	require.ErrorIs(t, likeOnce(ctx, s), context.Canceled)
}

// cancelledLate, once armed, is canceled right after its first Err call.
type cancelledLate struct {
	context.Context
	cancel context.CancelFunc
	armed  bool
}

func (c *cancelledLate) Err() error {
	err := c.Context.Err()
	if c.armed {
		c.cancel()
	}
	return err
}

// No COMMIT for a caller that is gone. But between our last check of the context and COMMIT, database/sql must not
// check again: it would send no COMMIT, which looks like a COMMIT without an answer.
func TestContextIsCheckedBeforeTheCommit(t *testing.T) {
	for last, want := range map[string]error{"ROLLBACK": context.Canceled, "COMMIT": nil} {
		proxy, s := embeddedDatabase(t).proxied(t)
		ctx, cancel := context.WithCancel(t.Context())
		late := &cancelledLate{Context: ctx, cancel: cancel}
		require.Equal(t, want, s.transact(late, func(context.Context, *sqlx.Tx) error {
			late.armed = true
			if want != nil {
				cancel() // after the last statement
			}
			return nil
		}))
		require.Error(t, ctx.Err(), "the context was not checked before COMMIT")
		begin := []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"}
		require.Equal(t, append(begin, last), proxy.seen())
	}
}

func TestConnectionClosedWhileIdle(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		s := db.startedStore(t, func(o *Options) { o.MaxOpenConns = 1 })
		raw := db.raw(t)
		var id int64
		require.NoError(t, s.db.Get(&id, "SELECT CONNECTION_ID()"))
		raw.MustExec("KILL ?", id)
		require.Eventually(t, func() bool {
			var gone bool
			err := raw.Get(&gone, "SELECT COUNT(*) = 0 FROM information_schema.processlist WHERE id = ?", id)
			return err == nil && gone
		}, waitLimit, pollEvery)
		require.NoError(t, likeOnce(t.Context(), s))
	})
}

// The server's max_allowed_packet applies, too. Servers accept at least 1024 bytes, so the proxy plays one with less.
func TestStatementsFitTheServersPacketLimit(t *testing.T) {
	for _, limit := range []int{1024, 16 << 10} {
		onEachServer(t, func(t *testing.T, db database) {
			proxy, through := db.through(t)
			proxy.On(func(query string) (v mysqlproxy.Decision) {
				switch {
				case query == "SELECT @@max_allowed_packet":
					v = mysqlproxy.Rewrite(fmt.Sprint("SELECT ", limit))
				case len(query)+1 > limit: // the command byte counts, too
					v = mysqlproxy.Refuse(1153)
				}
				return v
			})
			db.migrated(t)
			s := through.store(t, func(o *Options) { o.MaxStatementBytes = 1 << 20 })
			_, err := s.Position(t.Context(), likesTopic(), 0)
			require.NoError(t, err)
			counts := posts(0, 3000)
			for i := range counts {
				counts[i].PostID += 1 << 63
			}
			require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, start, at(1, 0), counts, nil),
				"max_allowed_packet %d", limit)
			require.Len(t, db.counts(t), len(counts))
		})
	}
}
