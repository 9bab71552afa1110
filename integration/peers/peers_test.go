package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/peers/peer"
	"kudos/integration/stack"
	"kudos/schema"
)

// partitions of the topic likes.
const partitions = 4

// TestPeersCountExactly runs each peer on real servers: the topic is full when it starts, more comes while it runs, and
// in the end like_count holds what the last action of every user says. The lines are those that the harness reads.
//
// KUDOS_TEST_EVENTS and KUDOS_TEST_POSTS make it larger, for tuning; the rates are in its log.
func TestPeersCountExactly(t *testing.T) {
	kafka := stack.KafkaForTest(t, stack.KafkaOptions{})
	mariaDB := stack.MariaDBForTest(t, stack.DatabaseOptions{})
	for _, p := range []struct {
		name   string
		events int
		redis  bool
	}{
		{"redis", 20_000, true},
		{"goka", 4_000, false},
		{"sql", 2_000, false},
	} {
		t.Run(p.name, func(t *testing.T) {
			if p.redis {
				stack.Require(t, stack.NeedRedis)
			}
			require.NoError(t, kafka.Reset(t.Context()))
			s := &servers{t: t, brokers: kafka.Brokers(), dsn: mariaDB.NewDatabase(t)}
			if p.redis {
				redis, err := stack.StartRedis(t.Context(), stack.RedisOptions{AppendOnly: true})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, redis.Close()) })
				s.redis = redis.Address()
			}
			s.createLikes()
			events := fromEnv(t, "KUDOS_TEST_EVENTS", p.events)
			stream := newStream(fromEnv(t, "KUDOS_TEST_POSTS", 200))
			s.publish(stream.take(events))

			run := s.start(p.name)
			run.waitCommitted(int64(events))
			first, last := run.first, run.last
			t.Logf("%s: %d events in %v: %.0f events/s", p.name, events, last.Sub(first).Round(time.Millisecond), float64(events)/last.Sub(first).Seconds())
			require.Equal(t, stream.counts(), s.counts())

			// Of these, all partitions have some; and it goes on where it stands.
			s.publish(stream.take(500))
			run.waitCommitted(int64(events + 500))
			state := run.stop()
			require.Equal(t, stream.counts(), s.counts())
			require.Positive(t, state.Bytes)
			require.Contains(t, []int64{stream.likers(), int64(len(stream.latest))}, state.Pairs, "pairs: those that like, or all that are known")
			t.Logf("%s: %.1f bytes of state a pair", p.name, float64(state.Bytes)/float64(state.Pairs))

			// A second life on the same state: nothing is lost or counted twice.
			s.publish(stream.take(500))
			run = s.start(p.name)
			waitFor(t, "the counts after a restart", func() bool { return maps.Equal(stream.counts(), s.counts()) })
			run.stop()
		})
	}
}

func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// waitFor waits, with a bound, until condition holds.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// stream makes the same events at each run: likes of posts by a power law, of which each tenth is an unlike of an
// earlier pair or an event once more.
type stream struct {
	random *rand.Rand
	posts  *rand.Zipf
	past   []schema.Event
	latest map[[2]uint64]schema.Action
	time   int64
}

func newStream(posts int) *stream {
	random := rand.New(rand.NewPCG(6, 1))
	s := &stream{random: random, latest: map[[2]uint64]schema.Action{}, time: time.Now().Add(-time.Hour).UnixMilli()}
	if posts > 1 {
		s.posts = rand.NewZipf(random, 1.1, 1, uint64(posts-1))
	}
	return s
}

func (s *stream) take(n int) []schema.Event {
	events := make([]schema.Event, 0, n)
	for range n {
		e := schema.Event{PostID: 1, UserID: 1 + s.random.Uint64N(1<<40), Action: schema.Like, Region: schema.UnknownRegion}
		if s.posts != nil {
			e.PostID = 1 + s.posts.Uint64()
		}
		if len(s.past) > 0 && s.random.IntN(10) == 0 {
			e = s.past[s.random.IntN(len(s.past))]
			if s.random.IntN(2) == 0 {
				e.Action = schema.Unlike
			}
		}
		s.time++
		e.TimeMs = s.time
		s.latest[[2]uint64{e.PostID, e.UserID}] = e.Action
		s.past = append(s.past, e)
		events = append(events, e)
	}
	return events
}

// counts are what all must end with. A post that nobody likes is not in it.
func (s *stream) counts() map[uint64]int64 {
	counts := map[uint64]int64{}
	for pair, action := range s.latest {
		if action == schema.Like {
			counts[pair[0]]++
		}
	}
	return counts
}

func (s *stream) likers() (n int64) {
	for _, likes := range s.counts() {
		n += likes
	}
	return n
}

// servers are where a peer finds everything.
type servers struct {
	t       *testing.T
	brokers []string
	dsn     string
	redis   string
	state   string
}

func (s *servers) client(options ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.brokers...), kgo.DisableClientMetrics()}, options...)...)
	require.NoError(s.t, err)
	s.t.Cleanup(client.Close)
	return client
}

