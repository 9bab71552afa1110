package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/tier"
	"kudos/schema"
)

// outcome is what a command printed and how it ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs the program to its end, whatever that is.
func (s *system) run(args ...string) outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("kudos %v: %v", args, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// auditReport is what these tests read of the report.
type auditReport struct {
	Equal bool
	Posts struct {
		Compared, Different int64
		Rows                []struct {
			PostID        uint64 `json:"post_id,string"`
			Partition     int32
			MySQL, Stream struct{ Likes, Dislikes int64 }
		}
	}
	Hours struct {
		Compared, Different int64
		Rows                []struct {
			Hour          time.Time
			Region        string
			Partition     int32
			MySQL, Stream struct{ Likes, Dislikes int64 }
		}
	}
	State  struct{ Compared, Different int64 }
	Strays struct {
		Different int64
		Rows      []struct {
			Table, Row                string
			Partition, Shard, Belongs int32
		}
	}
	Problems, Unknown []string
	Seconds           float64
}

// audit runs `kudos audit` and expects it to end with this code.
func (s *system) audit(code int, args ...string) (r auditReport) {
	s.t.Helper()
	out := s.run(append([]string{"audit", "--brokers", s.brokerList(), "--set", s.mysql(), "--output", "json"}, args...)...)
	require.Equal(s.t, code, out.code, "kudos audit %v: %s%s", args, out.stdout, out.stderr)
	require.NoError(s.t, json.Unmarshal([]byte(out.stdout), &r), "%s", out.stdout)
	return r
}

// keepToggling produces toggles in the background until stop is called, which returns
// how many there were.
func (s *system) keepToggling(seed uint64, posts, users uint64) (stop func() int) {
	s.t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(60<<10), kgo.MaxBufferedRecords(10_000))
	regions := []schema.Region{{'U', 'S'}, {'B', 'R'}, {'I', 'N'}, {'U', 'S', '-', 'C', 'A'}, schema.UnknownRegion}
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	n, failed := 0, error(nil)
	wg.Go(func() {
		for ; ctx.Err() == nil; n++ {
			e := schema.Event{
				PostID: 1 + r.Uint64N(posts), UserID: 1 + r.Uint64N(users),
				Action: []schema.Action{schema.Like, schema.Like, schema.Unlike, schema.Dislike}[r.IntN(4)],
				TimeMs: time.Now().UnixMilli() - r.Int64N(6*3_600_000),
				Region: regions[r.IntN(len(regions))],
			}
			cl.Produce(context.WithoutCancel(ctx), record(&e), func(_ *kgo.Record, err error) {
				if err != nil {
					failed = err // one goroutine calls all promises
				}
			})
			if n%200 == 0 {
				pause(s.t, 10*time.Millisecond) // some 20,000 a second
			}
		}
		_ = cl.Flush(context.WithoutCancel(ctx))
	})
	once := sync.OnceValue(func() int {
		cancel()
		wg.Wait()
		assert.NoError(s.t, failed) // FailNow would have OnceValue panic
		return n
	})
	s.t.Cleanup(func() { once() })
	return once
}

