package sql

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

// update is one record of the test's log.
type update struct {
	post   uint64
	delta  int64
	hour   int64
	region string
}

// TestCountsAreExactWhateverFails runs the way like-count goes (read the position, apply from there, after any failure
// read the position again) by two workers at once, over connections that break, statements that fail and answers that
// are lost, in batches of random size. Every schedule must count the log once.
func TestCountsAreExactWhateverFails(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		log := make([]update, 400)
		wantCounts, wantHours := map[uint64]postCounts{}, map[hourKey]postCounts{}
		for i := range log {
			u := update{post: random.Uint64N(12), delta: 1 - 2*random.Int64N(2), hour: random.Int64N(3), region: []string{"DE", "US-CA", "ZZ"}[random.IntN(3)]}
			log[i] = u
			wantCounts[u.post] = postCounts{wantCounts[u.post].Likes + u.delta, 0}
			key := hourKey{[]string{"1970-01-01 00:00:00", "1970-01-01 01:00:00", "1970-01-01 02:00:00"}[u.hour], u.region, 2}
			wantHours[key] = postCounts{wantHours[key].Likes + u.delta, 0}
		}

		proxy, faulty := db.migrated(t).through(t)
		first := faulty.store(t)
		stores := []*Store{first, first} // one connection: the embedded server cannot take two writers
		if db.real {
			stores[1] = faulty.store(t)
		}
		proxy.On(faults(rand.New(rand.NewPCG(seed, 1))))
		var workers sync.WaitGroup
		for i, s := range stores {
			workers.Go(func() { applyAll(t, s, rand.New(rand.NewPCG(seed, uint64(2+i))), log) })
		}
		workers.Wait()
		proxy.On(nil)

		position, err := first.PeekPosition(t.Context(), likesTopic(), 2)
		require.NoError(t, err)
		require.Equal(t, at(int64(len(log)), uint64(len(log))), position)
		require.Equal(t, wantCounts, dropZeros(db.counts(t), wantCounts))
		require.Equal(t, wantHours, dropZeros(db.hours(t), wantHours))
	})
}

// faults lets one statement in twenty go wrong, in a way of its own.
func faults(random *rand.Rand) func(string) mysqlproxy.Verdict {
	var mu sync.Mutex
	return func(query string) mysqlproxy.Verdict {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(query, "SET ") || random.IntN(20) != 0 {
			return mysqlproxy.Verdict{}
		}
		return []mysqlproxy.Verdict{
			mysqlproxy.CutBefore(), mysqlproxy.CutAfter(nil),
			mysqlproxy.Refuse(errDeadlock), mysqlproxy.Refuse(errLockWaitTimeout), mysqlproxy.Refuse(1290), mysqlproxy.Refuse(1053),
		}[random.IntN(6)]
	}
}

func applyAll(t *testing.T, s *Store, random *rand.Rand, log []update) {
	const partition = 2
	var failures, moved, unknown int
	for range 5000 {
		position, err := s.Position(t.Context(), likesTopic(), partition)
		if err != nil {
			require.NotErrorIs(t, err, ErrPositionMissing)
			failures++
			continue
		}
		for err == nil {
			from := position.NextOffset
			if from == int64(len(log)) {
				t.Logf("done after %d failures, position moved %d times, outcome unknown %d times", failures, moved, unknown)
				return
			}
			to := min(int64(len(log)), from+1+random.Int64N(20))
			next := at(to, uint64(to))
			counts, hours := collapse(log[from:to])
			if err = s.Apply(t.Context(), likesTopic(), partition, position, next, counts, hours); err == nil {
				position = next
			}
		}
		var lost *UnknownOutcomeError
		switch {
		case errors.Is(err, ErrPositionMoved):
			moved++
		case errors.As(err, &lost):
			unknown++
		default:
			failures++
		}
	}
	t.Error("the log was not applied after 5000 attempts")
}

func collapse(log []update) (counts []CountDelta, hours []HourDelta) {
	for _, u := range log {
		counts = append(counts, CountDelta{PostID: u.post, Likes: u.delta})
		hours = append(hours, HourDelta{Hour: u.hour, Region: u.region, Likes: u.delta})
	}
	return counts, hours
}

// dropZeros makes got comparable with want: a key whose changes cancel out may or may not have a row.
func dropZeros[K comparable](got, want map[K]postCounts) map[K]postCounts {
	for _, m := range []map[K]postCounts{got, want} {
		for key, counts := range m {
			if counts == (postCounts{}) {
				delete(m, key)
			}
		}
	}
	return got
}
