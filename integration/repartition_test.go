package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// reactions are what must have come of all events that Kafka took. Each event of a pair has a time of its own, so that
// the latest decides wherever it lies.
type reactions struct {
	mu   sync.Mutex
	last map[[2]uint64]schema.Event
	n    int
	time int64 // of the next event
}

func newReactions() *reactions {
	return &reactions{last: map[[2]uint64]schema.Event{}, time: time.Now().UnixMilli() - 6*3_600_000}
}

func (r *reactions) events() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *reactions) took(e schema.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	key := [2]uint64{e.PostID, e.UserID}
	if last, ok := r.last[key]; !ok || e.TimeMs > last.TimeMs {
		r.last[key] = e
	}
}

func (r *reactions) counts() map[uint64]count {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[uint64]count{}
	for key, e := range r.last {
		c := counts[key[0]]
		switch e.Action {
		case schema.Like:
			c.likes++
		case schema.Dislike:
			c.dislikes++
		}
		counts[key[0]] = c
	}
	maps.DeleteFunc(counts, func(_ uint64, c count) bool { return c == count{} })
	return counts
}

// quiet posts are liked once, by so many users, and never again: whenever one looks, that is their count.
const quietPosts, quietUsers = 500, 7

// react has likes pour in until stop is called: toggles of posts beside the quiet ones, some of them sent twice, by writers
// that find partitions as Kafka's clients do.
func (s *system) react(seed uint64, into *reactions) (stop func()) {
	s.t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(60<<10), kgo.MaxBufferedRecords(10_000), kgo.MetadataMaxAge(5*time.Second))
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	produce := func(e schema.Event) {
		cl.Produce(context.WithoutCancel(ctx), record(&e), func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			into.took(e)
		})
	}
	wg.Go(func() {
		for n := int64(0); ctx.Err() == nil; n++ {
			e := schema.Event{
				PostID: 1000 + random.Uint64N(2000), UserID: 1 + random.Uint64N(200),
				Action: []schema.Action{schema.Like, schema.Like, schema.Unlike, schema.Dislike}[random.IntN(4)],
				TimeMs: into.time, Region: schema.Region{'D', 'E'},
			}
			into.time++
			produce(e)
			if n%10 == 0 {
				produce(e)
			}
			if n%100 == 0 {
				pause(s.t, 10*time.Millisecond)
			}
		}
		_ = cl.Flush(context.WithoutCancel(ctx))
	})
	once := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		assert.NoError(s.t, failed) // FailNow would have OnceFunc panic
	})
	s.t.Cleanup(once)
	return once
}

func (s *system) quiet(into *reactions) {
	s.t.Helper()
	var events []schema.Event
	for post := uint64(1); post <= quietPosts; post++ {
		for user := uint64(1); user <= quietUsers; user++ {
			e := schema.Event{PostID: post, UserID: user, Action: schema.Like, TimeMs: time.Now().UnixMilli(), Region: schema.Region{'U', 'S'}}
			into.took(e)
			events = append(events, e)
		}
	}
	s.produce(records(events))
}

// watchQuiet looks at the quiet posts in MySQL until stop is called, which fails if any look found another count.
func (s *system) watchQuiet() (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	looks, wrong := 0, ""
	wg.Go(func() {
		for ctx.Err() == nil {
			var rows []struct {
				PostID uint64 `db:"post_id"`
				Count  int64  `db:"count"`
			}
			err := s.db.Select(&rows, "SELECT post_id, `count` FROM like_count WHERE post_id <= ?", quietPosts)
			if err != nil || len(rows) != quietPosts {
				wrong = fmt.Sprintf("%d rows, %v", len(rows), err)
				return
			}
			for _, row := range rows {
				if row.Count != quietUsers {
					wrong = fmt.Sprintf("post %d has %d", row.PostID, row.Count)
					return
				}
			}
			var likes int64
			if err := s.db.Get(&likes, "SELECT SUM(likes) FROM like_hourly WHERE region = 'US'"); err != nil || likes != quietPosts*quietUsers {
				wrong = fmt.Sprintf("like_hourly has %d likes, %v", likes, err)
				return
			}
			looks++
			pause(s.t, 5*time.Millisecond)
		}
	})
	return func() {
		s.t.Helper()
		cancel()
		wg.Wait()
		require.Empty(s.t, wrong)
		require.Greater(s.t, looks, 10)
		s.t.Logf("%d looks at MySQL", looks)
	}
}