// createLikes makes the topic as the product does.
func (s *servers) createLikes() {
	s.t.Helper()
	topic := schema.Topics(partitions, 1)[0]
	require.Equal(s.t, schema.TopicLikes, topic.Name)
	configs := map[string]*string{}
	for name, value := range topic.Configs {
		configs[name] = kadm.StringPtr(value)
	}
	_, err := kadm.NewClient(s.client()).CreateTopic(s.t.Context(), partitions, 1, configs, topic.Name)
	require.NoError(s.t, err)
}

func (s *servers) publish(events []schema.Event) {
	s.t.Helper()
	client := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)))
	var records []*kgo.Record
	for i := range events {
		records = append(records, &kgo.Record{Key: schema.AppendPostKey(nil, events[i].PostID), Value: schema.AppendEvent(nil, &events[i])})
	}
	require.NoError(s.t, client.ProduceSync(s.t.Context(), records...).FirstErr())
}

func (s *servers) counts() map[uint64]int64 {
	s.t.Helper()
	db, err := sqlx.ConnectContext(s.t.Context(), "mysql", s.dsn)
	require.NoError(s.t, err)
	defer db.Close()
	var rows []peer.Count
	require.NoError(s.t, db.SelectContext(s.t.Context(), &rows, "SELECT post_id AS post, count AS likes FROM like_count WHERE count <> 0"))
	counts := map[uint64]int64{}
	for _, row := range rows {
		counts[row.Post] = row.Likes
	}
	return counts
}

// line is one of what a peer prints.
type line struct {
	Event      string `json:"event"`
	Events     int64  `json:"events"`
	TimeUnixNs int64  `json:"time_unix_ns"`
	Bytes      int64  `json:"bytes"`
	Pairs      int64  `json:"pairs"`
}

// process is a running peer.
type process struct {
	t           *testing.T
	cmd         *exec.Cmd
	lines       chan line // closed at the end of its output
	first, last time.Time
	committed   int64
}

// start builds a peer and runs it.
func (s *servers) start(name string) *process {
	s.t.Helper()
	if s.state == "" {
		s.state = s.t.TempDir()
	}
	program := filepath.Join(s.state, name)
	build := slices.Concat([]string{"build"}, buildFlags(), []string{"-o", program, "./" + name})
	out, err := exec.CommandContext(s.t.Context(), "go", build...).CombinedOutput()
	require.NoError(s.t, err, "go build: %s", out)
	p := &process{t: s.t, lines: make(chan line, 1000)}
	p.cmd = exec.Command(program, "--brokers", strings.Join(s.brokers, ","), "--mysql-dsn", s.dsn, "--state-dir", filepath.Join(s.state, "state"))
	if s.redis != "" {
		p.cmd.Args = append(p.cmd.Args, "--redis", s.redis)
	}
	p.cmd.Stderr = s.t.Output()
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, p.cmd.Start())
	s.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			for range p.lines { // until the end of its output
			}
			_ = p.cmd.Wait()
		}
	})
	go func() { // ends with the process's output
		defer close(p.lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			var l line
			if err := json.Unmarshal(in.Bytes(), &l); err != nil {
				l.Event = fmt.Sprintf("not a line of the contract: %q", in.Text())
			}
			p.lines <- l
		}
	}()
	l := p.next(time.Minute)
	require.Equal(s.t, "first_poll", l.Event)
	p.first = time.Unix(0, l.TimeUnixNs)
	return p
}

func (p *process) next(within time.Duration) line {
	p.t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case l, ok := <-p.lines:
		require.True(p.t, ok, "the peer ended")
		return l
	case <-timeout.C:
		p.t.Fatalf("no line in %v; committed %d", within, p.committed)
		return line{}
	}
}

func (p *process) waitCommitted(events int64) {
	p.t.Helper()
	for p.committed < events {
		l := p.next(2 * time.Minute)
		require.Equal(p.t, "committed", l.Event)
		require.GreaterOrEqual(p.t, l.Events, p.committed)
		p.committed, p.last = l.Events, time.Unix(0, l.TimeUnixNs)
	}
	require.Equal(p.t, events, p.committed)
}

// stop ends the peer as the harness does and returns its last line.
func (p *process) stop() line {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	deadline := time.Now().Add(10 * time.Second)
	var all []line
	for ended := false; !ended; {
		select {
		case l, ok := <-p.lines:
			if ended = !ok; ok {
				all = append(all, l)
			}
		case <-time.After(time.Until(deadline)):
			p.t.Fatal("the peer did not end within 10 s of SIGTERM")
		}
	}
	require.NoError(p.t, p.cmd.Wait())
	p.t.Logf("the peer took %v of CPU time", p.cmd.ProcessState.UserTime()+p.cmd.ProcessState.SystemTime())
	states := slices.DeleteFunc(slices.Clone(all), func(l line) bool { return l.Event != "state" })
	require.Len(p.t, states, 1, "lines after SIGTERM: %v", all)
	require.Equal(p.t, "state", all[len(all)-1].Event)
	return states[0]
}
