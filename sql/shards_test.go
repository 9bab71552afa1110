package sql

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// sharded are options of databases that share the partitions, in this order.
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

// onEachPair runs test on two empty databases of each server.
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
	require.True(t, Shard{}.Has(17), "the only one has all")
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
	o := sharded(noServer(t), noServer(t), noServer(t))
	s := openShards(t, o)
	for partition := range int32(10) {
		require.Equal(t, partition%3, s.Of(partition).Shard().Index)
		require.True(t, s.Of(partition).Shard().Has(partition))
	}
}

func TestShardsAreNamedOnce(t *testing.T) {
	const a, b = "root:hunter2@tcp(a:3306)/kudos", "kudos:hunter2@tcp(b:3306)/kudos"
	for name, c := range map[string]struct {
		dsn    string
		shards []string
		want   []string
	}{
		"good":             {"", []string{a, b}, nil},
		"one":              {"", []string{a}, nil},
		"both":             {a, []string{a, b}, []string{"dsn and shards are both given: give one"}},
		"no DSN":           {"", []string{a, "root:hunter2@b"}, []string{"shards[1]: dsn cannot be read"}},
		"an empty one":     {"", []string{"", b}, []string{"shards[0]: dsn is empty"}},
		"no database":      {"", []string{"root:hunter2@tcp(a:3306)/", ""}, []string{"shards[0]: dsn names no database", "shards[1]: dsn is empty"}},
		"the same twice":   {"", []string{a, b, "other:hunter2@tcp(a:3306)/kudos"}, []string{"shards[0] and shards[2] are the same database, a:3306/kudos"}},
		"another database": {"", []string{a, "root:hunter2@tcp(a:3306)/more"}, nil},
		"far too many":     {"", make([]string, maxShards+1), []string{"shards has 1025 databases; at most 1024"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.DSN, o.Shards = c.dsn, c.shards
			err := o.Validate()
			if c.want == nil {
				require.NoError(t, err)
			}
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
				require.NotContains(t, err.Error(), "hunter2")
				_, openErr := Open(o, discardLog())
				require.ErrorContains(t, openErr, want)
				require.ErrorContains(t, Migrate(t.Context(), o, discardLog()), want)
			}
			var line bytes.Buffer
			slog.New(slog.NewTextHandler(&line, nil)).Info("starting", "mysql", o)
			require.NotContains(t, line.String(), "hunter2")
		})
	}
	o := DefaultOptions()
	o.Shards = []string{a, b}
	for want, migrate := range map[string]Options{
		"migrate_dsn is of one database":                                                         {MigrateDSN: a},
		"migrate_dsn and migrate_shards are both":                                                {MigrateDSN: a, MigrateShards: []string{a, b}},
		"shards names 2 databases, and migrate_shar":                                             {MigrateShards: []string{a}},
		"migrate_shards[1]: dsn cannot be read":                                                  {MigrateShards: []string{a, "kudos:hunter2@b"}},
		"migrate_shards[0] is shards[1], b:3306/kudos: they must be the same, in the same order": {MigrateShards: []string{"ddl:hunter2@tcp(b)/kudos", "ddl:hunter2@tcp(a)/kudos"}},
	} {
		bad := o
		bad.MigrateDSN, bad.MigrateShards = migrate.MigrateDSN, migrate.MigrateShards
		require.ErrorContains(t, bad.Validate(), want)
		require.NotContains(t, bad.Validate().Error(), "hunter2")
	}
	bad := o
	bad.DSN, bad.Shards, bad.MigrateShards = a, nil, []string{a, b}
	require.ErrorContains(t, bad.Validate(), "migrate_shards is of several databases, and dsn is of one")
	o.MigrateShards = []string{"ddl:hunter2@tcp(a-admin)/kudos", "ddl:hunter2@tcp(b)/kudos"}
	require.NoError(t, o.Validate(), "another address of it")
	o.MigrateShards = nil
	bad.DSN = ""
	require.NoError(t, bad.ValidateOptional())
	require.Equal(t, bad.MigrateShards, bad.OfMigrations().Shards)
	require.NoError(t, bad.OfMigrations().Validate())
	require.Equal(t, o, o.OfMigrations())
	var names []string
	for _, store := range openShards(t, o).All() {
		names = append(names, store.String())
	}
	require.Equal(t, []string{"a:3306/kudos (shard 0 of 2)", "b:3306/kudos (shard 1 of 2)"}, names)
	o.Shards, o.DSN = nil, a
	require.Equal(t, "a:3306/kudos", openShards(t, o).Of(7).String())
}

