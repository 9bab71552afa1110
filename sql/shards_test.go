package sql

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func sharded(databases ...database) Options {
	o := databases[0].options
	for _, d := range databases {
		o.Shards = append(o.Shards, d.options.DSN)
		o.LockWaitTimeout = min(o.LockWaitTimeout, d.options.LockWaitTimeout)
	}
	o.DSN = ""
	return o
}

func openShards(t testing.TB, o Options) *Shards {
	t.Helper()
	s, err := Open(o, discardLog())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func migratedShards(t testing.TB, a, b database) *Shards {
	t.Helper()
	o := sharded(a, b)
	require.NoError(t, Migrate(t.Context(), o, discardLog()))
	return openShards(t, o)
}

func onEachPair(t *testing.T, test func(t *testing.T, a, b database)) {
	t.Run("embedded", func(t *testing.T) { test(t, embeddedDatabase(t), embeddedDatabase(t)) })
	for _, s := range realServers() {
		t.Run(s.name, func(t *testing.T) { test(t, realDatabase(t, s.dsn(t)), realDatabase(t, s.dsn(t))) })
	}
}

func (d database) shard(t testing.TB) string {
	t.Helper()
	return d.scalar(t, "SELECT MAX(CONCAT(shard, ' of ', shards)) FROM kudos_shard")
}

func TestEachPartitionHasOneShard(t *testing.T) {
	require.True(t, Shard{}.Has(17), "a single shard has all partitions")
	require.Equal(t, "shard 0 of 1", Shard{}.String())
	for shards := int32(1); shards < 9; shards++ {
		for partition := range int32(40) {
			var has []int32
			for i := range shards {
				if (Shard{i, shards}).Has(partition) {
					has = append(has, i)
				}
			}
			require.Equal(t, []int32{partition % shards}, has)
		}
	}
	s := openShards(t, sharded(noServer(t), noServer(t), noServer(t)))
	for partition := range int32(10) {
		require.Equal(t, partition%3, s.Of(partition).Shard().Index)
		require.True(t, s.Of(partition).Shard().Has(partition))
	}
}

func TestShardsAreNamedOnce(t *testing.T) {
	const a, b = "root:hunter2@tcp(a:3306)/kudos", "kudos:hunter2@tcp(b:3306)/kudos"
	const ddlA, ddlB = "ddl:hunter2@tcp(a)/kudos", "ddl:hunter2@tcp(b)/kudos"
	both := []string{a, b}
	for name, c := range map[string]struct {
		dsn     string
		shards  []string
		oneDSN  string
		migrate []string
		wants   string // separated by semicolons
	}{
		"two shards":      {shards: both},
		"one shard":       {shards: []string{a}},
		"one server":      {shards: []string{a, "root:hunter2@tcp(a:3306)/more"}},
		"another address": {shards: both, migrate: []string{"ddl:hunter2@tcp(a-admin)/kudos", ddlB}},
		"dsn and shards":  {dsn: a, shards: both, wants: "dsn and shards are both set: set only one"},
		"malformed DSN":   {shards: []string{a, "root:hunter2@b"}, wants: "shards[1]: dsn cannot be parsed"},
		"empty DSN":       {shards: []string{"", b}, wants: "shards[0]: dsn is empty"},
		"no database name": {shards: []string{"root:hunter2@tcp(a:3306)/", ""},
			wants: "shards[0]: dsn names no database;shards[1]: dsn is empty"},
		"duplicate database": {shards: []string{a, b, "other:hunter2@tcp(a:3306)/kudos"},
			wants: "shards[0] and shards[2] are the same database, a:3306/kudos"},
		"too many shards": {shards: make([]string, maxShards+1), wants: "shards lists 1025 databases; at most 1024"},
		"one migrate_dsn": {shards: both, oneDSN: a, wants: "migrate_dsn is one database"},
		"migrate_dsn and migrate_shards": {shards: both, oneDSN: a, migrate: both,
			wants: "migrate_dsn and migrate_shards are both"},
		"fewer migrate DSNs": {shards: both, migrate: []string{a}, wants: "shards lists 2 databases, but migrate_shar"},
		"malformed DSN in migrate_shards": {shards: both, migrate: []string{a, "kudos:hunter2@b"},
			wants: "migrate_shards[1]: dsn cannot be parsed"},
		"migrate_shards in another order": {shards: both, migrate: []string{ddlB, ddlA},
			wants: "migrate_shards[0] is shards[1], b:3306/kudos: they must be the same, in the same order"},
		"migrate_shards for one dsn": {dsn: a, migrate: both,
			wants: "migrate_shards lists several databases, but dsn is one"},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.DSN, o.Shards, o.MigrateDSN, o.MigrateShards = c.dsn, c.shards, c.oneDSN, c.migrate
			var line bytes.Buffer
			textLog(&line).Info("starting", "mysql", o)
			require.NotContains(t, line.String(), "hunter2")
			if c.wants == "" {
				require.NoError(t, o.Validate())
				return
			}
			_, openErr := Open(o, discardLog())
			for _, err := range []error{o.Validate(), openErr, Migrate(t.Context(), o, discardLog())} {
				for want := range strings.SplitSeq(c.wants, ";") {
					require.ErrorContains(t, err, want)
				}
				require.NotContains(t, err.Error(), "hunter2")
			}
		})
	}
}

