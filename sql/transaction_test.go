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

var oneLike = []CountDelta{{PostID: 1, Likes: 1}}

// count1 is how often post 1 was liked.
func (d database) count1(t testing.TB) int64 { return d.counts(t)[1].Likes }

func countQueries(queries []string, prefix string) (n int) {
	for _, query := range queries {
		if strings.HasPrefix(query, prefix) {
			n++
		}
	}
	return n
}

// Wherever a lock conflict hits, the whole transaction is done again, and counts once. (1205 undoes a statement only.)
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
			proxy, db := embeddedDatabase(t).through(t)
			s := db.startedStore(t)
			proxy.seen()
			proxy.once(c.statement, mysqlproxy.Refuse(c.number))
			require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, []HourDelta{{Region: "ZZ", Likes: 1}}))
			require.Equal(t, 2, countQueries(proxy.seen(), "START TRANSACTION"))
			require.EqualValues(t, 1, db.count1(t))
			conflicts := s.Collectors()[1]
			require.InDelta(t, 1, testutil.ToFloat64(conflicts), 0)
		})
	}
}

func TestRetriesAreBounded(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.startedStore(t, func(o *Options) { o.Retries = 3 })
	proxy.seen()
	proxy.On(func(query string) (v mysqlproxy.Verdict) {
		if strings.HasPrefix(query, "UPDATE") {
			v = mysqlproxy.Refuse(errDeadlock)
		}
		return v
	})
	err := s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil)
	require.True(t, hasNumber(err, errDeadlock), "%v", err)
	require.True(t, IsTransient(err))
	require.Equal(t, 4, countQueries(proxy.seen(), "START TRANSACTION"))
}

func TestOtherErrorsAreNotRetried(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.startedStore(t)
	proxy.seen()
	proxy.once("INSERT INTO like_count", mysqlproxy.Refuse(1690))
	err := s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil)
	require.ErrorContains(t, err, "kudos audit")
	require.False(t, IsTransient(err))
	require.Equal(t, 1, countQueries(proxy.seen(), "START TRANSACTION"))
	require.Equal(t, "0", db.scalar(t, "SELECT next_offset FROM applied_offset WHERE partition_id = 0"), "rolled back")
}

// The answer to COMMIT is lost. The caller must learn that it may have worked, and Position must tell whether it has.
func TestUnknownOutcomeOfCommit(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  mysqlproxy.Verdict
		want Position
	}{
		{"server never saw it", mysqlproxy.CutBefore(), start},
		{"server did it", mysqlproxy.CutAfter(nil), at(10, 5)},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEachServer(t, func(t *testing.T, db database) {
				proxy, db := db.through(t)
				s := db.startedStore(t)
				proxy.once("COMMIT", c.cut)
				err := s.Apply(t.Context(), likesTopic(), 0, start, at(10, 5), oneLike, nil)
				var unknown *UnknownOutcomeError
				require.ErrorAs(t, err, &unknown)
				require.True(t, IsTransient(err))

				position, err := s.Position(t.Context(), likesTopic(), 0)
				require.NoError(t, err)
				require.Equal(t, c.want, position)
				if position == start {
					require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, start, at(10, 5), oneLike, nil))
				}
				require.EqualValues(t, 1, db.count1(t))
			})
		})
	}
}

// Any other error to COMMIT than a deadlock leaves the outcome open: some servers report one after they committed.
func TestErrorAtCommitIsUnknownOutcome(t *testing.T) {
	for _, number := range []uint16{1053, 1180, errLockWaitTimeout, 1290, 1317} {
		proxy, db := embeddedDatabase(t).through(t)
		s := db.startedStore(t)
		proxy.seen()
		proxy.once("COMMIT", mysqlproxy.Refuse(number))
		err := s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil)
		var unknown *UnknownOutcomeError
		require.ErrorAs(t, err, &unknown, "error %d", number)
		require.Equal(t, 1, countQueries(proxy.seen(), "START TRANSACTION"), "error %d: never repeated blind", number)
	}
}

