package sql

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"kudos/dev/testkit"

	"github.com/stretchr/testify/require"
)

func TestPositionOfAnEmptyDatabaseIsTheStartOfEveryPartition(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.migrated(t).store(t)
		_, err := s.PeekPosition(t.Context(), likesTopic(), 2)
		require.ErrorIs(t, err, ErrPositionMissing, "PeekPosition must not create rows")

		requireAt(t, start, (*Store).Position, s, likesTopic(), 2)
		require.Equal(t, "4", db.scalar(t,
			"SELECT COUNT(*) FROM applied_offset WHERE next_offset = 0 AND next_seq = 0 AND leader_epoch = -1"),
			"all partitions, not only the requested one")
	})
}

func TestPositionIsTheAppliedOffset(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.startedStore(t)
		want := Position{NextOffset: 1 << 62, NextSeq: 1<<64 - 1, LeaderEpoch: 17}
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 1, at(0, 0), want, oneLike, nil))
		for _, read := range []readPosition{(*Store).Position, (*Store).PeekPosition} {
			requireAt(t, want, read, s, likesTopic(), 1)
		}
	})
}

// Each kind of damage leaves traces of earlier counting but not the row. Starting at 0 would count everything twice.
func TestPositionMissing(t *testing.T) {
	damages := map[string][]string{
		"counts remain":        {"DELETE FROM applied_offset"},
		"hourly counts remain": {"DELETE FROM applied_offset", "DELETE FROM like_count"},
		"another partition's row remains": {"DELETE FROM applied_offset WHERE partition_id = 0",
			"DELETE FROM like_count", "DELETE FROM like_hourly"},
		"counts remain, one row is missing": {"DELETE FROM applied_offset WHERE partition_id = 0"},
	}
	inEachCase(t, damages, func(t *testing.T, db database, damage []string) {
		s := db.startedStore(t)
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, oneHour))
		for _, statement := range damage {
			db.raw(t).MustExec(statement)
		}
		rows := db.scalar(t, "SELECT COUNT(*) FROM applied_offset")
		_, err := s.Position(t.Context(), likesTopic(), 0)
		require.ErrorIs(t, err, ErrPositionMissing)
		require.ErrorContains(t, err, "kudos rebuild")
		require.False(t, IsTransient(err))
		require.Equal(t, rows, db.scalar(t, "SELECT COUNT(*) FROM applied_offset"))
	})
}

var otherLogs = map[string]func(*Source){
	"topic recreated":  func(s *Source) { s.TopicID[0]++ },
	"partitions added": func(s *Source) { s.Partitions = 8 },
}

func TestSourceChanged(t *testing.T) {
	inEachCase(t, otherLogs, func(t *testing.T, db database, change func(*Source)) {
		s := db.startedStore(t)
		given := likesTopic()
		change(&given)
		partitions := []int32{0, given.Partitions - 1} // the last may have no row yet
		for _, partition := range partitions {
			_, err := s.Position(t.Context(), given, partition)
			var changed *SourceChangedError
			require.ErrorAs(t, err, &changed)
			require.Equal(t, SourceChangedError{Stored: likesTopic(), Given: given}, *changed)
			require.False(t, IsTransient(err))
			require.ErrorContains(t, err, "cafe0000000000000000000000000001 with 4 partitions")
		}
		_, err := s.PeekPosition(t.Context(), given, 0)
		require.ErrorAs(t, err, new(*SourceChangedError))
	})
}

func TestDamagedTopicID(t *testing.T) {
	db := embeddedDatabase(t)
	s := db.startedStore(t)
	db.raw(t).MustExec("UPDATE applied_offset SET topic_id = 'cafe'")
	_, err := s.Position(t.Context(), likesTopic(), 0)
	require.ErrorContains(t, err, `topic id "cafe"`)
}

