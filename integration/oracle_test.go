package integration

import (
	"database/sql"
	"maps"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/oracle"
)

type count struct{ likes, dislikes int64 }

// mysqlCounts reads like_count; posts without any reaction are left out.
func (s *system) mysqlCounts() map[uint64]count {
	counts := map[uint64]count{}
	for _, db := range s.dbs {
		maps.Copy(counts, countsIn(s.t, db))
	}
	return counts
}

func countsIn(t testing.TB, db *sqlx.DB) map[uint64]count {
	var rows []struct {
		Post            uint64
		Likes, Dislikes int64
	}
	require.NoError(t, db.SelectContext(t.Context(), &rows, "SELECT post_id AS post, `count` AS likes, "+
		"dislike_count AS dislikes FROM like_count WHERE `count` <> 0 OR dislike_count <> 0"))
	counts := map[uint64]count{}
	for _, row := range rows {
		counts[row.Post] = count{row.Likes, row.Dislikes}
	}
	return counts
}

// queryRow returns the only row of a query's result, in a scalar or a struct.
func queryRow[T any](t testing.TB, db *sqlx.DB, query string) (row T) {
	require.NoError(t, db.GetContext(t.Context(), &row, query))
	return row
}

// requireSame compares counts, and reports a few of the differences.
func requireSame(t testing.TB, what string, want, have map[uint64]count) {
	d := differences(what, want, have)
	require.Zero(t, d.Total, d.String())
}

func differences(what string, want, have map[uint64]count) (d oracle.Differences) {
	oracle.Compare(&d, "counts:", what, want, have)
	return d
}

func waitSame(t testing.TB, what string, want map[uint64]count, have func() map[uint64]count) {
	waitSaid(t, 2*time.Minute, what, func() (bool, any) {
		d := differences(what, want, have())
		return d.Total == 0, d.String()
	})
}

func (s *system) waitCounts(want map[uint64]count) {
	waitSame(s.t, "the counts in MySQL", want, s.mysqlCounts)
}

func (s *system) databases() (dbs []*sql.DB) {
	for _, db := range s.dbs {
		dbs = append(dbs, db.DB)
	}
	return dbs
}

// check lets an oracle check everything: MySQL, like-updates, dead letters and state table. All events must be applied.
func (s *system) check(acks ...oracle.Ack) *oracle.Differences {
	o, err := oracle.New(s.brokers)
	require.NoError(s.t, err)
	defer o.Close()
	o.UserBuckets = s.userBuckets
	o.Acknowledged(acks)
	require.Empty(s.t, s.left())
	v, err := o.Check(testkit.Within(s.t, 5*time.Minute), s.databases()...)
	require.NoError(s.t, err)
	return &v.Differences
}

// requireExact checks everything that must follow from the log, and that the acknowledged events are in it.
func (s *system) requireExact(acks ...oracle.Ack) {
	d := s.check(acks...)
	require.Zero(s.t, d.Total, d.String())
}

func (s *system) drainExact(within time.Duration) { s.drain(within); s.requireExact() }

// requireCounted checks only like_count and like_hourly against the fold: for compacted or deleted like-updates.
func (s *system) requireCounted() { d := s.check(); require.Zero(s.t, d.Of("I1"), d.String()) }
