package integration

import (
	"context"
	"database/sql"
	"maps"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/oracle"
)

// count is likes and dislikes.
type count struct{ likes, dislikes int64 }

// readAll reads all committed records of a topic, from the first to the end as of now.
func (s *system) readAll(topic string, each func(*kgo.Record)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	cl := s.ownClient(
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords())
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	require.NoError(s.t, err)
	open := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		require.NoError(s.t, o.Err)
		if o.Offset > 0 {
			open[o.Partition] = o.Offset
		}
	})
	for len(open) > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(s.t, fetches.Err(), "reading %s; still to come: %v", topic, open)
		fetches.EachRecord(func(rec *kgo.Record) {
			if !rec.Attrs.IsControl() {
				each(rec)
			}
			if end, ok := open[rec.Partition]; ok && rec.Offset+1 >= end {
				delete(open, rec.Partition)
			}
		})
	}
}

// mysqlCounts reads like_count; posts without any reaction are left out.
func (s *system) mysqlCounts() map[uint64]count {
	s.t.Helper()
	counts := map[uint64]count{}
	for _, db := range s.dbs {
		maps.Copy(counts, countsIn(s.t, db))
	}
	return counts
}

func countsIn(t testing.TB, db *sqlx.DB) map[uint64]count {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT post_id, count, dislike_count FROM like_count")
	require.NoError(t, err)
	defer rows.Close()
	counts := map[uint64]count{}
	for rows.Next() {
		var post uint64
		var c count
		require.NoError(t, rows.Scan(&post, &c.likes, &c.dislikes))
		if c != (count{}) {
			counts[post] = c
		}
	}
	require.NoError(t, rows.Err())
	return counts
}

// requireSame compares counts, and tells a few of those that differ.
func requireSame[K comparable](t testing.TB, what string, want, have map[K]count) {
	t.Helper()
	var d oracle.Differences
	oracle.Compare(&d, "counts:", what, want, have)
	require.Zero(t, d.Total, d.String())
}

// check has the oracle look at everything: MySQL, like-updates, dead letters and the
// state table. All events must have come to MySQL.
func (s *system) check() *oracle.Differences {
	s.t.Helper()
	o, err := oracle.New(s.brokers)
	require.NoError(s.t, err)
	defer o.Close()
	o.UserBuckets = s.userBuckets
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	var dbs []*sql.DB
	for _, db := range s.dbs {
		dbs = append(dbs, db.DB)
	}
	left, err := o.Left(ctx, dbs...)
	require.NoError(s.t, err)
	require.Empty(s.t, left)
	v, err := o.Check(ctx, dbs...)
	require.NoError(s.t, err)
	return &v.Differences
}

// requireExact checks everything that a log of events must have led to.
func (s *system) requireExact() {
	s.t.Helper()
	d := s.check()
	require.Zero(s.t, d.Total, d.String())
}

// requireCounted checks MySQL alone, like_count and like_hourly against the fold: for
// like-updates that are not whole any more, because they were compacted or deleted.
func (s *system) requireCounted() {
	s.t.Helper()
	d := s.check()
	require.Zero(s.t, d.Of("I1"), d.String())
}