func (s *system) repartitionArgs(to int, args ...string) []string {
	return append([]string{"topics", "repartition", "--brokers", s.brokerList(), "--set", s.mysql(), "--set", fmt.Sprintf("topics.partitions=%d", to)}, args...)
}

// repartition runs `kudos topics repartition` to its end.
func (s *system) repartition(to int, args ...string) outcome {
	s.t.Helper()
	out := s.run(s.repartitionArgs(to, args...)...)
	require.Zero(s.t, out.code, "%s%s", out.stdout, out.stderr)
	return out
}

// killRepartition starts it, and kills it when so many transactions of moves are seen in the log.
func (s *system) killRepartition(to int, moves int) {
	s.t.Helper()
	seen := func() (n int) {
		s.readAll(schema.TopicUpdates, func(rec *kgo.Record) {
			var u schema.Update
			require.NoError(s.t, schema.DecodeUpdate(rec.Value, &u))
			if u.Moved && string(rec.Key) == schema.ProgressKey {
				n++
			}
		})
		return n
	}
	before := seen()
	cmd := exec.CommandContext(s.t.Context(), s.program, s.repartitionArgs(to, "--move-pairs", "10")...) // so small that it lasts until the kill
	require.NoError(s.t, cmd.Start())
	waitFor(s.t, time.Minute, "reactions to move", func() bool { return seen() >= before+moves })
	require.NoError(s.t, cmd.Process.Kill())
	require.Error(s.t, cmd.Wait(), "it was not done yet")
}

// waitReactions waits until MySQL has what must have come of the events.
func (s *system) waitReactions(r *reactions) {
	s.t.Helper()
	want := r.counts()
	defer func() {
		if s.t.Failed() {
			requireSame(s.t, "like_count", want, s.mysqlCounts())
		}
	}()
	waitFor(s.t, 2*time.Minute, "the counts", func() bool { return maps.Equal(want, s.mysqlCounts()) })
}

// requireHomes reads the state table: every reaction is there once, where it lives, and is the one that it must be.
func (s *system) requireHomes(r *reactions, layout schema.Layout) {
	s.t.Helper()
	type place struct {
		partition int32
		key       string
	}
	table := map[place][]byte{}
	s.readAll(schema.TopicState, func(rec *kgo.Record) {
		at := place{rec.Partition, string(rec.Key)}
		if table[at] = rec.Value; rec.Value == nil {
			delete(table, at)
		}
	})
	pairs := 0
	for at, value := range table {
		post, user, ok := schema.ParsePairKey([]byte(at.key))
		if !ok {
			continue
		}
		pairs++
		require.Equal(s.t, layout.Home(post, user), at.partition, "post %d, user %d", post, user)
		var pair schema.Pair
		require.NoError(s.t, schema.DecodePair(value, &pair))
		want := r.last[[2]uint64{post, user}]
		require.Equal(s.t, want.TimeMs, pair.TimeMs, "post %d, user %d", post, user)
		require.Equal(s.t, want.Action.Reaction(), pair.Reaction, "post %d, user %d", post, user)
	}
	require.Equal(s.t, len(r.last), pairs)
}

// Partitions are added while likes pour in, twice, to numbers between which posts move in both ways, and each time it is killed twice
// on the way: MySQL never shows a count that was not so, and everything is exact after it.
func TestRepartitionWhileLikesPourIn(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	r := newReactions()
	var processors []*stack.Server
	for i := range 2 {
		p := s.processor(fmt.Sprintf("processor-%d", i), "--set", "processor.park_interval=500ms", "--set", "processor.max_batch=2000")
		require.NoError(t, p.Start(t.Context()))
		processors = append(processors, p)
	}
	ranker := s.ranker("ranker", "--set", "ranker.idle_after=1s", "--set", "ranker.park_interval=500ms")
	require.NoError(t, ranker.Start(t.Context()))
	reads := s.reader("reader")
	reads.start()
	s.quiet(r)
	stop := s.react(1, r)
	waitFor(t, time.Minute, "counts", func() bool { return len(s.mysqlCounts()) > 2000 })
	stop()
	s.waitReactions(r) // exact before
	s.audit(0, "--deep")
	out := s.run(s.repartitionArgs(8, "--dry-run", "--output", "json")...)
	require.Zero(t, out.code, out.stderr)
	var would struct {
		From, To     int
		Posts, Pairs int64
		DryRun       bool `json:"dry_run"`
	}
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &would))
	require.Equal(t, partitions, would.From)
	require.Greater(t, would.Posts, int64(800))
	require.True(t, would.DryRun)

	for round, to := range []int{6, 10} {
		s.repartitionUnderLoad(r, reads, uint64(10+round), to)
	}
	s.rebuild()
	s.audit(0, "--deep")
	s.waitReactions(r)
	s.requireLeaders(r)
	require.NoError(t, ranker.Stop())
	for _, p := range processors {
		require.NoError(t, p.Stop())
	}
	s.refused("since `kudos topics repartition`", "--from-events")
	s.rebuild("--updates") // it all belongs together
}

