package ranker_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/devtest"
	"kudos/integration/refusal"
	"kudos/integration/testrun"
	"kudos/schema"
	"kudos/sql"
)

func TestRankingsReachMySQL(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.run()
	s.produce(ranking("US", "1h", 3, 1, 2), ranking("US-CA", "10m", 7))
	s.produce(ranking("global", "day", 4, 5), ranking("global", "all", 6))
	s.waitTable(map[string][]uint64{"US/1h": {3, 1, 2}, "US-CA/10m": {7}, "global/day": {4, 5}, "global/all": {6}})
	s.produce(ranking("US", "1h", 2), ranking("US-CA", "10m"), ranking("global", "day", 5, 4, 1<<64-1))
	s.waitWritten(map[string][]uint64{"US/1h": {2}, "global/day": {5, 4, 1<<64 - 1}, "global/all": {6}})

	var row struct {
		Score string
		Likes int
		AsOf  string `db:"as_of"`
	}
	const query = "SELECT CAST(score AS CHAR) score, likes, CAST(as_of AS CHAR) as_of FROM trending WHERE region = 'US'"
	require.NoError(t, s.db.Get(&row, query))
	require.Equal(t, "0.250000 1 2026-06-21 00:00:00",
		fmt.Sprint(row.Score, " ", row.Likes, " ", strings.TrimSuffix(row.AsOf, ".000000")))
}

// Outdated rankings are skipped: of a backlog, only the latest ranking of each key is written.
func TestOnlyTheNewestRankingOfABacklogIsWritten(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	want := map[string][]uint64{}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		region, window := []string{"US", "DE", "global"}[random.IntN(3)], []string{"1h", "day"}[random.IntN(2)]
		var posts []uint64
		for len(posts) < random.IntN(8) {
			posts = append(posts, uint64(100*i+len(posts)))
		}
		s.produce(ranking(region, window, posts...))
		if want[region+"/"+window] = posts; len(posts) == 0 {
			delete(want, region+"/"+window)
		}
	}
	w := s.run()
	s.waitWritten(want)
	require.Less(t, testrun.Metric(t, w.reg, "kudos_ranker_mysql_rankings_total"), 100.)
	require.Less(t, testrun.Metric(t, w.reg, "kudos_ranker_mysql_transactions_total"), 50.)

	// A successor does not write any of it again.
	w.stop()
	w = s.run()
	devtest.WaitReady(t, s.writer.Ready)
	s.produce(ranking("US", "1h", 1))
	want["US/1h"] = []uint64{1}
	s.waitTable(want)
	waitCaughtUp(t, w.Ready, w.reg)
	require.Equal(t, 1., testrun.Metric(t, w.reg, "kudos_ranker_mysql_rankings_total"))
}

// The action writes all rankings again, also those that do not change any more.
func TestRankingsParkAtAMissingTable(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	w := s.run()
	s.produce(ranking("US", "1h", 3, 1, 2), ranking("global", "day", 4, 5))
	want := map[string][]uint64{"US/1h": {3, 1, 2}, "global/day": {4, 5}}
	s.waitWritten(want)
	s.db.MustExec("DROP TABLE trending")
	s.produce(ranking("US", "10m", 7))
	devtest.WaitReadiness(t, w.Ready, "a table is not as kudos created it", "(action: restore all kudos tables from "+
		"one backup, or stop the processors and rankers, drop that table and kudos_schema_version, and delete the "+
		"rows of trending_position, then: kudos migrate, and kudos rebuild)")
	w.stop()
	s.db.MustExec("DROP TABLE kudos_schema_version")
	s.db.MustExec("DELETE FROM trending_position")
	devtest.Migrate(t, s.mysql)
	s.run()
	want["US/10m"] = []uint64{7}
	s.waitWritten(want)
}