// Each database records its place once. With any other list nothing is changed, and nothing goes on.
func TestAnotherListOfShardsIsRefused(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		right := sharded(a, b)
		require.NoError(t, Migrate(t.Context(), right, discardLog()))
		require.Equal(t, []string{"0 of 2", "1 of 2"}, []string{a.shard(t), b.shard(t)})
		require.NoError(t, Migrate(t.Context(), right, discardLog()), "again")
		shards := openShards(t, right)
		require.NoError(t, shards.CheckShards(t.Context()))
		for partition := range likesTopic().Partitions {
			_, err := shards.Of(partition).Position(t.Context(), likesTopic(), partition)
			require.NoError(t, err)
		}
		alone := a.options
		for name, c := range map[string]struct {
			options Options
			says    string
		}{
			"reordered":  {sharded(b, a), "this database is shard 1 of 2, but the settings name it as shard 0 of 2"},
			"one alone":  {alone, "this database is shard 0 of 2, but the settings name it as shard 0 of 1"},
			"one more":   {sharded(a, b, noServer(t)), "this database is shard 0 of 2, but the settings name it as shard 0 of 3"},
			"one before": {sharded(noServer(t), a, b), "this database is shard 1 of 2, but the settings name it as shard 2 of 3"},
		} {
			t.Run(name, func(t *testing.T) {
				other := openShards(t, c.options)
				err := other.CheckShards(t.Context())
				var wrong *ShardError
				require.ErrorAs(t, err, &wrong)
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

// Where the list is wrong in one place, no other database is told its place by it.
func TestShardsAreToldTogether(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		require.NoError(t, Migrate(t.Context(), a.options, discardLog()))
		require.Equal(t, "0 of 1", a.shard(t))
		require.ErrorContains(t, Migrate(t.Context(), sharded(a, b), discardLog()), "this database is shard 0 of 1")
		require.Empty(t, b.shard(t))
		require.Error(t, Migrate(t.Context(), sharded(b, noServer(t)), discardLog()))
		require.Empty(t, b.shard(t))
		var other *ShardError
		require.ErrorAs(t, openShards(t, sharded(a, b)).Of(0).tell(t.Context()), &other, "another list was first")
		require.NoError(t, openShards(t, a.options).Of(0).tell(t.Context()), "the same list was first")
		require.Equal(t, "0 of 1", a.shard(t))
		_, err := openShards(t, b.options).Of(0).Position(t.Context(), likesTopic(), 0)
		require.ErrorIs(t, err, ErrShardMissing)
		require.ErrorContains(t, err, "run `kudos migrate`")
	})
}

// Two names of one database are refused before it is told which one it is: it would be neither.
func TestADatabaseThatIsNamedTwice(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		twice := a
		twice.options.DSN = strings.Replace(a.options.DSN, "127.0.0.1", "localhost", 1)
		if twice.options.DSN == a.options.DSN {
			t.Skip("the server is not on this machine")
		}
		require.NoError(t, sharded(a, b, twice).Validate(), "the text does not tell")
		err := Migrate(t.Context(), sharded(a, b, twice), discardLog())
		require.ErrorContains(t, err, "(shard 2 of 3) is a database that mysql.shards has named before, by another name of its server: name each once")
		require.Empty(t, a.shard(t))
		require.Empty(t, b.shard(t))
		require.NoError(t, Migrate(t.Context(), sharded(a, b), discardLog()))
	})
}

// A database that counted before there was a record is the only one there is.
func TestADatabaseFromBeforeThereWereShards(t *testing.T) {
	for name, used := range map[string]func(t *testing.T, s *Store){
		"of positions": func(*testing.T, *Store) {},
		"of counts": func(t *testing.T, s *Store) {
			_, err := s.db.Exec("DELETE FROM applied_offset")
			require.NoError(t, err)
			_, err = s.db.Exec("INSERT INTO like_count (post_id, `count`, dislike_count) VALUES (1, 1, 0)")
			require.NoError(t, err)
		},
		"of hours": func(t *testing.T, s *Store) {
			_, err := s.db.Exec("DELETE FROM applied_offset")
			require.NoError(t, err)
			_, err = s.db.Exec("INSERT INTO like_hourly VALUES ('2026-07-01', 'DE', 0, 1, 0)")
			require.NoError(t, err)
		},
		"of rankings": func(t *testing.T, s *Store) {
			_, err := s.RankingPosition(t.Context(), rankingsTopic(), 0)
			require.NoError(t, err)
			_, err = s.db.Exec("DELETE FROM applied_offset")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEachPair(t, func(t *testing.T, a, b database) {
				s := a.startedStore(t)
				used(t, s)
				raw := a.raw(t)
				raw.MustExec("DROP TABLE kudos_shard")
				raw.MustExec("DELETE FROM " + versionTable + " WHERE version_id = 7")
				_, err := s.Position(t.Context(), likesTopic(), 0)
				require.ErrorContains(t, err, "run `kudos migrate`")
				require.ErrorContains(t, Migrate(t.Context(), sharded(a, b), discardLog()), "this database is shard 0 of 1, but the settings name it as shard 0 of 2")
				require.Empty(t, a.shard(t))
				require.NoError(t, Migrate(t.Context(), a.options, discardLog()))
				require.Equal(t, "0 of 1", a.shard(t))
			})
		})
	}
}