// A break before COMMIT is no unknown outcome: nothing can have been counted.
func TestConnectionLostBeforeCommit(t *testing.T) {
	for _, cut := range []mysqlproxy.Verdict{mysqlproxy.CutBefore(), mysqlproxy.CutAfter(nil)} {
		for _, statement := range []string{"START TRANSACTION", "UPDATE applied_offset", "INSERT INTO like_count"} {
			t.Run(statement, func(t *testing.T) {
				onEachServer(t, func(t *testing.T, db database) {
					proxy, db := db.through(t)
					s := db.startedStore(t)
					proxy.once(statement, cut)
					err := s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil)
					var unknown *UnknownOutcomeError
					require.False(t, errors.As(err, &unknown), "%v", err)
					require.True(t, IsTransient(err), "%v", err)
					require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil))
					require.EqualValues(t, 1, db.count1(t))
				})
			})
		}
	}
}

// After a failover the pool may still hold connections to the old primary, which is read-only now.
func TestReadOnlyServerIsLeft(t *testing.T) {
	for _, number := range []uint16{1290, 1792, 1836} {
		proxy, db := embeddedDatabase(t).through(t)
		s := db.startedStore(t)
		before := proxy.Connections()
		proxy.once("UPDATE applied_offset", mysqlproxy.Refuse(number))
		err := s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil)
		require.True(t, IsTransient(err), "%v", err)
		require.ErrorContains(t, err, "read-only")
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil))
		require.Equal(t, before+1, proxy.Connections(), "error %d: the next call must dial again", number)
	}
}

// A transaction that could not be rolled back must not stay open on a pooled connection: the next START TRANSACTION
// would commit it.
func TestConnectionIsDroppedWhenRollbackFails(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		proxy, db := db.through(t)
		s := db.startedStore(t, func(o *Options) { o.MaxOpenConns = 1 })
		proxy.On(func(query string) (v mysqlproxy.Verdict) {
			switch {
			case strings.HasPrefix(query, "INSERT INTO like_hourly"):
				v = mysqlproxy.Refuse(1264)
			case query == "ROLLBACK":
				v = mysqlproxy.Refuse(1317)
			}
			return v
		})
		err := s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, []HourDelta{{Region: "ZZ", Likes: 1}})
		require.True(t, hasNumber(err, 1264), "%v", err)
		proxy.On(nil)

		require.NoError(t, s.Apply(t.Context(), likesTopic(), 1, at(0, 0), at(1, 1), nil, nil))
		require.Empty(t, db.counts(t), "what failed must not be committed by the next transaction")
	})
}

func TestCommitErrorDropsTheConnection(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		proxy, db := db.through(t)
		s := db.startedStore(t, func(o *Options) { o.MaxOpenConns = 1 })
		proxy.once("COMMIT", mysqlproxy.Refuse(1180)) // the transaction is still open on the server
		require.Error(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil))
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 1, at(0, 0), at(1, 1), nil, nil))
		require.Empty(t, db.counts(t))
	})
}

func TestCancelledContextEndsApplyWithoutCommit(t *testing.T) {
	for _, statement := range []string{"START TRANSACTION", "UPDATE applied_offset", "INSERT INTO like_count"} {
		t.Run(statement, func(t *testing.T) {
			proxy, db := embeddedDatabase(t).through(t)
			s := db.startedStore(t)
			ctx, cancel := context.WithCancel(t.Context())
			proxy.On(func(query string) mysqlproxy.Verdict {
				if strings.HasPrefix(query, statement) {
					cancel()
				}
				return mysqlproxy.Verdict{}
			})
			err := s.Apply(ctx, likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil)
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, IsTransient(err))
			proxy.On(nil)
			require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil))
			require.EqualValues(t, 1, db.count1(t))
		})
	}
}

