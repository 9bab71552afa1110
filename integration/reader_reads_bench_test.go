package integration

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"kudos/bench/producer"
	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/schema"
)

// BenchmarkReads measures reads of counts from a view of a million posts (KUDOS_TEST_POSTS): single ones and pages of
// 50, of random posts, by 32 concurrent clients in a closed loop; and the same reads from MariaDB (primary key, IN) and
// from Redis (MGET), with all servers and clients on this machine. They take turns, five seconds each, three times;
// figures are medians, ratios are within a round. KUDOS_TEST_OLDER is the program of an earlier build, whose reader is
// then a target, too. Redis is left out if not installed. Run it with -benchtime 1x.
func BenchmarkReads(b *testing.B) {
	posts := fromEnv(b, "KUDOS_TEST_POSTS", 1_000_000)
	s := newRealSystem(b)
	s.countEach(posts)
	begin := time.Now()
	r := s.startReader("reader", "--set", "reader.reactions=false")
	waitFor(b, 5*time.Minute, "the reader to be ready", r.ready)
	b.ReportMetric(time.Since(begin).Seconds(), "ready-s")
	b.ReportMetric(r.sum("process_resident_memory_bytes", nil)/(1<<20), "rss-MiB")
	targets := []target{{"reader", dialReader(r.base, getCounts)}, {"mariadb", s.dialMariaDB()}}
	if program := os.Getenv("KUDOS_TEST_OLDER"); program != "" {
		older := *s
		older.program = program
		r := older.startReader("older", "--set", "reader.reactions=false")
		waitFor(b, 5*time.Minute, "the older reader to be ready", r.ready)
		targets = append(targets, target{"older", dialReader(r.base, getCounts)})
	}
	if stack.Missing(b.Context(), stack.NeedRedis) == nil {
		targets = append(targets, target{"redis", startRedis(b, posts)})
	}
	for _, page := range []int{1, 50} {
		compareReads(b, targets, posts, page)
	}
}

// countEach gives each post a like, and returns once they are counted. Earlier readers know one transactional id only.
func (s *system) countEach(posts int) {
	s.pour(func(send func(schema.Event)) {
		for post := range uint64(posts) {
			send(likeNow(post+1, 1+post%viewers))
		}
	})
	p := s.processor("processor", "--set", "processor.transactional_ids=1").start()
	waitFor(s.t, 5*time.Minute, "the likes to be counted", func() bool { return s.left() == "" })
	p.stop()
}

const viewers = 1000

// BenchmarkViewerReads measures a viewer's page in one request, of a view as in BenchmarkReads: 50 random posts and the
// reactions of a random user, 1,000 requests a second (KUDOS_TEST_RATE) for 30 seconds, whatever the answers take.
// Latency is from the time when a request is due. Run it with -benchtime 1x.
func BenchmarkViewerReads(b *testing.B) {
	posts, rate := fromEnv(b, "KUDOS_TEST_POSTS", 1_000_000), fromEnv(b, "KUDOS_TEST_RATE", 1000)
	s := newRealSystem(b)
	s.countEach(posts)
	r := s.startReader("reader")
	waitFor(b, 5*time.Minute, "the reader to be ready", r.ready)
	for name, request := range map[string]func([]uint64) string{"counts": getViewed, "reactions": postReactions} {
		asked := atRate{base: r.base, request: request, posts: posts, page: 50, perSecond: rate, seconds: 30}
		require.Zero(b, asked.run(b, name))
	}
}

// atRate is a load of requests about random posts at a fixed rate.
type atRate struct {
	base                            string
	request                         func(posts []uint64) string
	posts, page, perSecond, seconds int
}