// One process sees an empty database and is paused, while another one starts, inserts the rows and counts. Wherever it
// was paused, it must then find the other's position; it must neither report damage nor restart at 0.
func TestTwoProcessesStartAtOnce(t *testing.T) {
	for _, hold := range []string{
		"SELECT EXISTS", "SELECT topic_id, partitions, next_offset", "SELECT topic_id, partitions FROM",
		"INSERT INTO applied_offset", "COMMIT",
	} {
		t.Run(hold, func(t *testing.T) {
			onRealServers(t, func(t *testing.T, direct database) {
				direct = direct.migrated(t)
				proxy, slowly := direct.through(t)
				slow, fast := slowly.store(t), direct.store(t)

				held, release := proxy.hold(t, hold)
				var got Position
				slowDone := inBackground(func() (err error) {
					got, err = slow.Position(t.Context(), likesTopic(), 0)
					return err
				})
				testkit.Receive(t, held, "the statement must be reached")
				locked := hold == "COMMIT" // the slow one holds the row locks, so the fast one has to wait for it
				if locked {
					go release()
				}
				requireAt(t, start, (*Store).Position, fast, likesTopic(), 0)
				if !locked {
					require.NoError(t, fast.Apply(t.Context(), likesTopic(), 0, start, at(10, 5), oneLike, nil))
					release()
				}
				require.NoError(t, slowDone())
				if !locked {
					require.Equal(t, at(10, 5), got, "the position that the other process wrote")
				}
				require.Equal(t, "4", direct.scalar(t, "SELECT COUNT(*) FROM applied_offset"))
			})
		})
	}
}

// readPosition is Position, PeekPosition or RankingPosition.
type readPosition func(*Store, context.Context, Source, int32) (Position, error)

func requireAt(t testing.TB, want Position, read readPosition, s *Store, src Source, partition int32) {
	t.Helper()
	position, err := read(s, t.Context(), src, partition)
	require.NoError(t, err)
	require.Equal(t, want, position)
}

type follower struct {
	src     Source
	table   string
	started func(database, testing.TB, ...func(*Options)) *Store
	read    readPosition
	// apply adds n likes, or writes a ranking of n posts.
	apply func(ctx context.Context, s *Store, src Source, partition int32, from, to Position, n int) error
	rows  func(database, testing.TB) any
}

var followers = map[string]follower{
	"counts": {
		likesTopic(), "applied_offset", database.startedStore, (*Store).Position,
		func(ctx context.Context, s *Store, src Source, partition int32, from, to Position, n int) error {
			return s.Apply(ctx, src, partition, from, to, []CountDelta{{PostID: 1, Likes: int64(n)}}, nil)
		},
		func(d database, t testing.TB) any { return d.counts(t) },
	},
	"rankings": {
		rankingsTopic(), "trending_position", database.rankedStore, (*Store).RankingPosition,
		func(ctx context.Context, s *Store, src Source, partition int32, from, to Position, n int) error {
			return s.ReplaceRankings(ctx, src, partition, from, to, []Ranking{ranked("US", "1h", n, 100)})
		},
		func(d database, t testing.TB) any { return d.rankings(t) },
	},
}

// Each case differs from the stored row in one column of the compare-and-swap, so it must change nothing.
func TestApplyComparesEveryColumn(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*Source)
		partition int32
		from      Position
	}{
		"topic":               {change: func(s *Source) { s.Topic = "other-updates" }, from: at(10, 7)},
		"topic in upper case": {change: func(s *Source) { s.Topic = strings.ToUpper(s.Topic) }, from: at(10, 7)},
		"topic_id":            {change: func(s *Source) { s.TopicID[15]++ }, from: at(10, 7)},
		"partitions":          {change: func(s *Source) { s.Partitions++ }, from: at(10, 7)},
		"partition_id":        {partition: 1, from: at(10, 7)},
		"next_offset":         {from: at(9, 7)},
		"next_seq":            {from: at(10, 6)},
	} {
		for kind, f := range followers {
			if name == "next_seq" && kind == "rankings" {
				continue // rankings have no next_seq
			}
			t.Run(name+" of "+kind, func(t *testing.T) {
				onEachServer(t, func(t *testing.T, db database) {
					s := f.started(db, t)
					require.NoError(t, f.apply(t.Context(), s, f.src, 0, start, at(10, 7), 2))
					want, src := f.rows(db, t), f.src
					if c.change != nil {
						c.change(&src)
					}
					err := f.apply(t.Context(), s, src, c.partition, c.from, at(20, 9), 5)
					require.ErrorIs(t, err, ErrPositionMoved)
					require.False(t, IsTransient(err))
					require.Equal(t, want, f.rows(db, t))
					require.Equal(t, "10", db.scalar(t, "SELECT MAX(next_offset) FROM "+f.table))
				})
			})
		}
	}
}

