package processor_test

import (
	"fmt"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
)

// sharded is a system whose partitions are spread over several databases, each behind a proxy.
type sharded struct {
	*system
	dbs     []*sqlx.DB
	proxies []*mysqlproxy.Proxy
	users   map[int32]int64 // users who like the post of each partition
}

func newSharded(t *testing.T, shards int) *sharded {
	s := &sharded{system: newTopics(t), users: map[int32]int64{}}
	var direct, through []string
	for range shards {
		s.dbs = append(s.dbs, s.newDatabase())
		direct = append(direct, s.mysql.DSN)
		s.proxies = append(s.proxies, s.throughProxy())
		through = append(through, s.mysql.DSN)
	}
	s.mysql.DSN, s.mysql.Shards = "", direct
	s.migrate()
	s.mysql.Shards = through
	return s
}

func (s *sharded) like(from, n uint64) {
	s.t.Helper()
	s.produce(likes(from, n)...)
	for p := range int32(partitions) {
		s.users[p] += int64(n)
	}
}

// likesOf returns a shard's likes for the post of a partition; 0 if it has no row.
func (s *sharded) likesOf(shard int, p int32) (n int64) {
	s.t.Helper()
	query := "SELECT COALESCE(SUM(`count`), 0) FROM like_count WHERE post_id = ?"
	require.NoError(s.t, s.dbs[shard].Get(&n, query, postIn(p)))
	return n
}

func (s *sharded) positionsOf(shard int, p int32) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.dbs[shard].Get(&n, "SELECT COUNT(*) FROM applied_offset WHERE partition_id = ?", p))
	return n
}

func (s *sharded) waitCounted(shards ...int) {
	s.t.Helper()
	s.waitFor("the likes of the shards to be counted", func() (bool, any) {
		now, all := map[int32]int64{}, true
		for _, shard := range shards {
			for p := int32(shard); p < partitions; p += int32(len(s.dbs)) {
				now[p] = s.likesOf(shard, p)
				all = all && now[p] == s.users[p]
			}
		}
		return all, now
	})
}

// requireApart checks that each shard has rows of its own partitions only.
func (s *sharded) requireApart() {
	s.t.Helper()
	for shard := range s.dbs {
		for p := range int32(partitions) {
			own := int(p)%len(s.dbs) == shard
			require.Equal(s.t, own, s.positionsOf(shard, p) == 1, "position of partition %d at shard %d", p, shard)
			if !own {
				require.Zero(s.t, s.likesOf(shard, p), "post of partition %d at shard %d", p, shard)
			}
		}
	}
}

// An unavailable server parks its own partitions, which readiness and metrics show, and no others.
func TestUnavailableServerParksOnlyItsOwnPartitions(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 2)
	p := s.run()
	s.like(1, 10)
	s.waitCounted(0, 1)
	p.waitReady()
	for round := range uint64(2) {
		away, there := int(round), 1-int(round)
		stood := s.likesOf(away, int32(away))
		s.proxies[away].SetUnavailable(true)
		s.like(100*(round+1), 5)
		s.waitCounted(there)
		parked := func(shard int) []string {
			of := "like-updates/%d parked"
			return []string{fmt.Sprintf(of, shard), fmt.Sprintf(of, shard+2), fmt.Sprintf("shard %d of 2", shard)}
		}
		p.waitParked(parked(away)...)
		for _, word := range append(parked(there), "group latest-like-action") {
			require.NotContains(t, p.Ready().Error(), word)
		}
		require.Equal(t, 2., p.gauge("kudos_mysql_parked_partitions", fmt.Sprint(away)))
		require.Zero(t, p.gauge("kudos_mysql_parked_partitions", fmt.Sprint(there)))
		require.Equal(t, 2., p.gauge("kudos_parked_partitions", schema.GroupApply, "unavailable"))
		require.Equal(t, stood, s.likesOf(away, int32(away)))
		s.proxies[away].SetUnavailable(false)
		s.waitCounted(0, 1)
		p.waitReady()
		require.Zero(t, p.gauge("kudos_mysql_parked_partitions", fmt.Sprint(away)))
		s.requireApart()
	}
	p.waitIdle() // the last commit is counted, too
	require.Equal(t, p.metric("kudos_mysql_transactions_total"),
		p.metric("kudos_mysql_commit_seconds", "0")+p.metric("kudos_mysql_commit_seconds", "1"))
	require.Positive(t, p.metric("kudos_mysql_commit_seconds", "1"))
}

// A server is unavailable during the check and then is another one: its partitions park, and nothing is counted there.
func TestReplacedServerParks(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 2)
	config := s.mysql
	s.mysql.DSN = config.Shards[0]
	again := s.throughProxy() // to the first server, at another address
	s.mysql.DSN, s.mysql.Shards = "", []string{config.Shards[0], s.mysql.DSN}
	again.SetUnavailable(true)
	p := s.run()
	s.like(1, 10)
	s.waitCounted(0)
	p.waitParked("like-updates/1 parked", "like-updates/3 parked", "shard 1 of 2")
	again.SetUnavailable(false)
	p.waitParked("like-updates/1 parked", "this database is shard 0 of 2, but the settings say that it is shard 1 of 2",
		"action: "+sql.ShardAction)
	s.waitFor("both to park with that cause", func() (bool, any) {
		n := p.gauge("kudos_parked_partitions", schema.GroupApply, string(stream.CauseMySQL))
		return n == 2, n
	})
	s.like(100, 5)
	s.waitCounted(0)
	for _, partition := range []int32{1, 3} {
		require.Zero(t, s.likesOf(0, partition))
		require.Zero(t, s.positionsOf(0, partition))
	}
}