func TestDatabasesOfMigrations(t *testing.T) {
	a, b := "root:hunter2@tcp(a:3306)/kudos", "kudos:hunter2@tcp(b:3306)/kudos"
	o := DefaultOptions()
	o.MigrateShards = []string{a, b}
	require.NoError(t, o.ValidateOptional())
	require.Equal(t, o.MigrateShards, o.OfMigrations().Shards)
	require.NoError(t, o.OfMigrations().Validate())
	o.Shards, o.MigrateShards = []string{a, b}, nil
	require.Equal(t, o, o.OfMigrations())
	shards := openShards(t, o)
	require.Equal(t, "a:3306/kudos (shard 0 of 2)", shards.Of(0).String())
	require.Equal(t, "b:3306/kudos (shard 1 of 2)", shards.Of(1).String())
	o.Shards, o.DSN = nil, a
	require.Equal(t, "a:3306/kudos", openShards(t, o).Of(7).String())
}

func TestOtherShardsAreRejected(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		shards := migratedShards(t, a, b)
		require.Equal(t, []string{"0 of 2", "1 of 2"}, []string{a.shard(t), b.shard(t)})
		require.NoError(t, Migrate(t.Context(), sharded(a, b), discardLog()), "second run")
		require.NoError(t, shards.CheckShards(t.Context()))
		for partition := range likesTopic().Partitions {
			_, err := shards.Of(partition).Position(t.Context(), likesTopic(), partition)
			require.NoError(t, err)
		}
		for name, c := range map[string]struct {
			options Options
			says    string
		}{
			"reordered": {sharded(b, a), "this database is shard 1 of 2, but the settings say that it is shard 0 of 2"},
			"only one":  {a.options, "this database is shard 0 of 2, but the settings say that it is shard 0 of 1"},
			"appended": {sharded(a, b, noServer(t)),
				"this database is shard 0 of 2, but the settings say that it is shard 0 of 3"},
			"prepended": {sharded(noServer(t), a, b),
				"this database is shard 1 of 2, but the settings say that it is shard 2 of 3"},
		} {
			t.Run(name, func(t *testing.T) {
				other := openShards(t, c.options)
				err := other.CheckShards(t.Context())
				require.ErrorAs(t, err, new(*ShardError))
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), "hunter2")
				require.False(t, IsTransient(err))
				require.Error(t, Migrate(t.Context(), c.options, discardLog()))
				for _, store := range other.All() {
					partition := store.Shard().Index
					_, err := store.Position(t.Context(), likesTopic(), partition)
					require.Error(t, err)
					require.NotErrorIs(t, err, ErrPositionMissing)
					_, err = store.RankingPosition(t.Context(), rankingsTopic(), partition)
					require.Error(t, err)
					require.Error(t, store.Snapshot(t.Context(), func(*Snapshot) error { return nil }))
					_, err = store.LikesByHour(t.Context(), schema.Global, timeOf(0), timeOf(24))
					require.Error(t, err)
				}
				for _, one := range c.options.Each() {
					_, err := NewShadow(t.Context(), one, discardLog())
					require.Error(t, err)
				}
			})
		}
		require.Equal(t, []string{"0 of 2", "1 of 2"}, []string{a.shard(t), b.shard(t)})
		for _, d := range []database{a, b} {
			require.Equal(t, "2", d.scalar(t, "SELECT COUNT(*) FROM applied_offset"))
			require.Equal(t, "0", d.scalar(t, "SELECT COUNT(*) FROM trending_position"))
		}
	})
}

