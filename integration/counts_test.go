package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/rankings/day"
	"kudos/integration/tier"
	"kudos/schema"
)

// reading is a way to read the ratings as likes, with the counts that awk computed, independently of this code.
type reading struct {
	name, expected string
	user           func(userID uint64) uint64
}

var (
	eachPerson    = reading{"each_person", "expected-like-counts.tsv", day.EachPerson}
	changingMinds = reading{"people_who_change_their_minds", "expected-latest-wins.tsv", day.ChangingMinds}
	readings      = []reading{eachPerson, changingMinds}
)

func (r reading) events(t testing.TB) []schema.Event {
	ratings, err := day.MovieLens(filepath.Join(day.MovieLensDir(t), "ratings.csv.gz"), r.user)
	require.NoError(t, err)
	events := make([]schema.Event, len(ratings))
	for i := range ratings {
		events[i] = ratings[i].Event
	}
	require.Len(t, events, 100_026)
	return events
}

func (r reading) counts(t testing.TB) map[uint64]count {
	counts := map[uint64]count{}
	for line := range strings.Lines(readText(t, filepath.Join(day.MovieLensDir(t), r.expected))) {
		var post uint64
		var c count
		_, err := fmt.Sscanf(line, "%d\t%d", &post, &c.likes)
		require.NoError(t, err)
		counts[post] = c
	}
	return counts
}

// delivery is a way in which events reach Kafka.
type delivery struct {
	name string
	send func(s *system, events []schema.Event)
}

var shuffled = delivery{"shuffled", func(s *system, events []schema.Event) {
	s.pour(func(send func(schema.Event)) {
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(events)) {
			send(events[i])
		}
	})
}}

var deliveries = []delivery{
	{"in_order", func(s *system, events []schema.Event) { s.produce(events...) }},
	{"every_event_twice", func(s *system, events []schema.Event) { s.produce(slices.Concat(events, events)...) }},
	shuffled,
	{"json_from_kcat", (*system).kcat},
}

// kcat sends events as JSON. Its partitioner (CRC32) is not Kafka's, so most are misrouted and must be forwarded.
func (s *system) kcat(events []schema.Event) {
	tier.NeedPrograms(s.t, "kcat")
	var in bytes.Buffer
	for _, e := range events {
		fmt.Fprintf(&in, "%d\t{\"post_id\":%d,\"user_id\":\"%d\",\"action\":%q,\"time_ms\":%d,\"region\":%q}\n",
			e.PostID, e.PostID, e.UserID, e.Action, e.TimeMs, e.Region)
	}
	cmd := exec.CommandContext(s.t.Context(), "kcat", "-P", "-b", s.brokerList(), "-t", schema.TopicLikes, "-K", `\t`,
		"-X", "batch.size=30000", "-X", "linger.ms=5")
	cmd.Stdin = &in
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "kcat: %s", out)
}

func TestMovieLensOnTheRealStack(t *testing.T) {
	parallel(t, tier.Test)
	checkReadings(t, func(t testing.TB) *system {
		s := newRealSystem(t)
		s.processor("processor").start()
		return s
	})
}

func TestMovieLensOnEmbeddedParts(t *testing.T) {
	parallel(t, tier.Turn(2))
	checkReadings(t, newEmbeddedSystem)
}

// checkReadings runs each combination of reading and delivery on a separate system.
func checkReadings(t *testing.T, start func(testing.TB) *system) {
	for _, r := range readings {
		for _, d := range deliveries {
			t.Run(r.name+"/"+d.name, func(t *testing.T) { start(t).checkReading(r, d) })
		}
	}
}

// TestMovieLensOnMySQL uses MySQL 8.0, not MariaDB, for the reading with the most changes and most disordered delivery.
func TestMovieLensOnMySQL(t *testing.T) {
	parallel(t, tier.Verify)
	s := newSystemOn(t, shared.MySQL(t))
	require.Regexp(t, `^8\.`, queryRow[string](t, s.db, "SELECT VERSION()"))
	s.processor("processor").start()
	s.checkReading(changingMinds, shuffled)
	s.requireExact()
}

// A batch is what has arrived, up to the maximum: a backlog is folded in batches of exactly that size. Several
// processors fold one log, each with larger batches. (KUDOS_TEST_BATCH folds everything in batches of one size; with
// size 1, that is 100,026 transactions and takes minutes.)
func TestMovieLensInBatchesOfAnySize(t *testing.T) {
	parallel(t, tier.Turn(1))
	for _, servers := range []struct {
		name  string
		start func(testing.TB) *system
	}{{"real_stack", func(t testing.TB) *system { return newRealSystem(t) }}, {"embedded_parts", newEmbeddedServers}} {
		for _, r := range readings {
			t.Run(servers.name+"/"+r.name, func(t *testing.T) {
				s := servers.start(t)
				s.produce(r.events(t)...)
				s.foldInSteps(fromEnv(t, "KUDOS_TEST_BATCH", 50_000))
				requireSame(t, "like_count", r.counts(t), s.mysqlCounts())
			})
		}
	}
}

