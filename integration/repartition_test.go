package integration

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// reactions is the expected result of all acknowledged events. Times of a pair are distinct: the latest wins anywhere.
type reactions struct {
	mu   sync.Mutex
	last map[somebody]schema.Event
	n    int
	time int64 // of the next event
}

func newReactions(events ...schema.Event) *reactions {
	r := &reactions{last: map[somebody]schema.Event{}, time: time.Now().UnixMilli() - 6*3_600_000}
	for _, e := range events {
		r.took(e)
	}
	return r
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
	key := somebody{e.PostID, e.UserID}
	if last, ok := r.last[key]; !ok || e.TimeMs > last.TimeMs {
		r.last[key] = e
	}
}

func (r *reactions) counts() map[uint64]count {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[uint64]count{}
	for key, e := range r.last {
		c := counts[key.post]
		switch e.Action {
		case schema.Like:
			c.likes++
		case schema.Dislike:
			c.dislikes++
		}
		counts[key.post] = c
	}
	maps.DeleteFunc(counts, func(_ uint64, c count) bool { return c == count{} })
	return counts
}

// quiet posts are liked once, by that many users, and never again: every query must return that count.
const quietPosts, quietUsers = 500, 7

// react sends toggles of all but the quiet posts, some twice, by Kafka's default partitioner, until stop is called.
func (s *system) react(seed uint64, into *reactions) (stop func() int) {
	random := rand.New(rand.NewPCG(seed, 1))
	took := func(rec *kgo.Record) {
		var e schema.Event
		assert.NoError(s.t, schema.DecodeEvent(rec.Key, rec.Value, &e))
		into.took(e)
	}
	return s.keepSending(100, 100_000, took, func(send func(schema.Event)) {
		e := toggle(random, 1000+random.Uint64N(2000), 200, into.time)
		e.Region = schema.Region{'D', 'E'}
		into.time++
		send(e)
		if into.time%10 == 0 {
			send(e)
		}
	})
}

func (s *system) quiet(into *reactions) {
	s.pour(func(send func(schema.Event)) {
		for i := range uint64(quietPosts * quietUsers) {
			e := likeIn(schema.Region{'U', 'S'}, 1+i/quietUsers, 1+i%quietUsers, time.Now().UnixMilli())
			into.took(e)
			send(e)
		}
	})
}

// watchQuiet polls the quiet posts in MySQL until stop is called, which fails if any query returned another count.
func (s *system) watchQuiet() (stop func()) {
	watched := background(s.t, func(ctx context.Context) (looks int, _ error) {
		for ; ctx.Err() == nil; looks++ {
			var now struct{ Posts, Likes int }
			err := s.db.Get(&now, "SELECT (SELECT COUNT(*) FROM like_count WHERE post_id <= ? AND `count` = ?) posts, "+
				"(SELECT SUM(likes) FROM like_hourly WHERE region = 'US') likes", quietPosts, quietUsers)
			if err != nil || now.Posts != quietPosts || now.Likes != quietPosts*quietUsers {
				return looks, fmt.Errorf("%d quiet posts have the right count, like_hourly has %d likes: %v", now.Posts,
					now.Likes, err)
			}
			pause(s.t, 5*time.Millisecond)
		}
		return looks, nil
	})
	return func() { require.Greater(s.t, watched.stop(), 10, "queries of MySQL") }
}

func (s *system) repartitionArgs(to int, args ...string) []string {
	return append(s.topics(to, "repartition", "--yes", "--set", s.mysql()), args...)
}

// repartition runs `kudos topics repartition`, which must succeed, and returns its output.
func (s *system) repartition(to int, args ...string) string {
	return s.command(s.repartitionArgs(to, args...)...)
}

// killRepartition starts it, and kills it when a number of move transactions are in the log.
func (s *system) killRepartition(to int, moves int) {
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
	s.killWhen("reactions to move", func() bool { return seen() >= before+moves },
		s.repartitionArgs(to, "--move-pairs", "10")...) // so few that it lasts until the kill
}

// requireHomes checks the state table: every reaction exists once, in its partition, with the expected value.
func (s *system) requireHomes(r *reactions, layout schema.Layout) {
	pairs := s.pairsInState()
	require.Len(s.t, pairs, len(r.last))
	for at, pair := range pairs {
		require.Equal(s.t, layout.PartitionOf(at.post, at.user), at.partition, "%+v", at)
		want := r.last[at.somebody]
		require.Equal(s.t, want.TimeMs, pair.TimeMs, "%+v", at)
		require.Equal(s.t, want.Action.Reaction(), pair.Reaction, "%+v", at)
	}
}

