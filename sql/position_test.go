package sql

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPositionOfAnEmptyDatabaseIsTheStartOfEveryPartition(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.migrated(t).store(t)
		_, err := s.PeekPosition(t.Context(), likesTopic(), 2)
		require.ErrorIs(t, err, ErrPositionMissing, "looking must not make rows")

		position, err := s.Position(t.Context(), likesTopic(), 2)
		require.NoError(t, err)
		require.Equal(t, start, position)
		require.Equal(t, "4", db.scalar(t, "SELECT COUNT(*) FROM applied_offset WHERE next_offset = 0 AND next_seq = 0 AND leader_epoch = -1"),
			"all partitions, not only the one asked for")
	})
}

func TestPositionIsWhatWasApplied(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.startedStore(t)
		want := Position{NextOffset: 1 << 62, NextSeq: 1<<64 - 1, LeaderEpoch: 17}
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 1, at(0, 0), want, oneLike, nil))
		for name, read := range map[string]func() (Position, error){
			"Position":     func() (Position, error) { return s.Position(t.Context(), likesTopic(), 1) },
			"PeekPosition": func() (Position, error) { return s.PeekPosition(t.Context(), likesTopic(), 1) },
		} {
			got, err := read()
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
		}
	})
}

// Each kind of damage leaves traces of earlier counting, but not the row. Starting at 0 would count all of it twice.
func TestPositionMissing(t *testing.T) {
	for name, damage := range map[string][]string{
		"beside counts":                   {"DELETE FROM applied_offset"},
		"beside hourly counts":            {"DELETE FROM applied_offset", "DELETE FROM like_count"},
		"beside another partition's row":  {"DELETE FROM applied_offset WHERE partition_id = 0", "DELETE FROM like_count", "DELETE FROM like_hourly"},
		"beside counts, of one partition": {"DELETE FROM applied_offset WHERE partition_id = 0"},
	} {
		t.Run(name, func(t *testing.T) {
			onEachServer(t, func(t *testing.T, db database) {
				s := db.startedStore(t)
				require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, []HourDelta{{Region: "ZZ", Likes: 1}}))
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
		})
	}
}

func TestSourceChanged(t *testing.T) {
	for name, change := range map[string]func(*Source){
		"topic created again": func(s *Source) { s.TopicID[0]++ },
		"partitions added":    func(s *Source) { s.Partitions = 8 },
	} {
		t.Run(name, func(t *testing.T) {
			onEachServer(t, func(t *testing.T, db database) {
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
				var changed *SourceChangedError
				require.ErrorAs(t, err, &changed)
			})
		})
	}
}

func TestStoredTopicIDIsDamaged(t *testing.T) {
	db := embeddedDatabase(t)
	s := db.startedStore(t)
	db.raw(t).MustExec("UPDATE applied_offset SET topic_id = 'cafe'")
	_, err := s.Position(t.Context(), likesTopic(), 0)
	require.ErrorContains(t, err, `topic id "cafe"`)
}

// A process that has seen an empty database stops there, while another one starts, inserts the rows and counts.
// Wherever it stopped, it must then find the other's position, not call the database damaged nor start again at 0.
func TestTwoProcessesStartAtOnce(t *testing.T) {
	for _, hold := range []string{"SELECT EXISTS", "SELECT topic_id, partitions, next_offset", "SELECT topic_id, partitions FROM", "INSERT INTO applied_offset", "COMMIT"} {
		t.Run(hold, func(t *testing.T) {
			onRealServers(t, func(t *testing.T, direct database) {
				direct = direct.migrated(t)
				proxy, slowly := direct.through(t)
				slow, fast := slowly.store(t), direct.store(t)

				held, release := proxy.hold(t, hold)
				var got Position
				var slowErr error
				var process sync.WaitGroup
				process.Go(func() { got, slowErr = slow.Position(t.Context(), likesTopic(), 0) })
				await(t, held)
				if hold == "COMMIT" { // the slow one has the row locks: the fast one must wait for it
					process.Go(release)
				}
				position, err := fast.Position(t.Context(), likesTopic(), 0)
				require.NoError(t, err)
				require.Equal(t, start, position)
				if hold != "COMMIT" {
					require.NoError(t, fast.Apply(t.Context(), likesTopic(), 0, start, at(10, 5), oneLike, nil))
					release()
				}
				process.Wait()
				require.NoError(t, slowErr)
				if hold != "COMMIT" {
					require.Equal(t, at(10, 5), got, "the other's position")
				}
				require.Equal(t, "4", direct.scalar(t, "SELECT COUNT(*) FROM applied_offset"))
			})
		})
	}
}

// Many processes at once, unsynchronised: whatever interleaving comes, one set of rows and no error.
func TestManyProcessesStartAtOnce(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		db = db.migrated(t)
		for range 10 {
			db.raw(t).MustExec("DELETE FROM applied_offset")
			var processes sync.WaitGroup
			for partition := range likesTopic().Partitions {
				s := db.store(t)
				processes.Go(func() {
					position, err := s.Position(t.Context(), likesTopic(), partition)
					if err != nil || position != start {
						t.Errorf("partition %d: position %v, error %v; want the start", partition, position, err)
					}
				})
			}
			processes.Wait()
			require.Equal(t, "4", db.scalar(t, "SELECT COUNT(*) FROM applied_offset"))
		}
	})
}

// Position waits for a transaction whose outcome is open, rather than read past it.
func TestPositionWaitsForAnOpenTransaction(t *testing.T) {
	onRealServers(t, func(t *testing.T, direct database) {
		proxy, slowly := direct.through(t)
		s := slowly.startedStore(t)
		held, release := proxy.hold(t, "COMMIT")
		var zombieErr error
		var zombie sync.WaitGroup
		zombie.Go(func() { zombieErr = s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(10, 5), oneLike, nil) })
		await(t, held)

		successor := direct.store(t)
		peeked, err := successor.PeekPosition(t.Context(), likesTopic(), 0)
		require.NoError(t, err)
		require.Equal(t, start, peeked, "looking does not wait")
		var position Position
		var positionErr error
		var reading sync.WaitGroup
		reading.Go(func() { position, positionErr = successor.Position(t.Context(), likesTopic(), 0) })
		direct.waitForLockWait(t)
		release()
		zombie.Wait()
		reading.Wait()
		require.NoError(t, zombieErr)
		require.NoError(t, positionErr)
		require.Equal(t, at(10, 5), position)
	})
}