// Each shard has the positions of its own partitions, and takes nothing of others'.
func TestAShardHasItsOwnPartitionsOnly(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		o := sharded(a, b)
		require.NoError(t, Migrate(t.Context(), o, discardLog()))
		shards := openShards(t, o)
		for partition := range likesTopic().Partitions {
			own, other := shards.Of(partition), shards.Of(partition+1)
			_, err := own.Position(t.Context(), likesTopic(), partition)
			require.NoError(t, err)
			require.NoError(t, own.Apply(t.Context(), likesTopic(), partition, start, at(1, 1), []CountDelta{{PostID: uint64(partition), Likes: 1}}, []HourDelta{{hourOf(int64(partition)), "DE", 1, 0}, {hourOf(9), "DE", 1, 2}}))
			_, err = own.RankingPosition(t.Context(), rankingsTopic(), partition)
			require.NoError(t, err)

			_, err = other.Position(t.Context(), likesTopic(), partition)
			require.ErrorContains(t, err, "is none of shard")
			_, err = other.PeekPosition(t.Context(), likesTopic(), partition)
			require.ErrorContains(t, err, "is none of shard")
			require.ErrorContains(t, other.Apply(t.Context(), likesTopic(), partition, start, at(1, 1), oneLike, nil), "is none of shard")
			_, err = other.RankingPosition(t.Context(), rankingsTopic(), partition)
			require.ErrorContains(t, err, "is none of shard")
			require.ErrorContains(t, other.ReplaceRankings(t.Context(), rankingsTopic(), partition, start, offset(1), nil), "is none of shard")
		}
		for i, d := range []database{a, b} {
			for _, table := range []string{"applied_offset", "trending_position"} {
				require.Equal(t, []string{"2", "0"}, []string{
					d.scalar(t, "SELECT COUNT(*) FROM "+table),
					d.scalar(t, "SELECT COUNT(*) FROM "+table+" WHERE partition_id % 2 <> ?", i),
				}, table)
			}
			require.Equal(t, map[uint64]postCounts{uint64(i): {1, 0}, uint64(i + 2): {1, 0}}, d.counts(t))
		}

		hours, err := shards.LikesByHour(t.Context(), schema.Global, timeOf(0), timeOf(24))
		require.NoError(t, err)
		require.Equal(t, []HourLikes{{timeOf(0), 1, 0}, {timeOf(1), 1, 0}, {timeOf(2), 1, 0}, {timeOf(3), 1, 0}, {timeOf(9), 4, 8}}, hours)
		require.NoError(t, shards.All()[1].Close())
		_, err = shards.LikesByHour(t.Context(), schema.Global, timeOf(0), timeOf(24))
		require.Error(t, err, "a part of the sum would be wrong")
	})
}

// A rebuild of a shard sets the positions of its own partitions.
func TestShadowOfAShard(t *testing.T) {
	onRealServers(t, func(t *testing.T, a database) {
		b := realDatabase(t, a.options.DSN)
		o := sharded(a, b)
		require.NoError(t, Migrate(t.Context(), o, discardLog()))
		for _, one := range o.Each() { // on the same server, too
			h, err := NewShadow(t.Context(), one, discardLog())
			require.NoError(t, err)
			require.NoError(t, h.SetPositions(t.Context(), likesTopic(), []Position{at(1, 1), at(2, 2), at(3, 3), at(4, 4)}))
			require.NoError(t, h.Swap(t.Context(), true))
			require.NoError(t, h.Close())
		}
		require.Equal(t, "1,3", a.scalar(t, "SELECT GROUP_CONCAT(next_offset ORDER BY partition_id) FROM applied_offset"))
		require.Equal(t, "2,4", b.scalar(t, "SELECT GROUP_CONCAT(next_offset ORDER BY partition_id) FROM applied_offset"))
	})
}

// What does not answer at the start, or has no tables yet, is no other list.
func TestShardsThatCannotBeAskedArePassedOver(t *testing.T) {
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
	require.ErrorContains(t, err, "this database is shard 1 of 3, but the settings name it as shard 2 of 3")
	require.NotContains(t, strings.ToLower(err.Error()), "mysql.sock")
}