func TestNoCommitForACallerThatHasGone(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.startedStore(t)
	proxy.seen()
	ctx, cancel := context.WithCancel(t.Context())
	err := s.transact(ctx, func(context.Context, *sqlx.Tx) error {
		cancel() // after the last statement
		return nil
	})
	require.Equal(t, context.Canceled, err)
	require.Equal(t, []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION", "ROLLBACK"}, proxy.seen())
}

// cancelledLate is cancelled right after it was asked, once armed.
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

// Between our last look at the context and COMMIT, database/sql must not look again: it would send no COMMIT, and that
// would pass for one without an answer.
func TestContextCannotRefuseTheCommit(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.startedStore(t)
	proxy.seen()
	ctx, cancel := context.WithCancel(t.Context())
	late := &cancelledLate{Context: ctx, cancel: cancel}
	require.NoError(t, s.transact(late, func(context.Context, *sqlx.Tx) error {
		late.armed = true
		return nil
	}))
	require.Error(t, ctx.Err(), "nobody looked at the context before COMMIT")
	require.Equal(t, []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION", "COMMIT"}, proxy.seen())
}

// While COMMIT is on its way nobody may interrupt it: that would make a known outcome unknown.
func TestCommitIsNotInterruptedByTheContext(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.startedStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	proxy.On(func(query string) mysqlproxy.Verdict {
		if query == "COMMIT" {
			cancel()
		}
		return mysqlproxy.Verdict{}
	})
	require.NoError(t, s.Apply(ctx, likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil))
	require.EqualValues(t, 1, db.count1(t))
}

func TestCancelledContextEndsTheWaitBetweenRetries(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.startedStore(t, func(o *Options) { o.Retries, o.RetryBackoff, o.RetryBackoffMax = 1000, 1e12, 1e12 })
	ctx, cancel := context.WithCancel(t.Context())
	proxy.On(func(query string) (v mysqlproxy.Verdict) {
		switch {
		case strings.HasPrefix(query, "UPDATE"):
			v = mysqlproxy.Refuse(errDeadlock)
		case query == "ROLLBACK": // the wait of 1000 s comes next
			cancel()
		}
		return v
	})
	require.ErrorIs(t, s.Apply(ctx, likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil), context.Canceled)
}

// The pool notices connections that the server has closed meanwhile.
func TestConnectionClosedWhileIdle(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		s := db.startedStore(t, func(o *Options) { o.MaxOpenConns = 1 })
		raw := db.raw(t)
		var id int64
		require.NoError(t, s.db.Get(&id, "SELECT CONNECTION_ID()"))
		raw.MustExec("KILL ?", id)
		require.Eventually(t, func() bool {
			var gone bool
			return raw.Get(&gone, "SELECT COUNT(*) = 0 FROM information_schema.processlist WHERE id = ?", id) == nil && gone
		}, waitLimit, pollEvery)
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil))
	})
}

// The server's max_allowed_packet holds, not only our own limit. Servers take 1024 bytes at least; here the proxy is
// the server that refuses more.
func TestStatementsFitTheServersPacketLimit(t *testing.T) {
	for _, limit := range []int{1024, 16 << 10} {
		onEachServer(t, func(t *testing.T, db database) {
			proxy, through := db.through(t)
			proxy.On(func(query string) (v mysqlproxy.Verdict) {
				switch {
				case query == "SELECT @@max_allowed_packet":
					v = mysqlproxy.Rewrite(fmt.Sprint("SELECT ", limit))
				case len(query)+1 > limit: // the command counts too
					v = mysqlproxy.Refuse(1153)
				}
				return v
			})
			db.migrated(t)
			s := through.store(t, func(o *Options) { o.MaxStatementBytes = 1 << 20 })
			_, err := s.Position(t.Context(), likesTopic(), 0)
			require.NoError(t, err)
			var counts []CountDelta
			for post := range uint64(1500) {
				counts = append(counts, CountDelta{PostID: 1<<63 + post, Likes: 1})
			}
			require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, start, at(1, 0), counts, nil), "max_allowed_packet %d", limit)
			require.Len(t, db.counts(t), len(counts))
		})
	}
}
