package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/tier"
	"kudos/ops/void"
	"kudos/schema"
)

// bots are users that no other load uses.
type bots struct {
	*system
	users, each int // and how many posts each of them likes
	file        string
}

const (
	firstBot = 1 << 32
	botPosts = 3000 // which people like, too
)

func newBots(s *system, users, each int) *bots {
	b := &bots{s, users, each, filepath.Join(s.t.TempDir(), "bots.txt")}
	var list strings.Builder
	for i := range users {
		fmt.Fprintln(&list, firstBot+i)
	}
	require.NoError(s.t, os.WriteFile(b.file, []byte(list.String()), 0o600))
	return b
}

// like lets each of them like its posts, of all.
func (b *bots) like() {
	rng, now := rand.New(rand.NewPCG(6, 6)), time.Now().UnixMilli()
	b.pour(func(send func(schema.Event)) {
		for i := range b.users {
			first := rng.IntN(botPosts)
			for n := range b.each {
				post := uint64(1 + (first+n)%botPosts)
				send(likeIn(schema.Region{'U', 'S'}, post, uint64(firstBot+i), now-rng.Int64N(86_400_000)))
			}
		}
	})
}

// likes are those of all users together, in MySQL.
func (b *bots) likes() int64 {
	return queryRow[int64](b.t, b.db, "SELECT COALESCE(SUM(`count`), 0) FROM like_count")
}

func (b *bots) void(command string) void.Report {
	r, err := b.run(b.t.Context(), command)
	require.NoError(b.t, err)
	return r
}

func (b *bots) run(ctx context.Context, command string) (r void.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	args := []string{command, "users", b.file, "--output", "json", "--brokers", b.brokerList()}
	cmd := exec.CommandContext(ctx, b.program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("%w: %s", err, &stderr)
	}
	return r, json.Unmarshal(stdout.Bytes(), &r)
}

// listed is how many users `kudos void list` has.
func (b *bots) listed() int {
	return strings.Count(b.exits(0, "void", "list", "--brokers", b.brokerList()).stdout, "\n")
}

// Bots are voided, and back again, while people like, processors die and the command is killed.
func TestBotsAreVoidedUnderLoad(t *testing.T) {
	parallel(t, tier.Verify)
	s := newRealSystem(t)
	b := newBots(s, 2000, 100)
	other := s.twoProcessors()[1]
	b.like()
	stop := s.keepToggling(6, botPosts, 400)
	ends := s.written(t.Context(), schema.TopicState)
	s.killWhen("some to be voided", func() bool { return s.written(t.Context(), schema.TopicState) > ends+1000 },
		"void", "users", b.file, "--brokers", s.brokerList())
	voiding := background(t, func(ctx context.Context) (void.Report, error) { return b.run(ctx, "void") })
	for kills := 0; kills < 3 || voiding.running(); kills++ {
		before, _ := s.standing()
		waitFor(t, time.Minute, "the fold to advance since the last kill", func() bool {
			now, _ := s.standing()
			return now > before || !voiding.running()
		})
		pause(t, 3*time.Second)
		other.kill()
		other.start()
	}
	require.NotZero(t, voiding.wait().Recounts)
	require.Equal(t, b.users, b.listed())
	stop()
	s.drainExact(3 * time.Minute)
	people := s.mysqlCounts()
	require.Zero(t, b.void("void").Recounts, "the second run changes nothing")
	b.like() // again, and later
	s.drainExact(3 * time.Minute)
	requireSame(t, "like_count after more of theirs", people, s.mysqlCounts())
	s.auditBoth()

	without := b.likes()
	require.EqualValues(t, b.users*b.each, b.void("unvoid").Recounts)
	require.Zero(t, b.listed())
	s.drainExact(3 * time.Minute)
	require.EqualValues(t, b.users*b.each, b.likes()-without)
	s.auditBoth()
}

// BenchmarkVoid measures `kudos void users` and `unvoid` of 100,000 users with 100 reactions each, in seconds, while
// others like. Run it with -benchtime 1x.
func BenchmarkVoid(b *testing.B) {
	s := newRealSystem(b)
	users := newBots(s, fromEnv(b, "KUDOS_TEST_USERS", 100_000), 100)
	s.processor("processor").start()
	users.like()
	s.drain(20 * time.Minute)
	stop := s.keepToggling(6, botPosts, 400)
	b.ReportMetric(users.void("void").Seconds, "void-s")
	b.ReportMetric(users.void("unvoid").Seconds, "unvoid-s")
	began := time.Now()
	n := stop()
	s.drain(5 * time.Minute)
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "other-events/s")
	b.ReportMetric(time.Since(began).Seconds(), "drain-s")
	s.requireExact()
}