// Partitions are added twice while likes arrive, to numbers between which posts move in both directions, and each
// repartition is killed twice on the way: MySQL never shows a wrong count, and everything is exact afterwards.
func TestRepartitionWhileLikesPourIn(t *testing.T) {
	s := verified(t)
	r := newReactions()
	processors := s.twoProcessors("--set", "processor.park_interval=500ms", "--set", "processor.max_batch=2000")
	ranker := s.ranker("ranker", "--set", "ranker.idle_after=1s", "--set", "ranker.park_interval=500ms").start()
	reads := s.startReader("reader")
	s.quiet(r)
	stop := s.react(1, r)
	waitFor(t, time.Minute, "counts in MySQL", func() bool { return len(s.mysqlCounts()) > 2000 })
	stop()
	s.waitCounts(r.counts()) // exact before the repartition
	s.audit(0, "--deep")
	var would struct {
		From   int
		Posts  int64
		DryRun bool `json:"dry_run"`
	}
	s.report(&would, 0, s.repartitionArgs(8, "--dry-run", "--output", "json")...)
	require.Equal(t, partitions, would.From)
	require.Greater(t, would.Posts, int64(800))
	require.True(t, would.DryRun)

	for round, to := range []int{6, 10} {
		s.repartitionUnderLoad(r, reads, uint64(10+round), to)
	}
	s.rebuild()
	s.audit(0, "--deep")
	s.waitCounts(r.counts())
	s.requireLeaders(r)
	ranker.stop()
	for _, p := range processors {
		p.stop()
	}
	s.refused("since `kudos topics repartition`", "--from-events")
	s.rebuild("--updates") // everything must be rebuilt together
}

// repartitionUnderLoad adds partitions while likes arrive, is killed twice, and checks the result.
func (s *system) repartitionUnderLoad(r *reactions, reads *reader, seed uint64, to int) {
	still := s.watchQuiet()
	stop := s.react(seed, r)
	s.killRepartition(to, 8)
	s.fails(s.topics(to, "apply"),
		fmt.Sprintf("a repartition to %d partitions has not ended; finish it first: kudos topics repartition", to))
	s.refused("a repartition has not ended; finish it first: kudos topics repartition")
	s.killRepartition(to, 20)
	s.t.Log(s.repartition(to, "--move-pairs", "2000"))
	so := r.events()
	waitFor(s.t, time.Minute, "more events to arrive", func() bool { return r.events() > so+5000 })
	stop()
	s.waitCounts(r.counts())
	still()
	reads.waitCounts(r.counts())
	s.partitions = to
	s.waitComparable()
	s.requireHomes(r, schema.Layout{Partitions: int32(to)})
	s.auditBoth()
	s.command(s.topics(to, "check")...)
}

// waitComparable waits until MySQL is past the arrival of all moved reactions: before that, an audit cannot compare.
func (s *system) waitComparable() {
	waitFor(s.t, time.Minute, "MySQL to reach the new layout", func() bool {
		out := s.operate("audit")
		if out.code == 1 {
			require.Contains(s.t, out.stdout, "reactions are being moved to other partitions")
		}
		return out.code != 1
	})
}

// requireLeaders waits until the all-time leaderboard matches the counts.
func (s *system) requireLeaders(r *reactions) {
	counts := r.counts()
	waitFor(s.t, time.Minute, "the leaderboard to be correct", func() bool {
		var rows []struct {
			PostID uint64 `db:"post_id"`
			Likes  int64  `db:"likes"`
		}
		require.NoError(s.t, s.db.Select(&rows,
			"SELECT post_id, likes FROM leaderboard WHERE region = 'global' AND period = 'all' ORDER BY `rank`"))
		if len(rows) == 0 {
			return false
		}
		better := maps.Clone(counts)
		maps.DeleteFunc(better, func(_ uint64, c count) bool { return c.likes <= rows[len(rows)-1].Likes })
		for _, row := range rows {
			if counts[row.PostID].likes != row.Likes {
				return false
			}
		}
		return len(better) < len(rows)
	})
}

// With a number of servers that does not divide the partitions, posts move between servers and are counted on only one.
func TestRepartitionOfSeveralServers(t *testing.T) {
	s := newSharded(t, 3, 4)
	r := newReactions()
	s.startProcessors(1)
	s.quiet(r)
	stop := s.react(3, r)
	waitFor(t, time.Minute, "counts in MySQL", func() bool { return len(s.mysqlCounts()) > 1500 })
	s.system.repartition(7)
	stop()
	s.partitions = 7
	s.waitCounts(r.counts())
	s.waitComparable()
	s.auditBoth()
	for i, db := range s.dbs {
		for post := range countsIn(t, db) {
			require.Equal(t, i, int(schema.PartitionFor(post, 7))%3, "post %d", post)
		}
	}
}