// run reports the latencies of the answers, and returns how many requests had none.
func (l atRate) run(b *testing.B, name string) (failed int) {
	const clients = 128
	took, next := make([]time.Duration, l.seconds*l.perSecond), atomic.Int64{}
	begin := time.Now().Add(time.Second)
	var all errgroup.Group
	for range clients {
		all.Go(func() error {
			read, closeIt, err := dialReader(l.base, l.request)(b.Context())
			if err != nil {
				return err
			}
			defer closeIt()
			asked := make([]uint64, l.page)
			for n := next.Add(1); n <= int64(len(took)); n = next.Add(1) {
				for i := range asked {
					asked[i] = rand.Uint64N(uint64(l.posts)) + 1
				}
				due := begin.Add(time.Duration(n) * time.Second / time.Duration(l.perSecond))
				pause(b, time.Until(due))
				sum, err := read(asked)
				if took[n-1] = time.Since(due); err != nil {
					b.Logf("%s: %v", name, err)
					took[n-1] = 0
				} else if sum != int64(l.page) {
					return fmt.Errorf("%s: %d of %d posts", name, sum, l.page)
				}
			}
			return nil
		})
	}
	require.NoError(b, all.Wait())
	answered := slices.DeleteFunc(slices.Clone(took), func(d time.Duration) bool { return d == 0 })
	p50, p99, _, _ := producer.Percentiles(answered)
	b.ReportMetric(p50, name+"-p50-ms")
	b.ReportMetric(p99, name+"-p99-ms")
	return len(took) - len(answered)
}

type target struct {
	name string
	dial dialer
}

// dialer returns a client that reads the counts of posts and returns their sum.
type dialer func(context.Context) (read func(posts []uint64) (sum int64, err error), close func(), err error)

const (
	readClients = 32
	readRounds  = 3
	readFor     = 5 * time.Second
)

type readFigures struct{ perSecond, p50, p99 float64 }

func compareReads(b *testing.B, targets []target, posts, page int) {
	rounds := make([][]readFigures, len(targets))
	for range readRounds {
		for i, t := range targets {
			rounds[i] = append(rounds[i], measureReads(b, t, posts, page))
		}
	}
	for i, t := range targets {
		name := fmt.Sprintf("%s-%d", t.name, page)
		report := func(unit string, of func(round int) float64) { // the median
			values := make([]float64, readRounds)
			for round := range values {
				values[round] = of(round)
			}
			slices.Sort(values)
			b.ReportMetric(values[readRounds/2], unit)
		}
		report(name+"-reads/s", func(r int) float64 { return rounds[i][r].perSecond })
		report(name+"-p50-ms", func(r int) float64 { return rounds[i][r].p50 })
		report(name+"-p99-ms", func(r int) float64 { return rounds[i][r].p99 })
		if i > 0 {
			report("ratio-to-"+name, func(r int) float64 { return rounds[0][r].perSecond / rounds[i][r].perSecond })
		}
	}
}