// repartitionUnderLoad adds partitions while likes pour in, is killed twice, and holds what comes of it against what must.
func (s *system) repartitionUnderLoad(r *reactions, reads *reader, seed uint64, to int) {
	s.t.Helper()
	still := s.watchQuiet()
	stop := s.react(seed, r)
	s.killRepartition(to, 8)
	refused := s.run("topics", "apply", "--brokers", s.brokerList(), "--set", fmt.Sprintf("topics.partitions=%d", to), "--set", "topics.replication_factor=1")
	require.Equal(s.t, 1, refused.code)
	require.Contains(s.t, refused.stderr, fmt.Sprintf("a repartition to %d partitions has not ended; finish it first: kudos topics repartition", to))
	s.refused("a repartition has not ended; finish it first: kudos topics repartition")
	s.killRepartition(to, 20)
	s.t.Log(s.repartition(to, "--move-pairs", "500").stdout)
	so := r.events()
	waitFor(s.t, time.Minute, "more to come in", func() bool { return r.events() > so+5000 })
	stop()
	s.waitReactions(r)
	still()
	waitFor(s.t, time.Minute, "the reader to have them, too", func() bool {
		if !reads.ready() {
			return false
		}
		want := r.counts()
		return maps.Equal(want, reads.counted(slices.Sorted(maps.Keys(want))))
	})
	s.partitions = to
	s.waitComparable()
	s.requireHomes(r, schema.Layout{Partitions: int32(to)})
	s.audit(0)
	s.audit(0, "--deep")
	out := s.run("topics", "check", "--brokers", s.brokerList(), "--set", fmt.Sprintf("topics.partitions=%d", to), "--set", "topics.replication_factor=1")
	require.Zero(s.t, out.code, out.stdout)
}

// waitComparable waits until MySQL has come to where all reactions had arrived, in partitions without events too: before
// that, an audit says that it cannot tell.
func (s *system) waitComparable() {
	s.t.Helper()
	waitFor(s.t, time.Minute, "MySQL to have come to the new layout", func() bool {
		out := s.run("audit", "--brokers", s.brokerList(), "--set", s.mysql())
		if out.code == 1 {
			require.Contains(s.t, out.stdout, "reactions are on their way to other partitions")
		}
		return out.code != 1
	})
}

// requireLeaders waits until the leaderboard of all time is that of the counts.
func (s *system) requireLeaders(r *reactions) {
	s.t.Helper()
	counts := r.counts()
	waitFor(s.t, time.Minute, "the leaderboard to be right", func() bool {
		var rows []struct {
			PostID uint64 `db:"post_id"`
			Likes  int64  `db:"likes"`
		}
		require.NoError(s.t, s.db.Select(&rows, "SELECT post_id, likes FROM leaderboard WHERE region = 'global' AND period = 'all' ORDER BY `rank`"))
		if len(rows) == 0 {
			return false
		}
		least := rows[len(rows)-1].Likes
		better := 0
		for _, c := range counts {
			if c.likes > least {
				better++
			}
		}
		for _, row := range rows {
			if counts[row.PostID].likes != row.Likes {
				return false
			}
		}
		return better < len(rows)
	})
}

// Several servers: where the number of servers does not divide the partitions, posts move from one to another, and are
// counted at one of them.
func TestRepartitionOfSeveralServers(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newSharded(t, 3, 4)
	r := newReactions()
	s.startProcessors(1)
	s.quiet(r)
	stop := s.react(3, r)
	waitFor(t, time.Minute, "counts", func() bool { return len(s.mysqlCounts()) > 1500 })
	s.system.repartition(7)
	stop()
	s.partitions = 7
	waitFor(t, 2*time.Minute, "the counts", func() bool { return maps.Equal(r.counts(), s.mysqlCounts()) })
	s.waitComparable()
	s.audit(0)
	s.audit(0, "--deep")
	for i, db := range s.dbs {
		for post := range countsIn(t, db) {
			require.Equal(t, i, int(schema.PartitionFor(post, 7))%3, "post %d", post)
		}
	}
}
