package processor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/mysqlproxy"
	"kudos/processor"
	"kudos/schema"
)

// Another process applies a range that this one is about to apply: the compare-and-swap admits only one.
func TestRangeIsAppliedOnce(t *testing.T) {
	t.Parallel()
	// A position check would find the change before the batch does.
	s, p := busySystem(t, func(o *processor.Options) { o.PositionCheckInterval = time.Hour })
	p.waitIdle()
	applied := p.metric("kudos_updates_applied_total")
	position := s.positions()[0]
	tx := s.db.MustBegin()
	tx.MustExec("UPDATE applied_offset SET updated_at = UTC_TIMESTAMP(3) WHERE partition_id = 0") // holds the row
	var records []*kgo.Record
	for user := range uint64(7) {
		records = append(records, record(like(0, 100+user)))
	}
	s.produce(records...)
	s.waitFolded()
	// The same range, by hand.
	var next, seq, likes int64
	s.updates(0, func(rec *kgo.Record, u schema.Update) {
		next, seq = rec.Offset+1, int64(u.Seq)+1
		for _, d := range u.Deltas {
			if rec.Offset >= position {
				likes += d.Likes
			}
		}
	})
	require.Equal(t, int64(7), likes)
	tx.MustExec("UPDATE like_count SET `count` = `count` + ? WHERE post_id = ?", likes, postIn(0))
	tx.MustExec("UPDATE like_hourly SET likes = likes + ? WHERE partition_id = 0", likes)
	tx.MustExec("UPDATE applied_offset SET next_offset = ?, next_seq = ? WHERE partition_id = 0", next, seq)
	require.NoError(t, tx.Commit())
	s.produce(record(like(0, 200)))
	s.waitExact(p)
	p.waitIdle()
	require.Equal(t, applied+2, p.metric("kudos_updates_applied_total"), "only the later batch was applied here")
	require.Equal(t, 1, p.metric("kudos_transactions_failed_total", schema.GroupApply, "moved"))
	for metric, transactions := range map[string]string{
		"kudos_fold_seconds":         "kudos_fold_transactions_total",
		"kudos_kafka_commit_seconds": "kudos_fold_transactions_total",
		"kudos_mysql_commit_seconds": "kudos_mysql_transactions_total",
	} {
		require.Equal(t, p.metric(transactions), p.metric(metric), metric)
	}
	require.Equal(t, p.metric("kudos_fold_transactions_total"), p.metric("kudos_batch_records", schema.GroupFold))
	require.Equal(t, p.metric("kudos_mysql_transactions_total"), p.metric("kudos_batch_records", schema.GroupApply))
}

// dump keeps the tables as a backup or lagging replica does. restore sets them back, as a failover that lost commits.
func (s *system) dump() (restore func()) {
	tables := []string{"like_count", "like_hourly", "applied_offset"}
	for _, table := range tables {
		s.db.MustExec("CREATE TABLE dump_of_" + table + " LIKE " + table)
		s.db.MustExec("INSERT INTO dump_of_" + table + " SELECT * FROM " + table)
	}
	return func() {
		tx := s.db.MustBegin()
		for _, table := range tables {
			tx.MustExec("DELETE FROM " + table)
			tx.MustExec("INSERT INTO " + table + " SELECT * FROM dump_of_" + table)
		}
		require.NoError(s.t, tx.Commit())
	}
}

func TestCommitsLostInAFailoverAreAppliedAgain(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"while idle": false, "while events arrive": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := busySystem(t)
			restore := s.dump()
			for round := range uint64(3) {
				s.produce(likes(100*(round+1), 10)...)
				s.waitDrained()
			}
			p.waitIdle()
			applied := p.metric("kudos_updates_applied_total")
			restore()
			if busy {
				s.produce(likes(1000, 10)...)
			}
			s.waitExact(p)
			p.waitIdle()
			require.Greater(t, p.metric("kudos_updates_applied_total"), applied)
		})
	}
}

func TestCommitOfUnknownOutcomeCountsOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	commits := make(chan mysqlproxy.Decision, 10) // what happens to the next commits
	s.throughProxy().On(func(query string) (v mysqlproxy.Decision) {
		if strings.EqualFold(query, "COMMIT") {
			select {
			case v = <-commits:
			default:
			}
		}
		return v
	})
	p := s.run()
	s.produce(likes(1, 5)...)
	s.waitDrained()
	user := uint64(100)
	pass, lost, unknown := mysqlproxy.Decision{}, mysqlproxy.CutBefore(), mysqlproxy.CutAfter(nil)
	for _, cuts := range [][]mysqlproxy.Decision{
		{unknown}, {lost}, {unknown, unknown, unknown}, {lost, unknown, pass, lost, unknown},
	} {
		for _, cut := range cuts {
			commits <- cut
		}
		s.waitFor("the connections to be cut", func() (bool, any) {
			s.produce(likes(user, 3)...)
			user += 3
			return len(commits) == 0, len(commits)
		})
		s.waitExact(p)
	}
	require.NotZero(t, p.metric("kudos_transactions_failed_total", schema.GroupApply, "unknown"))
}

// The slower MySQL is, the larger its batches and the fewer its writes.
func TestBacklogIsWrittenInFewTransactions(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	proxy := s.throughProxy()
	proxy.SetUnavailable(true)
	first := s.run(maxBatch(20))
	for from := uint64(1); from < 1000; from += 100 {
		s.produce(likes(from, 100)...)
	}
	s.waitFolded()
	first.stop()
	proxy.SetUnavailable(false)
	p := s.run(maxBatch(20))
	s.waitExact()
	p.waitIdle()
	updates := p.metric("kudos_updates_applied_total")
	require.GreaterOrEqual(t, updates, 2*partitions*1000/20,
		"an update and a progress record for each batch of the fold")
	require.Less(t, p.metric("kudos_mysql_transactions_total"), updates/20,
		"for %d updates: one has more of them than the fold's have events", updates)
	require.LessOrEqual(t, p.metric("kudos_mysql_rows_total"), updates/10, "rows of like_count for %d updates", updates)
}

func TestHoursAndRegions(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const hour = 3_600_000
	at := func(user uint64, action schema.Action, timeMs int64, region string) *kgo.Record {
		r, _ := schema.ParseRegion(region)
		return record(schema.Event{PostID: postIn(1), UserID: user, Action: action, TimeMs: timeMs, Region: r})
	}
	s.produce(
		at(1, schema.Like, 1, "US"), at(2, schema.Like, hour-1, "US"), at(3, schema.Like, hour, "US"), at(4,
			schema.Like, hour, ""),
		at(5, schema.Dislike, hour, "DE-BY"), at(1, schema.Unlike, 3*hour, "FR"), at(2, schema.Dislike, 3*hour,
			"FR"), at(3, schema.Like, 4*hour, "FR"))
	p := s.run()
	s.waitExact(p)
	p.waitIdle()
	require.Equal(t, 8, p.metric("kudos_events_folded_total"))
	require.Equal(t, 7, p.metric("kudos_transitions_total"))
	require.Equal(t, 1, p.metric("kudos_duplicates_total"))
	require.Equal(t, map[hourKey]schema.Counts{
		{"1970-01-01 01:00:00", "US", 1}: {Likes: 1}, // user 3, who liked again elsewhere
		{"1970-01-01 01:00:00", "ZZ", 1}: {Likes: 1},
		{"1970-01-01 01:00:00", "DE", 1}: {Dislikes: 1}, // DE-BY is not in topics.regions
		{"1970-01-01 03:00:00", "FR", 1}: {Dislikes: 1}, // users 1 and 2 no longer count in the US
	}, s.hourly())
}