func TestRankingsWaitForMySQL(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	proxy := testrun.ProxyMySQL(t, &s.mysql.DSN)
	s.run()
	s.produce(ranking("US", "1h", 1), ranking("DE", "day", 2))
	want := map[string][]uint64{"US/1h": {1}, "DE/day": {2}}
	s.waitTable(want)
	for round := range uint64(3) {
		proxy.SetUnavailable(true)
		s.produce(ranking("US", "1h", 10+round, 5), ranking("DE", "day", 20+round))
		devtest.WaitReadiness(t, s.writer.Ready, fmt.Sprintf("trending/%d parked", partitionOf("US", "1h")),
			fmt.Sprintf("trending/%d parked", partitionOf("DE", "day")))
		require.Equal(t, want, s.table())
		proxy.SetUnavailable(false)
		want = map[string][]uint64{"US/1h": {10 + round, 5}, "DE/day": {20 + round}}
		s.waitWritten(want)
	}
}

// A failover loses commits while nothing arrives: position and rankings are rewound together, and caught up again.
func TestRankingsLostInAFailoverAreWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"the position": "UPDATE trending_position SET next_offset = 0 WHERE partition_id = ?",
		"its row":      "DELETE FROM trending_position WHERE partition_id = ?",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.run()
			s.produce(ranking("US", "1h", 1, 2), ranking("US", "1h", 3, 4, 5))
			want := map[string][]uint64{"US/1h": {3, 4, 5}}
			s.waitTable(want)
			tx := s.db.MustBegin()
			tx.MustExec(lose, partitionOf("US", "1h"))
			tx.MustExec("DELETE FROM trending WHERE `rank` > 1")
			tx.MustExec("UPDATE trending SET post_id = 1")
			require.NoError(t, tx.Commit())
			s.waitWritten(want)
		})
	}
}

// Retention deletes records before they are written to MySQL.
func TestPositionBeforeTheLogResumesAtItsStart(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	w := s.run()
	s.produce(ranking("US", "1h", 1))
	s.waitTable(map[string][]uint64{"US/1h": {1}})
	w.stop()
	s.produce(ranking("US", "1h", 2), ranking("US", "1h", 3), ranking("US", "1h", 4))
	p := partitionOf("US", "1h")
	require.NoError(t, s.Broker.DeleteRecords(schema.TopicTrending, p, 3))
	s.losingData(1) // what a leader answers for a deleted epoch
	s.run()
	s.waitWritten(map[string][]uint64{"US/1h": {4}})
	require.EqualValues(t, 4, s.position(p))
}

func TestRankingsOfAnotherTopicRestart(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	w := s.run()
	for post := range uint64(9) {
		s.produce(ranking("US", "1h", post), ranking("FR", "day", post))
	}
	s.waitTable(map[string][]uint64{"US/1h": {8}, "FR/day": {8}})
	w.stop()
	require.NoError(t, s.Broker.DeleteTopic(schema.TopicTrending))
	require.NoError(t, s.Broker.CreateTopic(schema.TopicTrending, partitions, nil))
	s.Client = s.NewClient(kgo.RecordPartitioner(kgo.ManualPartitioner())) // the old client has cached the old topic
	s.produce(ranking("US", "1h", 100))
	s.run()
	s.waitWritten(map[string][]uint64{"US/1h": {100}})
	var ids []string
	require.NoError(t, s.db.Select(&ids, "SELECT DISTINCT topic_id FROM trending_position"))
	require.Equal(t, []string{hex.EncodeToString(s.Broker.TopicInfo(schema.TopicTrending).TopicID[:])}, ids)
}

// losingData makes the leader report that the epochs that were read end at offset end.
func (s *system) losingData(end int64) {
	s.Broker.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.Broker.KeepControl()
		return refusal.EpochEnd(req, end), nil, true
	})
}

