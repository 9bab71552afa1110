package integration

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// sharded is a system with the counts spread over several database servers.
type sharded struct {
	*system
	servers    []*stack.Database
	processors []*process
	asked      []*process // the running ones, which must be ready
	fresh      uint64     // lowest post of the last likeRecreated
}

func newSharded(t *testing.T, servers, partitions int) *sharded {
	parallel(t, tier.Verify)
	s := &sharded{system: newEmptySystem(t), fresh: 1_000_000}
	s.partitions = partitions
	for range servers {
		server := stack.MariaDBForTest(t, stack.DatabaseOptions{Log: s.log})
		s.servers, s.system.shards = append(s.servers, server), append(s.system.shards, server.NewDatabase(t))
	}
	s.prepare()
	return s
}

// newCounted returns two servers and a processor that has counted a number of events.
func newCounted(t *testing.T, events int) *sharded {
	s := newSharded(t, 2, 4)
	s.startProcessors(1)
	s.toggles(3, events)
	s.drain(time.Minute)
	return s
}

func (s *sharded) startProcessors(n int, args ...string) {
	for range n {
		p := s.processor(fmt.Sprintf("processor-%d", len(s.processors)),
			append([]string{"--set", "processor.park_interval=1s"}, args...)...)
		s.processors, s.asked = append(s.processors, p), append(s.asked, p)
		p.start().waitAlive()
	}
}

func (s *sharded) waitReady() {
	for _, p := range s.asked {
		p.waitReady()
	}
}

// parked returns how many partitions wait for each shard, by the metrics of all processors, and the readiness errors.
func (s *sharded) parked() (parked map[string]float64, said string) {
	parked = map[string]float64{}
	for _, p := range s.asked {
		for _, at := range p.samples("kudos_mysql_parked_partitions", nil) {
			parked[at.labels["shard"]] += at.value
		}
		_, text := p.said("readyz")
		said += text
	}
	return parked, said
}

// waitParked waits until that many partitions of each shard are parked with the cause; it returns the readiness errors.
func (s *sharded) waitParked(first, second int, cause string) (said string) {
	waitSaid(s.t, time.Minute, fmt.Sprintf("shards to park %d and %d partitions", first, second), func() (bool, any) {
		var parked map[string]float64
		parked, said = s.parked()
		return maps.Equal(parked, map[string]float64{"0": float64(first), "1": float64(second)}) &&
			strings.Count(said, cause) >= first+second, said
	})
	return said
}

// likeRecreated likes a new post of each partition, and waits until those of the given shards are counted there.
func (s *sharded) likeRecreated(shards ...int) {
	posts := make([]uint64, s.partitions)
	var events []schema.Event
	s.fresh += 10_000
	for p := range posts {
		posts[p] = postFrom(s.fresh, int32(p), s.partitions)
		events = append(events, likeNow(posts[p], 1))
	}
	s.produce(events...)
	for _, shard := range shards {
		for p := shard; p < s.partitions; p += len(s.dbs) {
			what := fmt.Sprintf("a like in partition %d to be visible in shard %d", p, shard)
			waitFor(s.t, time.Minute, what, func() bool { return countsIn(s.t, s.dbs[shard])[posts[p]].likes == 1 })
		}
	}
}

// requireApart requires each database to have only rows of its own partitions.
func (s *sharded) requireApart() {
	for i, db := range s.dbs {
		var partitions []int32
		require.NoError(s.t, db.Select(&partitions,
			"SELECT partition_id FROM applied_offset UNION SELECT partition_id FROM like_hourly"))
		require.NotEmpty(s.t, partitions)
		for post := range countsIn(s.t, db) {
			partitions = append(partitions, schema.PartitionFor(post, int32(s.partitions)))
		}
		for _, p := range partitions {
			require.Equal(s.t, i, int(p)%len(s.dbs), "partition %d in shard %d", p, i)
		}
	}
}