// If the list is wrong in one place, no other database records its shard from it.
func TestShardErrorsAreReportedTogether(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		require.NoError(t, Migrate(t.Context(), a.options, discardLog()))
		require.Equal(t, "0 of 1", a.shard(t))
		require.ErrorContains(t, Migrate(t.Context(), sharded(a, b), discardLog()), "this database is shard 0 of 1")
		require.Empty(t, b.shard(t))
		require.Error(t, Migrate(t.Context(), sharded(b, noServer(t)), discardLog()))
		require.Empty(t, b.shard(t))
		require.ErrorAs(t, openShards(t, sharded(a, b)).Of(0).recordShard(t.Context()), new(*ShardError),
			"another list is recorded")
		require.NoError(t, openShards(t, a.options).Of(0).recordShard(t.Context()), "the same list is recorded")
		require.Equal(t, "0 of 1", a.shard(t))
		_, err := openShards(t, b.options).Of(0).Position(t.Context(), likesTopic(), 0)
		require.ErrorIs(t, err, ErrShardMissing)
		require.ErrorContains(t, err, "run `kudos migrate`")
	})
}

func TestDatabaseNamedTwiceIsRejected(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		twice := a
		twice.options.DSN = strings.Replace(a.options.DSN, "127.0.0.1", "localhost", 1)
		if twice.options.DSN == a.options.DSN {
			t.Skip("the server is not on this machine")
		}
		require.NoError(t, sharded(a, b, twice).Validate(), "the DSNs alone do not show it")
		err := Migrate(t.Context(), sharded(a, b, twice), discardLog())
		require.ErrorContains(t, err, "(shard 2 of 3) is a database that mysql.shards already lists, under another "+
			"name of its server: list each once")
		require.Empty(t, a.shard(t))
		require.Empty(t, b.shard(t))
		require.NoError(t, Migrate(t.Context(), sharded(a, b), discardLog()))
	})
}

// A database with counts but without a record was the only one, so it cannot become one of several.
func TestDatabaseFromBeforeSharding(t *testing.T) {
	for name, used := range map[string][]string{
		"with positions": {},
		"with counts": {"DELETE FROM applied_offset",
			"INSERT INTO like_count (post_id, `count`, dislike_count) VALUES (1, 1, 0)"},
		"with hours": {"DELETE FROM applied_offset", "INSERT INTO like_hourly VALUES ('2026-07-01', 'DE', 0, 1, 0)"},
		"with rankings": {"DELETE FROM applied_offset",
			"INSERT INTO trending_position (topic, partition_id, topic_id, partitions, next_offset, leader_epoch)" +
				" VALUES ('trending', 0, '', 4, 0, 0)"},
	} {
		t.Run(name, func(t *testing.T) {
			onEachPair(t, func(t *testing.T, a, b database) {
				s := a.startedStore(t)
				raw := a.raw(t)
				for _, statement := range append(used, "DROP TABLE kudos_shard",
					"DELETE FROM "+versionTable+" WHERE version_id = 7") {
					raw.MustExec(statement)
				}
				_, err := s.Position(t.Context(), likesTopic(), 0)
				require.ErrorContains(t, err, "run `kudos migrate`")
				require.ErrorContains(t, Migrate(t.Context(), sharded(a, b), discardLog()),
					"this database is shard 0 of 1, but the settings say that it is shard 0 of 2")
				require.Empty(t, a.shard(t))
				require.NoError(t, Migrate(t.Context(), a.options, discardLog()))
				require.Equal(t, "0 of 1", a.shard(t))
			})
		})
	}
}

func TestShardHasOnlyItsOwnPartitions(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		shards := migratedShards(t, a, b)
		for partition := range likesTopic().Partitions {
			own, other := shards.Of(partition), shards.Of(partition+1)
			requireAt(t, start, (*Store).Position, own, likesTopic(), partition)
			require.NoError(t, own.Apply(t.Context(), likesTopic(), partition, start, at(1, 1),
				[]CountDelta{{PostID: uint64(partition), Likes: 1}}, []HourDelta{{hourOf(int64(partition)), "DE", 1, 0},
					{hourOf(9), "DE", 1, 2}}))
			requireAt(t, start, (*Store).RankingPosition, own, rankingsTopic(), partition)

			const none = "is not in shard"
			for _, read := range []readPosition{(*Store).Position, (*Store).PeekPosition, (*Store).RankingPosition} {
				_, err := read(other, t.Context(), likesTopic(), partition)
				require.ErrorContains(t, err, none)
			}
			for _, f := range followers {
				require.ErrorContains(t, f.apply(t.Context(), other, f.src, partition, start, at(1, 1), 1), none)
			}
		}
		for i, d := range []database{a, b} {
			for _, table := range []string{"applied_offset", "trending_position"} {
				require.Equal(t, fmt.Sprint(i, i+2), d.partitions(t, table), table)
			}
			require.Equal(t, map[string]string{fmt.Sprint(i): "1 0", fmt.Sprint(i + 2): "1 0"}, d.counts(t))
		}

		hours, err := shards.LikesByHour(t.Context(), schema.Global, timeOf(0), timeOf(24))
		require.NoError(t, err)
		require.Equal(t, []HourLikes{{timeOf(0), 1, 0}, {timeOf(1), 1, 0}, {timeOf(2), 1, 0}, {timeOf(3), 1, 0},
			{timeOf(9), 4, 8}}, hours)
		require.NoError(t, shards.All()[1].Close())
		_, err = shards.LikesByHour(t.Context(), schema.Global, timeOf(0), timeOf(24))
		require.Error(t, err, "a partial sum would be wrong")
	})
}

