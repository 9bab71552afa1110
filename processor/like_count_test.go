package processor_test

import (
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/mysqlproxy"
	"kudos/processor"
	"kudos/schema"
)

// waitFolded waits until all of likes is in like-updates, counted or not.
func (t *tape) waitFolded() {
	t.s.t.Helper()
	t.s.waitFor("all events to be folded", func() (bool, any) {
		progress := t.progress()
		for partition, log := range t.read(schema.TopicLikes) {
			if progress[partition].NextOffset < end(log) {
				return false, progress
			}
		}
		return true, nil
	})
}

// Another process applies a range while this one is about to: the compare-and-swap
// lets only one of them.
func TestARangeIsAppliedOnce(t *testing.T) {
	t.Parallel()
	// A look at the position would find the change before the batch does.
	s, tape, p := busySystem(t, func(o *processor.Options) { o.PositionCheckInterval = time.Hour })
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
	tape.waitFolded()
	// The same range, by hand.
	var next, seq, likes int64
	for _, rec := range tape.read(schema.TopicUpdates)[0] {
		var u schema.Update
		require.NoError(t, schema.DecodeUpdate(rec.Value, &u))
		next, seq = rec.Offset+1, int64(u.Seq)+1
		for _, d := range u.Deltas {
			if rec.Offset >= position {
				likes += d.Likes
			}
		}
	}
	require.Equal(t, int64(7), likes)
	tx.MustExec("UPDATE like_count SET `count` = `count` + ? WHERE post_id = ?", likes, postIn(0))
	tx.MustExec("UPDATE like_hourly SET likes = likes + ? WHERE partition_id = 0", likes)
	tx.MustExec("UPDATE applied_offset SET next_offset = ?, next_seq = ? WHERE partition_id = 0", next, seq)
	require.NoError(t, tx.Commit())
	s.produce(record(like(0, 200)))
	tape.waitDrained()
	tape.checkExact()
	p.waitReady()
	p.waitIdle()
	require.Equal(t, applied+2, p.metric("kudos_updates_applied_total"), "only the batch that came after was applied here")
	require.Equal(t, 1, p.metric("kudos_transactions_failed_total", schema.GroupApply, "moved"))
	for metric, transactions := range map[string]string{
		"kudos_fold_seconds": "kudos_fold_transactions_total", "kudos_kafka_commit_seconds": "kudos_fold_transactions_total",
		"kudos_mysql_commit_seconds": "kudos_mysql_transactions_total",
	} {
		require.Equal(t, p.metric(transactions), p.metric(metric), metric)
	}
	require.Equal(t, p.metric("kudos_fold_transactions_total"), p.metric("kudos_batch_records", schema.GroupFold))
	require.Equal(t, p.metric("kudos_mysql_transactions_total"), p.metric("kudos_batch_records", schema.GroupApply))
}

// dump is what a backup, or a replica that lags, has of the tables.
type dump struct {
	counts, hours, positions []map[string]any
}

func (s *system) dump() dump {
	read := func(table string) []map[string]any {
		rows, err := s.db.Queryx("SELECT * FROM " + table)
		require.NoError(s.t, err)
		defer rows.Close()
		var all []map[string]any
		for rows.Next() {
			row := map[string]any{}
			require.NoError(s.t, rows.MapScan(row))
			all = append(all, row)
		}
		require.NoError(s.t, rows.Err())
		return all
	}
	return dump{read("like_count"), read("like_hourly"), read("applied_offset")}
}

// restore puts the tables back to an earlier state, as a failover does that lost
// commits.
func (s *system) restore(d dump) {
	tx := s.db.MustBegin()
	fill := func(table, insert string, rows []map[string]any) {
		tx.MustExec("DELETE FROM " + table)
		for _, row := range rows {
			_, err := sqlx.NamedExec(tx, insert, row)
			require.NoError(s.t, err)
		}
	}
	fill("like_count", "INSERT INTO like_count (post_id, `count`, dislike_count) VALUES (:post_id, :count, :dislike_count)", d.counts)
	fill("like_hourly", "INSERT INTO like_hourly (hour, region, partition_id, likes, dislikes) VALUES (:hour, :region, :partition_id, :likes, :dislikes)", d.hours)
	fill("applied_offset", "INSERT INTO applied_offset (topic, partition_id, topic_id, partitions, next_offset, next_seq, leader_epoch) VALUES (:topic, :partition_id, :topic_id, :partitions, :next_offset, :next_seq, :leader_epoch)", d.positions)
	require.NoError(s.t, tx.Commit())
}