// The log was truncated below MySQL's position: everything that is left is written again.
func TestTruncatedLogIsReadAgain(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(s *system, p int32){
		"the position is past the end, its epoch is unknown": func(s *system, p int32) {
			s.db.MustExec("UPDATE trending_position SET next_offset = 1000, leader_epoch = -1 "+
				"WHERE partition_id = ?", p)
		},
		"the position is past the end, its epoch is not the leader's": func(s *system, p int32) {
			s.db.MustExec("UPDATE trending_position SET next_offset = 1000 WHERE partition_id = ?", p)
			s.losingData(-1)
		},
		"the epoch ends before the position": func(s *system, p int32) { s.losingData(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			w := s.run()
			s.produce(ranking("US", "1h", 1), ranking("US", "1h", 2), ranking("US", "1h", 3))
			s.waitTable(map[string][]uint64{"US/1h": {3}})
			w.stop()
			p := partitionOf("US", "1h")
			cut(s, p)
			s.db.MustExec("UPDATE trending SET post_id = 77") // from a record that the log no longer has
			s.run()
			s.waitWritten(map[string][]uint64{"US/1h": {3}})
			s.waitFor("the position", func() (bool, any) { at := s.position(p); return at == 3, at })
		})
	}
}

// An unreadable record parks its partition after the records before it are written; an operator can skip it.
func TestUndecodableRecordParks(t *testing.T) {
	t.Parallel()
	later, gap := ranking("US", "1h", 66), ranking("US", "1h", 66)
	later.Version++
	gap.Posts[0].Rank = 2
	for name, c := range map[string]struct{ key, value, says string }{
		"a later version":   {"US/1h", encode(t, later), "unknown version 2"},
		"not a ranking":     {"US/1h", "hello", "decoding a ranking"},
		"a tombstone":       {"US/1h", "", "decoding a ranking"},
		"empty ranking":     {"US/1h", `{"version":1}`, "the ranking / has the key"},
		"another key":       {"DE/1h", encode(t, ranking("US", "1h", 66)), `the ranking US/1h has the key "DE/1h"`},
		"a gap":             {"US/1h", encode(t, gap), "post 66 has rank 2 where 1 was expected"},
		"an invalid region": {"'/1h", encode(t, ranking("'", "1h", 66)), "region"},
		"an invalid window": {"US/1 h", encode(t, ranking("US", "1 h", 66)), "window"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.produceTo(1, "US/1h", encode(t, ranking("US", "1h", 1)))
			s.produceTo(1, c.key, c.value)
			s.produceTo(1, "x", "y")
			s.produceTo(1, "US/24h", encode(t, ranking("US", "24h", 8)))
			s.produceTo(2, "DE/all", encode(t, ranking("DE", "all", 9)))
			s.run()
			s.waitTable(map[string][]uint64{"US/1h": {1}, "DE/all": {9}})
			devtest.WaitReadiness(t, s.writer.Ready, "trending/1 parked: trending/1 offset 1: ", c.says,
				"run the version of kudos that wrote it, or a later one",
				"UPDATE trending_position SET next_offset = 2 WHERE topic = 'trending' AND partition_id = 1")
			require.EqualValues(t, 1, s.position(1))
			require.Equal(t, map[string][]uint64{"US/1h": {1}, "DE/all": {9}}, s.table(), "nothing after it")

			s.db.MustExec("UPDATE trending_position SET next_offset = 2 WHERE topic = 'trending' AND partition_id = 1")
			devtest.WaitReadiness(t, s.writer.Ready, "trending/1 offset 2: ", "decoding a ranking")
			s.db.MustExec("UPDATE trending_position SET next_offset = 3 WHERE topic = 'trending' AND partition_id = 1")
			s.waitWritten(map[string][]uint64{"US/1h": {1}, "DE/all": {9}, "US/24h": {8}})
		})
	}
}

// TestOtherShardParksRankings: a database that is not the configured shard gets no rankings until the list is restored.
func TestOtherShardParksRankings(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.db.MustExec("UPDATE kudos_shard SET shard = 1, shards = 2")
	w := s.run()
	s.produce(ranking("US", "1h", 3, 1, 2))
	s.waitFor("all partitions to park", func() (bool, any) {
		err := w.Ready()
		said := fmt.Sprint(err)
		const why = "this database is shard 1 of 2, but the settings say that it is shard 0 of 1"
		return strings.Count(said, why) >= partitions && strings.Contains(said, "action: "+sql.ShardAction), err
	})
	s.waitTable(map[string][]uint64{})
	s.db.MustExec("UPDATE kudos_shard SET shard = 0, shards = 1")
	s.waitTable(map[string][]uint64{"US/1h": {3, 1, 2}})
}