// A rebuild of a shard sets only the positions of its own partitions.
func TestShadowOfAShard(t *testing.T) {
	onRealServers(t, func(t *testing.T, a database) {
		b := realDatabase(t, a.options.DSN)
		migratedShards(t, a, b)
		for _, one := range sharded(a, b).Each() { // both on the same server
			h, err := NewShadow(t.Context(), one, discardLog())
			require.NoError(t, err)
			require.NoError(t, h.SetPositions(t.Context(), likesTopic(),
				[]Position{at(1, 1), at(2, 2), at(3, 3), at(4, 4)}))
			require.NoError(t, h.Swap(t.Context(), true))
			require.NoError(t, h.Close())
		}
		require.Equal(t, []string{"1,3", "2,4"}, []string{a.offsets(t), b.offsets(t)})
	})
}

// A server that does not answer at startup, or has no tables yet, is not a changed list.
func TestUnavailableShardsAreSkipped(t *testing.T) {
	a, b := embeddedDatabase(t), embeddedDatabase(t)
	o := sharded(a, noServer(t), b)
	o.ConnectTimeout = 2 * time.Second
	require.Error(t, Migrate(t.Context(), o, discardLog()))
	shards := openShards(t, o)
	require.NoError(t, shards.CheckShards(t.Context()))
	_, err := shards.Of(1).Position(t.Context(), likesTopic(), 1)
	require.ErrorContains(t, err, "mysql.sock/kudos (shard 1 of 3)")
	require.NotContains(t, err.Error(), "hunter2")
	require.True(t, IsTransient(err))
	b.raw(t).MustExec("INSERT INTO kudos_shard (id, shard, shards) VALUES (1, 1, 3)")
	err = shards.CheckShards(t.Context())
	require.ErrorContains(t, err, "this database is shard 1 of 3, but the settings say that it is shard 2 of 3")
	require.NotContains(t, strings.ToLower(err.Error()), "mysql.sock")
}

// Added partitions start at 0; existing ones keep their positions and continue.
func TestAddPartitions(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		s, src := migratedShards(t, a, b), likesTopic()
		more := src
		more.Partitions = 7
		require.NoError(t, s.AddPartitions(t.Context(), more), "databases without positions have nothing to add")
		require.Equal(t, "0", a.scalar(t, "SELECT COUNT(*) FROM applied_offset"))
		for _, partition := range []int32{0, 1} { // in both databases
			requireAt(t, start, (*Store).Position, s.Of(partition), src, partition)
		}
		require.NoError(t, s.Of(2).Apply(t.Context(), src, 2, at(0, 0), at(10, 5), oneLike, nil))
		for range 2 { // a run that was interrupted is repeated
			require.NoError(t, s.AddPartitions(t.Context(), more))
			const moved = "applied_offset WHERE partitions = 7"
			require.Equal(t, []string{"0 2 4 6", "1 3 5"}, []string{a.partitions(t, moved), b.partitions(t, moved)})
		}
		_, err := s.Of(2).Position(t.Context(), src, 2)
		var changed *SourceChangedError
		require.ErrorAs(t, err, &changed)
		require.ErrorIs(t, s.Of(2).Apply(t.Context(), src, 2, at(10, 5), at(11, 6), oneLike, nil), ErrPositionMoved,
			"a process with the old partition count must read its position again")
		requireAt(t, at(10, 5), (*Store).Position, s.Of(2), more, 2)
		requireAt(t, start, (*Store).Position, s.Of(6), more, 6)

		require.ErrorAs(t, s.AddPartitions(t.Context(), src), &changed, "fewer partitions than before")
		more.Partitions++
		more.TopicID[0]++
		require.ErrorAs(t, s.AddPartitions(t.Context(), more), &changed, "another log")
		require.Equal(t, "4", a.scalar(t, "SELECT COUNT(*) FROM applied_offset WHERE partitions = 7"))
	})
}