func TestPositionWaitsForAnOpenTransaction(t *testing.T) {
	for kind, f := range followers {
		t.Run(kind, func(t *testing.T) {
			onRealServers(t, func(t *testing.T, direct database) {
				proxy, slowly := direct.through(t)
				s := f.started(slowly, t)
				held, release := proxy.hold(t, "COMMIT")
				zombie := inBackground(func() error { return f.apply(t.Context(), s, f.src, 0, start, at(10, 5), 1) })
				testkit.Receive(t, held, "the statement must be reached")

				successor := direct.store(t)
				if kind == "counts" {
					requireAt(t, start, (*Store).PeekPosition, successor, f.src, 0)
				}
				var position Position
				reading := inBackground(func() (err error) {
					position, err = f.read(successor, t.Context(), f.src, 0)
					return err
				})
				direct.waitForLockWait(t)
				release()
				require.NoError(t, zombie())
				require.NoError(t, reading())
				require.EqualValues(t, 10, position.NextOffset)
			})
		})
	}
}

// Many unsynchronized processes find no positions, or those of another log. Whatever the interleaving, each gets the
// start position without an error, and there is one set of rows.
func TestManyProcessesStartAtOnce(t *testing.T) {
	for kind, f := range followers {
		t.Run(kind, func(t *testing.T) {
			onRealServers(t, func(t *testing.T, db database) {
				s := f.started(db, t)
				src := f.src
				for round := range 5 {
					require.NoError(t, f.apply(t.Context(), s, src, 0, start, at(10, 5), 2))
					if kind == "counts" {
						db.raw(t).MustExec("DELETE FROM applied_offset")
						db.raw(t).MustExec("DELETE FROM like_count")
					} else {
						src.TopicID[0]++
					}
					var processes sync.WaitGroup
					for i := range 2 * src.Partitions {
						s := db.store(t)
						processes.Go(func() {
							position, err := f.read(s, t.Context(), src, i/2)
							if err != nil || position != start {
								t.Errorf("round %d, partition %d: %v, %v; want the start", round, i/2, position, err)
							}
						})
					}
					processes.Wait()
					require.Equal(t, "4", db.scalar(t, "SELECT COUNT(*) FROM "+f.table+" WHERE next_offset = 0"))
					require.Empty(t, f.rows(db, t))
				}
			})
		})
	}
}

// Two partitions concurrently write their own, adjacent rows and never wait for each other.
func TestPartitionsApplyConcurrently(t *testing.T) {
	hours := []HourDelta{{Region: "ZZ", Likes: 1}}
	rankings := func(first, n int) (list []Ranking) {
		for i := first; i < 40; i += 2 {
			list = append(list, ranked(fmt.Sprintf("A%c-%d", 'A'+i/10, i), []string{"1h", "day"}[i/2%2], n, 1))
		}
		return list
	}
	onRealServers(t, func(t *testing.T, direct database) {
		proxy, slowly := direct.through(t)
		s := slowly.startedStore(t)
		for partition := range int32(2) {
			requireAt(t, start, (*Store).RankingPosition, s, rankingsTopic(), partition)
			replace(t, s, rankingsTopic(), partition, start, offset(1), rankings(int(partition), 20)...)
		}
		other := direct.store(t, func(o *Options) { o.LockWaitTimeout, o.Retries = time.Second, 0 })
		held, release := proxy.hold(t, "COMMIT")
		slow := inBackground(func() error {
			return s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), posts(0, 2000), hours)
		})
		testkit.Receive(t, held, "the statement must be reached")
		require.NoError(t, other.Apply(t.Context(), likesTopic(), 1, at(0, 0), at(1, 1), posts(1, 2000), hours))
		release()
		require.NoError(t, slow())
		require.Len(t, direct.counts(t), 2000)

		held, release = proxy.hold(t, "COMMIT")
		slow = inBackground(func() error {
			return s.ReplaceRankings(t.Context(), rankingsTopic(), 0, offset(1), offset(2), rankings(0, 10))
		})
		testkit.Receive(t, held, "the statement must be reached")
		replace(t, other, rankingsTopic(), 1, offset(1), offset(2), rankings(1, 10)...)
		replace(t, other, rankingsTopic(), 1, offset(2), offset(3), rankings(1, 30)...)
		release()
		require.NoError(t, slow())
		for key, rows := range direct.rankings(t) {
			require.Contains(t, []int{10, 30}, len(rows), key)
		}
	})
}
