package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/tier"
	"kudos/schema"
)

// reading is one way to read the ratings as likes, and what must come of it. The
// expected counts were made by awk from the ratings, by no code of ours.
type reading struct {
	name     string
	expected string
	user     func(userID uint64) uint64
}

var (
	eachPerson    = reading{"each_person", "expected-like-counts.tsv", func(id uint64) uint64 { return id }}
	changingMinds = reading{"people_who_change_their_minds", "expected-latest-wins.tsv", func(id uint64) uint64 {
		if id%60 == 0 {
			return 60
		}
		return id % 60
	}}
	readings = []reading{eachPerson, changingMinds}
)

// dataFolder is where the real input lies. It is not part of the project.
func dataFolder(t testing.TB) string {
	t.Helper()
	folder := os.Getenv("KUDOS_TEST_DATA")
	if folder == "" {
		const missing = "KUDOS_TEST_DATA is not set: it names the folder that holds movielens-small/ (ratings.csv.gz of the MovieLens latest-small set of 2016, and the expected counts)"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	folder = filepath.Join(folder, "movielens-small")
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("KUDOS_TEST_DATA: %v", err)
	}
	return folder
}

// events returns the ratings as events, in the order of their times.
func (r reading) events(t testing.TB) []schema.Event {
	t.Helper()
	f, err := os.Open(filepath.Join(dataFolder(t), "ratings.csv.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	rows, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	regions := []schema.Region{{'U', 'S'}, {'B', 'R'}, {'I', 'N'}, {'D', 'E'}, {'J', 'P'}}
	events := make([]schema.Event, 0, len(rows))
	for _, row := range rows[1:] {
		user, err := strconv.ParseUint(row[0], 10, 64)
		require.NoError(t, err)
		post, err := strconv.ParseUint(row[1], 10, 64)
		require.NoError(t, err)
		rating, err := strconv.ParseFloat(row[2], 64)
		require.NoError(t, err)
		seconds, err := strconv.ParseInt(row[3], 10, 64)
		require.NoError(t, err)
		e := schema.Event{PostID: post, UserID: r.user(user), Action: schema.Unlike, TimeMs: seconds * 1000, Region: regions[user%5]}
		if rating >= 3.5 {
			e.Action = schema.Like
		}
		events = append(events, e)
	}
	require.Len(t, events, 100_026)
	return events
}

func (r reading) counts(t testing.TB) map[uint64]count {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dataFolder(t), r.expected))
	require.NoError(t, err)
	counts := map[uint64]count{}
	for line := range bytes.Lines(text) {
		var post uint64
		var c count
		_, err := fmt.Sscanf(string(line), "%d\t%d", &post, &c.likes)
		require.NoError(t, err)
		counts[post] = c
	}
	return counts
}

func record(e *schema.Event) *kgo.Record {
	return &kgo.Record{Key: schema.AppendPostKey(nil, e.PostID), Value: schema.AppendEvent(nil, e)}
}

func records(events []schema.Event) []*kgo.Record {
	out := make([]*kgo.Record, len(events))
	for i := range events {
		out[i] = record(&events[i])
	}
	return out
}

// delivery is one way in which the events of a log may reach Kafka.
type delivery struct {
	name string
	send func(s *system, events []schema.Event)
}

var shuffled = delivery{"shuffled", func(s *system, events []schema.Event) {
	shuffled := slices.Clone(events)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	s.produce(records(shuffled))
}}

var deliveries = []delivery{
	{"in_order", func(s *system, events []schema.Event) { s.produce(records(events)) }},
	{"every_event_twice", func(s *system, events []schema.Event) {
		s.produce(records(append(slices.Clone(events), events...)))
	}},
	shuffled,
	{"json_from_kcat", func(s *system, events []schema.Event) { s.kcat(events) }},
}

// kcat sends events as JSON. Its partitioner (CRC32) is not Kafka's, so that most of
// them land in the wrong partition and have to be forwarded.
func (s *system) kcat(events []schema.Event) {
	s.t.Helper()
	if _, err := exec.LookPath("kcat"); err != nil {
		const missing = "kcat is not installed: make deps (or apt-get install kcat)"
		if os.Getenv("CI") != "" {
			s.t.Fatal(missing)
		}
		s.t.Skip(missing)
	}
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
	tier.Test(t)
	t.Parallel()
	for _, r := range readings {
		for _, d := range deliveries {
			t.Run(r.name+"/"+d.name, func(t *testing.T) {
				s := newRealSystem(t)
				require.NoError(t, s.processor("processor").Start(t.Context()))
				s.checkReading(r, d)
			})
		}
	}
}

// TestMovieLensOnMySQL has MySQL 8.0 in MariaDB's place, for the reading with the most
// changes of mind and the delivery that is the furthest from order.
func TestMovieLensOnMySQL(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newSystemOn(t, shared.MySQL(t))
	var version string
	require.NoError(t, s.db.Get(&version, "SELECT VERSION()"))
	require.Regexp(t, `^8\.`, version)
	require.NoError(t, s.processor("processor").Start(t.Context()))
	s.checkReading(changingMinds, shuffled)
	s.requireExact()
}

func TestMovieLensOnEmbeddedParts(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	for _, r := range readings {
		for _, d := range deliveries {
			t.Run(r.name+"/"+d.name, func(t *testing.T) {
				newEmbeddedSystem(t).checkReading(r, d)
			})
		}
	}
}

// A poll batch is what has arrived, up to the maximum: all that is in the log before
// a processor starts is cut into batches of just that size. One log is folded by a
// processor after the other, each with larger batches. (KUDOS_TEST_BATCH folds all of
// it in batches of one size; of size 1, that is 100,026 transactions and takes minutes.)
func TestMovieLensInBatchesOfAnySize(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	for _, servers := range []struct {
		name  string
		start func(testing.TB) *system
	}{{"real_stack", func(t testing.TB) *system { return newRealSystem(t) }}, {"embedded_parts", newEmbeddedServers}} {
		for _, r := range readings {
			t.Run(servers.name+"/"+r.name, func(t *testing.T) {
				s := servers.start(t)
				s.produce(records(r.events(t)))
				s.foldInSteps(fromEnv(t, "KUDOS_TEST_BATCH", 50_000))
				requireSame(t, "like_count", r.counts(t), s.mysqlCounts())
			})
		}
	}
}

// foldInSteps drains what is there by processors with batches of growing size, the
// last of them of size last.
func (s *system) foldInSteps(last int) {
	s.t.Helper()
	adm := kadm.NewClient(s.client())
	for i, step := range []struct {
		size  int
		until int64 // events folded
	}{{1, 500}, {2, 1500}, {7, 5000}, {1000, 30_000}} {
		if step.size >= last {
			break
		}
		p := s.processor(fmt.Sprintf("processor-%d", i), "--set", fmt.Sprintf("processor.max_batch=%d", step.size))
		require.NoError(s.t, p.Start(s.t.Context()))
		waitFor(s.t, time.Minute, fmt.Sprintf("%d events in batches of %d", step.until, step.size), func() bool {
			folded, _ := s.standing(adm)
			return folded >= step.until
		})
		require.NoError(s.t, p.Stop())
	}
	require.NoError(s.t, s.processor("processor", "--set", fmt.Sprintf("processor.max_batch=%d", last)).Start(s.t.Context()))
	s.drain(30 * time.Minute)
}

func (s *system) checkReading(r reading, d delivery) {
	s.t.Helper()
	d.send(s, r.events(s.t))
	s.drain(2 * time.Minute)
	requireSame(s.t, "like_count", r.counts(s.t), s.mysqlCounts())
}
