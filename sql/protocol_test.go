package sql

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

type update struct {
	post   uint64
	delta  int64
	hour   int64
	region string
}

// TestCountsAreExactWhateverFails runs two concurrent workers that do what like-count does: read the position, apply
// from there, and read the position again after any failure. Connections break, statements fail, answers are lost, and
// batch sizes are random. Every schedule must count the log exactly once.
func TestCountsAreExactWhateverFails(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		log := make([]update, 400)
		wantCounts, wantHours := map[string]int64{}, map[string]int64{}
		for i := range log {
			u := update{random.Uint64N(12), 1 - 2*random.Int64N(2), random.Int64N(3),
				[]string{"DE", "US-CA", "ZZ"}[random.IntN(3)]}
			log[i] = u
			wantCounts[fmt.Sprint(u.post)] += u.delta
			wantHours[fmt.Sprintf("1970-01-01 0%d:00:00 %s 2", u.hour, u.region)] += u.delta
		}

		s := workOnFaults(t, db, seed, func(s *Store, random *rand.Rand) {
			followLog(t, s, (*Store).Position, likesTopic(), int64(len(log)), random,
				func(from Position, to int64) error {
					counts, hours := collapse(log[from.NextOffset:to])
					return s.Apply(t.Context(), likesTopic(), 2, from, at(to, uint64(to)), counts, hours)
				})
		})
		requireAt(t, at(int64(len(log)), uint64(len(log))), (*Store).PeekPosition, s, likesTopic(), 2)
		requireLikes(t, wantCounts, db.counts(t))
		requireLikes(t, wantHours, db.hours(t))
	})
}

// faults makes one statement in 20 fail, in a random way.
func faults(random *rand.Rand) func(string) mysqlproxy.Decision {
	var mu sync.Mutex
	return func(query string) mysqlproxy.Decision {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(query, "SET ") || random.IntN(20) != 0 {
			return mysqlproxy.Decision{}
		}
		return []mysqlproxy.Decision{mysqlproxy.CutBefore(), mysqlproxy.CutAfter(nil), mysqlproxy.Refuse(errDeadlock),
			mysqlproxy.Refuse(errLockWaitTimeout), mysqlproxy.Refuse(1290), mysqlproxy.Refuse(1053)}[random.IntN(6)]
	}
}

// workOnFaults runs two concurrent workers over faulty connections, and returns a store on working ones.
func workOnFaults(t *testing.T, db database, seed uint64, work func(*Store, *rand.Rand)) *Store {
	proxy, faulty := db.migrated(t).through(t)
	first := faulty.store(t)
	stores := []*Store{first, first} // one connection: the embedded server does not support two writers
	if db.real {
		stores[1] = faulty.store(t)
	}
	proxy.On(faults(rand.New(rand.NewPCG(seed, 1))))
	var workers sync.WaitGroup
	for i, s := range stores {
		workers.Go(func() { work(s, rand.New(rand.NewPCG(seed, uint64(2+i)))) })
	}
	workers.Wait()
	proxy.On(nil)
	return first
}

// followLog applies a log from partition 2's position to its end in random ranges, reading the position after failures.
func followLog(t *testing.T, s *Store, read readPosition, src Source, end int64, random *rand.Rand,
	apply func(from Position, to int64) error,
) {
	for range 5000 {
		position, err := read(s, t.Context(), src, 2)
		for err == nil {
			if position.NextOffset == end {
				return
			}
			to := min(end, position.NextOffset+1+random.Int64N(20))
			if err = apply(position, to); err == nil {
				position.NextOffset, position.NextSeq = to, uint64(to)
			}
		}
		require.NotErrorIs(t, err, ErrPositionMissing)
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

// requireLikes compares the rows with the wanted likes; a key whose changes cancel out may or may not have a row.
func requireLikes(t *testing.T, want map[string]int64, rows map[string]string) {
	t.Helper()
	wanted := map[string]string{}
	for key, likes := range want {
		wanted[key] = fmt.Sprint(likes, 0)
	}
	for _, m := range []map[string]string{wanted, rows} {
		maps.DeleteFunc(m, func(_, row string) bool { return row == "0 0" })
	}
	require.Equal(t, wanted, rows)
}