// One of three servers is killed while likes arrive: the posts of the others are still counted, its own wait, and
// metrics and readiness say so. When it returns, everything is exact.
func TestOneOfSeveralServersIsUnavailable(t *testing.T) {
	s := newSharded(t, 3, 6)
	s.startProcessors(2, "--set", "processor.max_batch=700")
	stop := s.keepToggling(11, 3000, 400)
	waitFor(t, time.Minute, "counts in every database", func() bool {
		return !slices.ContainsFunc(s.dbs, func(db *sqlx.DB) bool { return len(countsIn(t, db)) < 500 })
	})
	for round := range 2 {
		victim := s.servers[1]
		require.NoError(t, victim.Kill())
		said := ""
		areParked := func() bool {
			var parked map[string]float64
			parked, said = s.parked()
			return maps.Equal(parked, map[string]float64{"0": 0, "1": 2, "2": 0}) &&
				strings.Contains(said, "(shard 1 of 3)") &&
				strings.Contains(said, "like-updates/1 parked: ") && strings.Contains(said, "like-updates/4 parked: ")
		}
		waitFor(t, time.Minute, "its partitions, and only these, to park", areParked)
		for range 5 {
			s.likeRecreated(0, 2)
		}
		waitFor(t, time.Minute, "them to be parked, possibly after a rebalance", areParked)
		for _, other := range []string{"like-updates/0 parked", "like-updates/2 parked", "likes/1 parked",
			"likes/4 parked", "shard 0 of 3", "shard 2 of 3"} {
			require.NotContains(t, said, other)
		}
		if round == 0 { // a processor that starts meanwhile can count for the other shards too
			s.processors[0].kill()
			s.likeRecreated(0, 2)
			s.processors[0].start()
			s.likeRecreated(0, 2)
		}
		require.NoError(t, victim.Start(t.Context()))
		s.likeRecreated(0, 1, 2)
		s.waitReady()
	}
	t.Logf("events %d", stop())
	s.drainExact(time.Minute)
	s.requireApart()
	s.auditBoth()
	s.whereSaysSo()
	s.rankingsAreApart()
	s.readerAddsUp()
}

// rankingsAreApart runs a ranker; each ranking must be on the shard of its key and on no other.
func (s *sharded) rankingsAreApart() {
	ranker := s.ranker("ranker", "--set", "ranker.idle_after=1s", "--set", "ranker.allowed_lateness=0s").start()
	waitFor(s.t, time.Minute, "all-time rankings of each region, and some in each shard", func() bool {
		of, everywhere := 0, true
		for i, db := range s.dbs {
			var here []string
			require.NoError(s.t, db.Select(&here, "SELECT DISTINCT CONCAT(region, '/', period) FROM leaderboard "+
				"UNION SELECT DISTINCT CONCAT(region, '/', `window`) FROM trending"))
			everywhere = everywhere && len(here) > 0
			for _, key := range here {
				require.Equal(s.t, i, int(schema.KeyPartition([]byte(key), int32(s.partitions)))%len(s.dbs), key)
				if strings.HasSuffix(key, "/all") {
					of++
				}
			}
		}
		return everywhere && of == 6 // five regions, and global
	})
	ranker.stop()
}

// whereSaysSo compares `kudos where` with the actual location of posts.
func (s *sharded) whereSaysSo() {
	args := []string{"where", "--output", "json"}
	for post := range 40 {
		args = append(args, fmt.Sprint(post+1))
	}
	var places []struct {
		Key, Server string
		Shard       int
	}
	s.report(&places, 0, s.on(args...)...)
	require.Len(s.t, places, 40)
	for _, at := range places {
		rows := queryRow[int](s.t, s.dbs[at.Shard], "SELECT COUNT(*) FROM like_count WHERE post_id = "+at.Key)
		require.Equal(s.t, 1, rows, "post %s on %s", at.Key, at.Server)
		require.Contains(s.t, at.Server, s.servers[at.Shard].Address())
	}
}

