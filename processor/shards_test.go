package processor_test

import (
	"context"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/ops/topics"
	"kudos/processor"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
)

// sharded is a system whose partitions are divided among databases, each behind a proxy.
type sharded struct {
	*system
	dbs     []*sqlx.DB
	proxies []*proxy
	users   map[int32]int64 // who like the post of each partition
}

func newSharded(t *testing.T, shards int) *sharded {
	s := &sharded{system: newBroker(t), users: map[int32]int64{}}
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
	_, err := topics.Apply(t.Context(), s.kafka, schema.Layout{Partitions: partitions}, 1, s.log)
	require.NoError(t, err)
	return s
}

func (s *sharded) like(from, n uint64) {
	s.t.Helper()
	s.produce(likes(from, n)...)
	for p := range int32(partitions) {
		s.users[p] += int64(n)
	}
}

// likesOf is what a shard has for the post of a partition; 0 if it has no row.
func (s *sharded) likesOf(shard int, p int32) (n int64) {
	s.t.Helper()
	require.NoError(s.t, s.dbs[shard].Get(&n, "SELECT COALESCE(SUM(`count`), 0) FROM like_count WHERE post_id = ?", postIn(p)))
	return n
}

// waitCounted waits until the partitions of these shards are counted where they belong.
func (s *sharded) waitCounted(shards ...int) {
	s.t.Helper()
	s.waitFor("the likes of shards to be counted", func() (bool, any) {
		now := map[int32]int64{}
		all := true
		for _, shard := range shards {
			for p := int32(shard); p < partitions; p += int32(len(s.dbs)) {
				now[p] = s.likesOf(shard, p)
				all = all && now[p] == s.users[p]
			}
		}
		return all, now
	})
}

// requireApart wants each shard to have rows of its own partitions and of no other.
func (s *sharded) requireApart() {
	s.t.Helper()
	for shard := range s.dbs {
		for p := range int32(partitions) {
			var rows int
			require.NoError(s.t, s.dbs[shard].Get(&rows, "SELECT COUNT(*) FROM applied_offset WHERE partition_id = ?", p))
			own := int(p)%len(s.dbs) == shard
			require.Equal(s.t, own, rows == 1, "position of partition %d at shard %d", p, shard)
			if !own {
				require.Zero(s.t, s.likesOf(shard, p), "post of partition %d at shard %d", p, shard)
			}
		}
	}
}

// gauge is the value of a gauge with these label values.
func (p *instance) gauge(name string, labels ...string) (value float64) {
	p.s.t.Helper()
	families, err := p.reg.Gather()
	require.NoError(p.s.t, err)
	found := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetValue()] = true
			}
			all := f.GetName() == name
			for _, l := range labels {
				all = all && has[l]
			}
			if all {
				value, found = m.GetGauge().GetValue(), found+1
			}
		}
	}
	require.Equal(p.s.t, 1, found, "%s of %v", name, labels)
	return value
}

// One server that is away parks its own partitions, of which readiness and metrics tell, and no other's.
func TestAServerThatIsAwayParksItsOwnPartitionsOnly(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 2)
	p := s.run()
	s.like(1, 10)
	s.waitCounted(0, 1)
	p.waitReady()
	for round := range uint64(2) {
		away, there := int(round), 1-int(round)
		stood := s.likesOf(away, int32(away))
		s.proxies[away].SetAway(true)
		s.like(100*(round+1), 5)
		s.waitCounted(there)
		name := []string{"shard 0 of 2", "shard 1 of 2"}
		mine, others := []string{"like-updates/0 parked", "like-updates/2 parked"}, []string{"like-updates/1 parked", "like-updates/3 parked"}
		if away == 1 {
			mine, others = others, mine
		}
		p.waitParked(append(mine, name[away])...)
		for _, word := range append(others, name[there], "group latest-like-action") {
			require.NotContains(t, p.Ready().Error(), word)
		}
		require.Equal(t, 2., p.gauge("kudos_mysql_parked_partitions", []string{"0", "1"}[away]))
		require.Zero(t, p.gauge("kudos_mysql_parked_partitions", []string{"0", "1"}[there]))
		require.Equal(t, 2., p.gauge("kudos_parked_partitions", schema.GroupApply, "unavailable"))
		require.Equal(t, stood, s.likesOf(away, int32(away)))
		s.proxies[away].SetAway(false)
		s.waitCounted(0, 1)
		p.waitReady()
		require.Zero(t, p.gauge("kudos_mysql_parked_partitions", []string{"0", "1"}[away]))
		s.requireApart()
	}
	p.waitIdle() // the last commit is counted, too
	require.Equal(t, p.metric("kudos_mysql_transactions_total"), p.metric("kudos_mysql_commit_seconds", "0")+p.metric("kudos_mysql_commit_seconds", "1"))
	require.Positive(t, p.metric("kudos_mysql_commit_seconds", "1"))
}

// The same servers in another order would count what is counted at another one.
func TestAReorderedListOfShardsEndsTheProcessor(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 2)
	s.mysql.Shards[0], s.mysql.Shards[1] = s.mysql.Shards[1], s.mysql.Shards[0]
	store, err := sql.Open(s.mysql, s.log)
	require.NoError(t, err)
	defer store.Close()
	o := processor.DefaultOptions()
	o.StateDir = t.TempDir()
	p, err := processor.New(o, s.kafka, store, s.log, prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.like(1, 1)
	err = p.Run(ctx)
	var other *sql.ShardError
	require.ErrorAs(t, err, &other)
	require.ErrorContains(t, err, "this database is shard 1 of 2, but the settings name it as shard 0 of 2")
	for _, db := range s.dbs {
		var rows int
		require.NoError(t, db.Get(&rows, "SELECT COUNT(*) FROM applied_offset"))
		require.Zero(t, rows)
	}
}

// A server that was away when the processor looked, and then is another one: its partitions park, and nothing is counted there.
func TestAServerThatComesBackAsAnotherOneParks(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 2)
	config := s.mysql
	s.mysql.DSN = config.Shards[0]
	again := s.throughProxy() // to the first one, by another address
	s.mysql.DSN, s.mysql.Shards = "", []string{config.Shards[0], s.mysql.DSN}
	again.SetAway(true)
	p := s.run()
	s.like(1, 10)
	s.waitCounted(0)
	p.waitParked("like-updates/1 parked", "like-updates/3 parked", "shard 1 of 2")
	again.SetAway(false)
	p.waitParked("like-updates/1 parked", "this database is shard 0 of 2, but the settings name it as shard 1 of 2", "remedy: "+sql.ShardRemedy)
	s.waitFor("both to have that cause", func() (bool, any) {
		n := p.gauge("kudos_parked_partitions", schema.GroupApply, string(stream.CauseMySQL))
		return n == 2, n
	})
	s.like(100, 5)
	s.waitCounted(0)
	for _, partition := range []int32{1, 3} {
		require.Zero(t, s.likesOf(0, partition))
		var rows int
		require.NoError(t, s.dbs[0].Get(&rows, "SELECT COUNT(*) FROM applied_offset WHERE partition_id = ?", partition))
		require.Zero(t, rows)
	}
}