func TestCommitsThatAFailoverLostAreAppliedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ busy bool }{"while idle": {false}, "while events arrive": {true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, tape, p := busySystem(t)
			earlier := s.dump()
			for round := range uint64(3) {
				s.produce(likes(100*(round+1), 10)...)
				tape.waitDrained()
			}
			p.waitIdle()
			applied := p.metric("kudos_updates_applied_total")
			s.restore(earlier)
			if c.busy {
				s.produce(likes(1000, 10)...)
			}
			tape.waitDrained()
			tape.checkExact()
			p.waitReady()
			p.waitIdle()
			require.Greater(t, p.metric("kudos_updates_applied_total"), applied)
		})
	}
}

func TestACommitOfUnknownOutcomeIsNeitherLostNorDoubled(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	proxy := s.throughProxy()
	tape := s.tape()
	p := s.run()
	s.produce(likes(1, 5)...)
	tape.waitDrained()
	user := uint64(100)
	pass, lost, unknown := mysqlproxy.Verdict{}, mysqlproxy.CutBefore(), mysqlproxy.CutAfter(nil)
	for _, cuts := range [][]mysqlproxy.Verdict{
		{unknown}, {lost}, {unknown, unknown, unknown}, {lost, unknown, pass, lost, unknown},
	} {
		proxy.cutCommits(cuts...)
		s.waitFor("the connections to be cut", func() (bool, any) {
			s.produce(likes(user, 3)...)
			user += 3
			return proxy.pending() == 0, proxy.pending()
		})
		tape.waitDrained()
		tape.checkExact()
		p.waitReady()
	}
	require.NotZero(t, p.metric("kudos_transactions_failed_total", schema.GroupApply, "unknown"))
}

// The slower MySQL is, the larger its batches and the fewer its writes.
func TestABacklogIsWrittenInFewTransactions(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	proxy := s.throughProxy()
	proxy.SetAway(true)
	first := s.run(maxBatch(20))
	for from := uint64(1); from < 1000; from += 100 {
		s.produce(likes(from, 100)...)
	}
	tape := s.tape()
	tape.waitFolded()
	first.stop()
	proxy.SetAway(false)
	p := s.run()
	tape.waitDrained()
	tape.checkExact()
	p.waitIdle()
	updates := p.metric("kudos_updates_applied_total")
	require.GreaterOrEqual(t, updates, 2*partitions*1000/20, "an update and a progress record for each batch of the fold")
	require.LessOrEqual(t, p.metric("kudos_mysql_transactions_total"), updates/10, "MySQL transactions for %d updates", updates)
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
		at(1, schema.Like, 1, "US"), at(2, schema.Like, hour-1, "US"), at(3, schema.Like, hour, "US"), at(4, schema.Like, hour, ""),
		at(5, schema.Dislike, hour, "DE-BY"), at(1, schema.Unlike, 3*hour, "FR"), at(2, schema.Dislike, 3*hour, "FR"), at(3, schema.Like, 4*hour, "FR"))
	s.run()
	tape := s.tape()
	tape.waitDrained()
	tape.checkExact()
	require.Equal(t, map[hourKey]schema.Counts{
		{"1970-01-01 01:00:00", "US", 1}:    {Likes: 1}, // user 3, who liked again elsewhere
		{"1970-01-01 01:00:00", "ZZ", 1}:    {Likes: 1},
		{"1970-01-01 01:00:00", "DE-BY", 1}: {Dislikes: 1},
		{"1970-01-01 03:00:00", "FR", 1}:    {Dislikes: 1}, // users 1 and 2 are gone from the US
	}, s.hourly())
}