// foldInSteps drains the log with processors of growing batch sizes, up to size last.
func (s *system) foldInSteps(last int) {
	for i, step := range []struct {
		size  int
		until int64 // events folded
	}{{1, 500}, {2, 1500}, {7, 5000}, {1000, 30_000}} {
		if step.size >= last {
			break
		}
		p := s.processor(fmt.Sprintf("processor-%d", i),
			"--set", fmt.Sprintf("processor.max_batch=%d", step.size)).start()
		s.waitFolded(time.Minute, step.until)
		p.stop()
	}
	s.processor("processor", "--set", fmt.Sprintf("processor.max_batch=%d", last)).start()
	s.drain(30 * time.Minute)
}

func (s *system) checkReading(r reading, d delivery) {
	d.send(s, r.events(s.t))
	s.drain(5 * time.Minute) // 7 s alone, 112 s while 20 other processes keep both CPUs busy
	requireSame(s.t, "like_count", r.counts(s.t), s.mysqlCounts())
}

// toggles produces a seeded log of n events, some late or duplicate, in which few users change their reactions often.
func (s *system) toggles(seed uint64, n int) {
	r := rand.New(rand.NewPCG(seed, 0))
	posts := rand.NewZipf(r, 1.2, 1, 2000)
	start := time.Now().Add(-24 * time.Hour).UnixMilli()
	s.pour(func(send func(schema.Event)) {
		for i := range n {
			e := toggle(r, 1+posts.Uint64(), 500, start+int64(i)/20-r.Int64N(2000))
			send(e)
			if r.IntN(50) == 0 {
				send(e)
			}
		}
	})
}

// keepToggling does so in the background, some 20,000 per second, until stop is called, which returns their number.
func (s *system) keepToggling(seed uint64, posts, users uint64) (stop func() int) {
	r := rand.New(rand.NewPCG(seed, 2))
	return s.keepSending(200, 100_000, nil, func(send func(schema.Event)) {
		send(toggle(r, 1+r.Uint64N(posts), users, time.Now().UnixMilli()-r.Int64N(6*3_600_000)))
	})
}

// keepCounting is keepToggling, and returns when many posts have been counted.
func (s *system) keepCounting(seed uint64) (stop func() int) {
	stop = s.keepToggling(seed, 3000, 400)
	waitFor(s.t, time.Minute, "counts in MySQL", func() bool { return len(s.mysqlCounts()) > 2000 })
	return stop
}

func toggle(r *rand.Rand, post, users uint64, timeMs int64) schema.Event {
	regions := []schema.Region{{'U', 'S'}, {'B', 'R'}, {'I', 'N'}, {'D', 'E'}, schema.UnknownRegion}
	e := likeIn(regions[r.IntN(5)], post, 1+r.Uint64N(users), timeMs)
	e.Action = []schema.Action{schema.Like, schema.Like, schema.Unlike, schema.Dislike}[r.IntN(4)]
	return e
}

// waitFolding waits until the fold's committed position moves, or is at the end of the log.
func (s *system) waitFolding() {
	before, _ := s.standing()
	waitFor(s.t, time.Minute, "the committed position to move", func() bool {
		now, end := s.standing()
		return now > before || now >= end
	})
}

func fromEnv(t testing.TB, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// Two processors share a log; one is repeatedly killed and restarted on its state. Long: KUDOS_TEST_EVENTS=10000000.
func TestCountsAreExactWhenProcessorsAreKilled(t *testing.T) {
	parallel(t, tier.Test)
	events := fromEnv(t, "KUDOS_TEST_EVENTS", 1_000_000)
	wanted := fromEnv(t, "KUDOS_TEST_KILLS", 20)
	seed := uint64(fromEnv(t, "KUDOS_TEST_SEED", 1))
	s := newRealSystem(t)
	s.toggles(seed, events)
	r := rand.New(rand.NewPCG(seed, 1))

	// Batches are so small that the log lasts for all kills.
	batch := fmt.Sprintf("processor.max_batch=%d", fromEnv(t, "KUDOS_TEST_BATCH", max(20, events/10_000)))
	processors := s.twoProcessors("--set", batch)
	kills, inside, open := 0, 0, 0
	for deadline := time.Now().Add(10 * time.Minute); inside < wanted; {
		require.True(t, time.Now().Before(deadline), "only %d of %d kills before the deadline", inside, wanted)
		s.waitFolding()
		pause(t, time.Duration(r.IntN(300))*time.Millisecond)
		victim := processors[r.IntN(2)]
		victim.kill()
		kills++
		left := s.openTransactions()
		committed, end := s.standing()
		if committed >= end {
			break // the log is used up
		}
		if committed > 0 {
			inside++
			if left > 0 {
				open++
			}
		}
		victim.start()
	}
	t.Logf("%d events, %d kills, %d of them within the log, %d with an open transaction", events, kills, inside, open)
	require.GreaterOrEqual(t, inside, wanted, "kills within the log: it was fully consumed too early")
	// The rest is folded in batches of any size, starting from the killed processors' state in Kafka and MySQL.
	for _, p := range processors {
		p.stop()
	}
	s.processor("processor-2").start()
	s.drainExact(3 * time.Minute)
}