func measureReads(b *testing.B, t target, posts, page int) readFigures {
	ctx := testkit.Within(b, readFor+time.Minute)
	took := make([][]time.Duration, readClients)
	var clients errgroup.Group
	end := time.Now().Add(readFor)
	for c := range readClients {
		clients.Go(func() error {
			read, closeIt, err := t.dial(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			defer closeIt()
			random, asked := rand.New(rand.NewPCG(uint64(c), 1)), make([]uint64, page)
			for time.Now().Before(end) {
				for i := range asked {
					asked[i] = random.Uint64N(uint64(posts)) + 1
				}
				begin := time.Now()
				sum, err := read(asked)
				if err == nil && sum < 1 {
					err = fmt.Errorf("only %d likes for %d posts", sum, page)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", t.name, err)
				}
				took[c] = append(took[c], time.Since(begin))
			}
			return nil
		})
	}
	require.NoError(b, clients.Wait())
	all := slices.Concat(took...)
	p50, p99, _, _ := producer.Percentiles(all)
	return readFigures{float64(len(all)) / readFor.Seconds(), p50, p99}
}

func getCounts(posts []uint64) string {
	if len(posts) == 1 {
		return fmt.Sprintf("GET /v1/posts/%d/likes HTTP/1.1\r\n\r\n", posts[0])
	}
	return "GET /v1/likes?post_ids=" + joined(posts) + " HTTP/1.1\r\n\r\n"
}

func getViewed(posts []uint64) string {
	return fmt.Sprintf("GET /v1/likes?post_ids=%s&viewer=%d HTTP/1.1\r\n\r\n", joined(posts), 1+rand.IntN(viewers))
}

func postReactions(posts []uint64) string {
	body := fmt.Sprintf(`{"user_id":"%d","post_ids":[%s]}`, 1+rand.IntN(viewers), joined(posts))
	return fmt.Sprintf("POST /v1/reactions:get HTTP/1.1\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// dialReader reads over HTTP/1.1 on its own connection, like a service with a connection pool.
func dialReader(base string, request func(posts []uint64) string) dialer {
	return func(ctx context.Context) (func([]uint64) (int64, error), func(), error) {
		u, err := url.Parse(base)
		if err != nil {
			return nil, nil, err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return nil, nil, err
		}
		in, host := bufio.NewReader(conn), " HTTP/1.1\r\nHost: "+u.Host+"\r\n"
		return func(posts []uint64) (int64, error) {
			text := strings.Replace(request(posts), " HTTP/1.1\r\n", host, 1)
			if _, err := io.WriteString(conn, text); err != nil {
				return 0, err
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return 0, err
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				return 0, fmt.Errorf("%s: %w", resp.Status, err)
			}
			return likesIn(body)
		}, func() { conn.Close() }, nil
	}
}

// likesIn returns how many likes are in an answer, or of how many posts it has reactions.
func likesIn(body []byte) (sum int64, err error) {
	var answer struct {
		Likes int64
		Posts []struct{ Likes int64 }

		Reactions []struct{}
	}
	err = json.Unmarshal(body, &answer)
	sum = answer.Likes + int64(len(answer.Reactions))
	for _, p := range answer.Posts {
		sum += p.Likes
	}
	return sum, err
}

func joined(posts []uint64) string {
	var text []byte
	for _, p := range posts {
		text = append(strconv.AppendUint(text, p, 10), ',')
	}
	return string(text[:len(text)-1])
}

// dialMariaDB reads by primary key, on its own connection.
func (s *system) dialMariaDB() dialer {
	return func(ctx context.Context) (func([]uint64) (int64, error), func(), error) {
		db, err := sql.Open("mysql", s.dsn)
		if err != nil {
			return nil, nil, err
		}
		db.SetMaxOpenConns(1)
		return func(posts []uint64) (sum int64, err error) {
			rows, err := db.QueryContext(ctx,
				"SELECT post_id, count FROM like_count WHERE post_id IN ("+joined(posts)+")")
			if err != nil {
				return 0, err
			}
			defer rows.Close()
			for rows.Next() {
				var post uint64
				var count int64
				if err := rows.Scan(&post, &count); err != nil {
					return 0, err
				}
				sum += count
			}
			return sum, rows.Err()
		}, func() { db.Close() }, nil
	}
}

// startRedis starts a Redis without persistence and fills in the counts.
func startRedis(b *testing.B, posts int) dialer {
	server, err := stack.StartRedis(b.Context(), stack.RedisOptions{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Close()) })
	conn, err := net.Dial("tcp", server.Address())
	require.NoError(b, err)
	in := bufio.NewReader(conn)
	for from := 1; from <= posts; from += 1000 {
		command := []string{"MSET"}
		for post := from; post < from+1000 && post <= posts; post++ {
			command = append(command, fmt.Sprintf("likes:%d", post), "1")
		}
		_, err := conn.Write(resp(command...))
		require.NoError(b, err)
		answer, err := in.ReadString('\n')
		require.NoError(b, err)
		require.Equal(b, "+OK\r\n", answer)
	}
	require.NoError(b, conn.Close())
	return func(ctx context.Context) (func([]uint64) (int64, error), func(), error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Address())
		if err != nil {
			return nil, nil, err
		}
		in := bufio.NewReader(conn)
		return func(posts []uint64) (int64, error) {
			command := []string{"MGET"}
			for _, p := range posts {
				command = append(command, "likes:"+strconv.FormatUint(p, 10))
			}
			if _, err := conn.Write(resp(command...)); err != nil {
				return 0, err
			}
			return sumOf(in)
		}, func() { conn.Close() }, nil
	}
}

func resp(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

func sumOf(in *bufio.Reader) (sum int64, err error) {
	number := func(prefix string) (int64, error) {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(strings.TrimPrefix(string(bytes.TrimSpace(line)), prefix), 10, 64)
	}
	n, err := number("*")
	for i := int64(0); err == nil && i < n; i++ {
		var count int64
		if _, err = number("$"); err == nil {
			count, err = number("")
		}
		sum += count
	}
	return sum, err
}