// Audits are right while likes pour in and processors come and go, and name exactly
// what is wrong when something is.
func TestAuditWhileLikesPourIn(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	// Small batches: MySQL stands inside of transactions, and between many of them.
	batch := []string{"--set", "processor.max_batch=700"}
	processor := s.processor("processor-0", batch...)
	require.NoError(t, processor.Start(t.Context()))
	stop := s.keepToggling(1, 3000, 400)
	waitFor(t, time.Minute, "counts", func() bool { return len(s.mysqlCounts()) > 2000 })
	for round := range 3 {
		plain, deep := s.audit(0), s.audit(0, "--deep")
		require.Greater(t, plain.Posts.Compared, int64(2000))
		require.GreaterOrEqual(t, deep.Posts.Compared, plain.Posts.Compared)
		require.Greater(t, deep.Hours.Compared, int64(100))
		require.Greater(t, deep.State.Compared, int64(2000))
		if round == 1 {
			require.NoError(t, processor.Kill())
			s.audit(0)
			s.audit(0, "--deep")
			require.NoError(t, processor.Start(t.Context()))
		}
	}
	// Wrong rows, while it goes on. Deltas are added to what is there, so they stay wrong.
	s.db.MustExec("UPDATE like_count SET `count` = `count` + 1000000 WHERE post_id = 7")
	gone := s.goneRow()
	s.db.MustExec("UPDATE like_hourly SET dislikes = dislikes - 500000 ORDER BY hour, region, partition_id LIMIT 1")
	var hour struct {
		Hour      string `db:"h"`
		Region    string
		Partition int32 `db:"partition_id"`
	}
	require.NoError(t, s.db.Get(&hour, "SELECT DATE_FORMAT(hour, '%Y-%m-%d %H') h, region, partition_id FROM like_hourly WHERE dislikes < -100000"))
	s.db.MustExec("INSERT INTO like_hourly VALUES ('2020-01-01 00:00:00', 'DE', 99, 1, 1)")
	for _, deep := range []bool{false, true} {
		args := []string{}
		if deep {
			args = append(args, "--deep")
		}
		r := s.audit(3, args...)
		require.False(t, r.Equal)
		require.Len(t, r.Posts.Rows, 2, "%+v", r.Posts.Rows)
		require.EqualValues(t, 2, r.Posts.Different)
		for _, row := range r.Posts.Rows {
			switch row.PostID {
			case 7:
				require.EqualValues(t, 1_000_000, row.MySQL.Likes-row.Stream.Likes)
				require.Equal(t, row.Stream.Dislikes, row.MySQL.Dislikes)
			case gone.post:
				require.Equal(t, gone.count.likes, row.Stream.Likes-row.MySQL.Likes)
				require.Equal(t, gone.count.dislikes, row.Stream.Dislikes-row.MySQL.Dislikes)
			default:
				t.Fatalf("post %d was not touched", row.PostID)
			}
		}
		if !deep {
			// like_hourly by its totals: those that it differs in, and those that like_count does.
			require.NotEmpty(t, r.Problems)
			continue
		}
		require.Len(t, r.Problems, 1)
		require.Contains(t, r.Problems[0], "like_hourly has a row of partition 99")
		require.Len(t, r.Hours.Rows, 1, "%+v", r.Hours.Rows)
		row := r.Hours.Rows[0]
		require.Equal(t, hour.Hour, row.Hour.Format("2006-01-02 15"))
		require.Equal(t, hour.Region, row.Region)
		require.Equal(t, hour.Partition, row.Partition)
		require.EqualValues(t, -500_000, row.MySQL.Dislikes-row.Stream.Dislikes)
	}
	n := stop()
	t.Logf("events %d", n)
	s.drain(time.Minute)
	out := s.run("audit", "--deep", "--brokers", s.brokerList(), "--set", s.mysql())
	require.Equal(t, 3, out.code)
	require.Contains(t, out.stdout, "2 of ")
	require.Contains(t, out.stdout, "kudos rebuild")
	require.Contains(t, out.stderr, "reading the state table")
}

// gone is a row of like_count that was deleted.
type gone struct {
	post  uint64
	count count
}

// goneRow deletes a row that counts something, and says what.
func (s *system) goneRow() (g gone) {
	tx := s.db.MustBegin()
	require.NoError(s.t, tx.QueryRow("SELECT post_id, `count`, dislike_count FROM like_count WHERE post_id <> 7 AND `count` > 5 LIMIT 1 FOR UPDATE").Scan(&g.post, &g.count.likes, &g.count.dislikes))
	tx.MustExec(fmt.Sprintf("DELETE FROM like_count WHERE post_id = %d", g.post))
	require.NoError(s.t, tx.Commit())
	return g
}