// readerAddsUp compares a reader's total likes over time with the sum of the databases.
func (s *sharded) readerAddsUp() {
	r := s.startReader("reader")
	r.waitReady()
	want := int64(0)
	for _, db := range s.dbs {
		likes := queryRow[int64](s.t, db, "SELECT COALESCE(SUM(likes), 0) FROM like_hourly")
		require.Positive(s.t, likes)
		want += likes
	}
	url := fmt.Sprintf("%s/v1/analytics/likes?from=%s&to=%s", r.base,
		time.Now().Add(-48*time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	answer := get[struct{ Points []struct{ Likes int64 } }](s.t, "%s", url)
	for _, p := range answer.Points {
		want -= p.Likes
	}
	require.Zero(s.t, want)
	require.NoError(s.t, s.servers[1].Kill())
	_, err := ask[any](s.t.Context(), http.MethodGet, url+"&region=ZZ", nil, http.StatusServiceUnavailable)
	require.NoError(s.t, err, "a partial sum must not be returned")
	require.NoError(s.t, s.servers[1].Start(s.t.Context()))
}

// With the servers in another order, or another number of them, every command and role refuses, and nothing is counted.
func TestOtherServersAreRejected(t *testing.T) {
	s := newCounted(t, 5000)
	s.processors[0].stop()
	s.toggles(4, 1000)
	before := s.mysqlCounts()
	right := s.shards
	for name, c := range map[string]struct {
		shards []string
		says   string
	}{
		"reordered": {[]string{right[1], right[0]},
			"this database is shard 1 of 2, but the settings say that it is shard 0 of 2"},
		"one missing": {right[1:], "this database is shard 1 of 2, but the settings say that it is shard 0 of 1"},
		"one more": {append(slices.Clone(right), s.servers[0].NewDatabase(t)),
			"this database is shard 0 of 2, but the settings say that it is shard 0 of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			s.shards = c.shards
			for _, command := range []string{"processor", "ranker", "reader", "migrate", "audit", "rebuild --yes"} {
				args := append(strings.Fields(command), "--set", s.mysql(), "--set", "kafka.brokers="+s.brokerList(),
					"--set", "admin.addr=127.0.0.1:0", "--set", "reader.http_addr=127.0.0.1:0")
				for _, role := range []string{"processor", "ranker", "reader"} {
					args = append(args, "--set", role+".state_dir="+t.TempDir())
				}
				out := s.run(args...)
				require.Equal(t, 1, out.code, "kudos %s: %s%s", command, out.stdout, out.stderr)
				require.Contains(t, out.stderr, c.says, command)
			}
		})
	}
	s.shards = right
	requireSame(t, "like_count after rejected commands", before, s.mysqlCounts())
	s.startProcessors(1)
	s.drainExact(time.Minute)
}

// A server that was down at the start returns as another database: its partitions park; the action restores the list.
func TestParkAtAnotherShard(t *testing.T) {
	s := newCounted(t, 5000)
	s.processors[0].stop()
	right := s.shards
	require.NoError(t, s.servers[0].Kill())
	s.asked, s.shards = nil, []string{right[0], strings.Replace(right[0], "127.0.0.1", "localhost", 1)}
	s.startProcessors(1)
	s.toggles(4, 1000)
	s.waitParked(2, 2, "")
	require.NoError(t, s.servers[0].Start(t.Context()))
	said := s.waitParked(0, 2, "this database is shard 0 of 2, but the settings say that it is shard 1 of 2")
	for _, word := range []string{"like-updates/1 parked: ", "like-updates/3 parked: ",
		"action: restore the previous list"} {
		require.Contains(t, said, word)
	}
	s.likeRecreated(0)
	s.processors[1].stop()
	s.requireApart()
	s.shards = right
	s.startProcessors(1)
	s.drainExact(time.Minute)
}

// One of two databases is lost, without a backup, and recreated: the other one keeps counting meanwhile.
func TestOneOfSeveralDatabasesIsLost(t *testing.T) {
	s := newCounted(t, 20_000)
	_, name, _ := strings.Cut(s.shards[1], ")/")
	require.NoError(t, s.servers[1].DropDatabase(t.Context(), name))
	require.NoError(t, s.servers[1].CreateDatabase(t.Context(), name))
	s.waitParked(0, 2, "run `kudos migrate`")
	s.likeRecreated(0)
	s.command("migrate", "--set", s.mysql())
	s.likeRecreated(0, 1)
	s.waitReady()
	s.drainExact(time.Minute)
	s.requireApart()
	s.audit(0, "--deep")
}

// Rows on the wrong server are a difference, and a rebuild removes them, while likes arrive.
func TestAuditAndRebuildOfSeveralServers(t *testing.T) {
	s := newSharded(t, 2, 4)
	s.startProcessors(1, "--set", "processor.max_batch=700")
	stop := s.keepCounting(5)
	post := s.postIn(1)
	s.dbs[0].MustExec("INSERT INTO like_count (post_id, `count`, dislike_count) VALUES (?, 7, 0)", post)
	s.dbs[1].MustExec("INSERT INTO like_hourly VALUES ('2020-01-01 00:00:00', 'DE', 2, 1, 0)")
	s.dbs[1].MustExec("INSERT INTO applied_offset SELECT topic, 2, topic_id, partitions, next_offset, next_seq, " +
		"leader_epoch, updated_at FROM applied_offset WHERE partition_id = 1")
	for _, deep := range [][]string{nil, {"--deep"}} {
		r := s.audit(3, deep...)
		require.Zero(t, r.Posts.Different, "%+v", r.Posts.Rows)
		require.Zero(t, r.Hours.Different, "%+v", r.Hours.Rows)
		require.EqualValues(t, 2, r.Strays.Different)
		require.Equal(t, []strayRow{{"like_count", fmt.Sprintf("post %d", post), 1, 0, 1},
			{"like_hourly", "2020-01-01 00:00 DE", 2, 1, 0}}, r.Strays.Rows)
		require.Len(t, r.Problems, 1)
		require.Contains(t, r.Problems[0], "has a row of partition 2, which belongs to shard 0 of 2")
	}
	require.Contains(t, s.operate("audit").stdout, "2 rows are in a shard that does not own their partition")
	said := s.rebuild()
	for i, server := range s.servers {
		require.Contains(t, said, fmt.Sprintf("rebuilt: MySQL at %s/", server.Address()))
		require.Contains(t, said, fmt.Sprintf("(shard %d of 2)", i))
	}
	s.audit(0, "--deep")
	t.Logf("events %d", stop())
	s.drainExact(time.Minute)
	s.requireApart()
}

// From one server to two while likes arrive: new databases are filled from the stream in parallel to the current one,
// and the processors are restarted with them. docs/scaling.md has the steps.
func TestFromOneServerToTwo(t *testing.T) {
	s := newSharded(t, 1, 4)
	s.shards, s.dsn = nil, s.shards[0]
	s.startProcessors(2, "--set", "processor.max_batch=700")
	stop := s.keepCounting(7)
	old := s.db
	for range 2 {
		s.shards = append(s.shards, s.servers[0].NewDatabase(t))
	}
	s.command("migrate", "--set", s.mysql())
	s.rebuild()
	s.connect()
	s.audit(0, "--deep")
	for _, p := range s.processors { // one after another: some still use the old one meanwhile
		p.stop()
		s.startProcessors(1)
	}
	s.asked = s.asked[2:]
	s.waitReady()
	stood := countsIn(t, old)
	s.likeRecreated(0, 1)
	requireSame(t, "like_count of the old database", stood, countsIn(t, old))
	t.Logf("events %d", stop())
	s.drainExact(time.Minute)
	s.requireApart()
	s.audit(0, "--deep")
}
