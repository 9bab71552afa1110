package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// likersOf are all who like a post, page by page.
func (r *reader) likersOf(post uint64) (users []uint64) {
	r.t.Helper()
	for token := ""; ; {
		url := fmt.Sprintf("%s/v1/posts/%d/likers?page_size=1000", r.base, post)
		if token != "" {
			url += "&page_token=" + token
		}
		page := mustAsk[struct {
			Likers []struct {
				UserID uint64 `json:"user_id,string"`
			}
			NextPageToken string `json:"next_page_token"`
		}](r.t, http.MethodGet, url, nil, http.StatusOK)
		for _, l := range page.Likers {
			users = append(users, l.UserID)
		}
		if token = page.NextPageToken; token == "" {
			return users
		}
	}
}

// writeCSV writes events as `kudos import` takes them.
func writeCSV(t testing.TB, events []schema.Event) (path string) {
	var b bytes.Buffer
	b.WriteString("post_id,user_id,action,time_ms,region\n")
	for i := range events {
		e := &events[i]
		fmt.Fprintf(&b, "%d,%d,%s,%d,%s\n", e.PostID, e.UserID, e.Action, e.TimeMs, e.Region)
	}
	path = filepath.Join(t.TempDir(), "likes.csv")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

// A post with user buckets is counted in all partitions: by events whose writer knows of the
// buckets, and by those of one that does not, which are forwarded; while processors and
// rankers are killed. MySQL has the sum in one row, readers answer with it and list everybody
// once, and rankings have it in its place.
func TestAPostWithUserBuckets(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	const hot, events = 1, 60_000 // post 1 has most of the day's likes
	s := newSystem(t)
	// The posts that close the partitions have no buckets: their likes have to reach every partition,
	// for one that stays an hour behind the others holds up the rankings.
	day := aDay(events)
	other := day[0].PostID
	s.userBuckets = map[uint64]int{hot: 16, other: 2}
	kafka := shared.Kafka(t)
	require.NoError(t, kafka.Reset(t.Context()))
	s.brokers, s.dsn = kafka.Brokers(), shared.MariaDB(t).NewDatabase(t)
	s.prepare()
	r := rand.New(rand.NewPCG(5, 5))
	for i := range day[:events] {
		if r.IntN(3) == 0 {
			day[i].PostID = hot
		}
	}

	victim, ranker := s.processor("processor-0"), s.ranker("ranker", busy...)
	for _, p := range []*stack.Server{victim, s.processor("processor-1"), ranker} {
		require.NoError(t, p.Start(t.Context()))
	}
	for i, part := range slices.Collect(slices.Chunk(day, len(day)/6+1)) {
		if i%2 == 0 {
			s.command("import", writeCSV(t, part), "--brokers", s.brokerList(), "--set", s.buckets())
		} else {
			s.produce(records(part)) // the post's id alone is the key
		}
		if i == 2 {
			require.NoError(t, victim.Kill())
			require.NoError(t, ranker.Kill())
			require.NoError(t, victim.Start(t.Context()))
			require.NoError(t, ranker.Start(t.Context()))
		}
	}
	s.drain(3 * time.Minute)
	s.requireExact()

	var hotHours []int32
	require.NoError(t, s.db.Select(&hotHours, "SELECT DISTINCT partition_id FROM like_hourly"))
	require.Len(t, hotHours, partitions)
	want := s.mysqlCounts()
	require.Greater(t, want[hot].likes, int64(1000))
	require.Positive(t, want[other].likes)

	require.True(t, s.audit(0).Equal)
	require.True(t, s.audit(0, "--deep").Equal)
	_, err := s.db.Exec("UPDATE like_count SET count = count + 1 WHERE post_id = ?", hot)
	require.NoError(t, err)
	require.False(t, s.audit(3).Equal)
	s.rebuild()
	s.requireExact()
	require.True(t, s.audit(0, "--deep").Equal)

	reader := s.reader("reader")
	reader.start()
	s.exactness().wait(reader)
	posts := []uint64{}
	for post := range want {
		posts = append(posts, post)
	}
	require.Equal(t, want, reader.counted(posts))
	users := reader.likersOf(hot)
	require.Len(t, users, int(want[hot].likes))
	require.True(t, slices.IsSorted(users))
	require.Len(t, slices.Compact(slices.Clone(users)), len(users), "nobody twice")
	for _, user := range users[:50] {
		answer := mustAsk[struct{ Reaction string }](t, http.MethodGet, reader.base+"/v1/posts/1/likes/"+strconv.FormatUint(user, 10), nil, http.StatusOK)
		require.Equal(t, "LIKE", answer.Reaction)
	}
	s.waitRanked(rankingSettings, rankedWithin(events))
}

// A post that has reactions already gets user buckets, and loses them again: its counts are
// the same in between, and go on from there.
func TestAPostGetsUserBuckets(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	const hot, fans = 1, 3000
	s := newRealSystem(t)
	for i := range 2 {
		require.NoError(t, s.processor(fmt.Sprintf("processor-%d", i), "--set", "processor.park_interval=1s").Start(t.Context()))
	}
	reader := s.reader("reader")
	reader.start()
	like := func(from, to uint64) {
		var events []schema.Event
		for user := from; user < to; user++ {
			events = append(events, schema.Event{PostID: hot, UserID: user, Action: schema.Like, TimeMs: 1000 + int64(user), Region: schema.UnknownRegion},
				schema.Event{PostID: 2 + user%50, UserID: user, Action: schema.Like, TimeMs: 1000 + int64(user), Region: schema.UnknownRegion})
		}
		s.produce(records(events))
	}
	likes := int64(0)
	counted := func() bool { // the hot post's, and as many of the others together
		sum, counts := int64(0), s.mysqlCounts()
		for _, c := range counts {
			sum += c.likes
		}
		return counts[hot].likes == likes && sum == 2*likes
	}
	for i, list := range []string{"1:16", "1:3,7:2", ""} {
		from := uint64(1 + i*fans)
		like(from, from+fans)
		likes += fans
		waitFor(t, time.Minute, "the likes to be counted", counted)
		before := s.mysqlCounts()
		out := s.run("topics", "repartition", "--brokers", s.brokerList(), "--set", s.mysql(), "--set", "topics.partitions=4", "--set", "topics.replication_factor=1", "--set", "topics.user_buckets="+list)
		require.Zero(t, out.code, "%s%s", out.stdout, out.stderr)
		require.Equal(t, before, s.mysqlCounts())
		like(from+fans/2, from+fans) // once more
		like(1_000_000+from, 1_000_000+from+10)
		likes += 10
		waitFor(t, time.Minute, "likes behind it to be counted", counted)
		waitFor(t, time.Minute, "an audit that can compare", func() bool {
			return s.run("audit", "--deep", "--brokers", s.brokerList(), "--set", s.mysql()).code == 0
		})
		require.Equal(t, likes, s.mysqlCounts()[hot].likes)
		waitFor(t, time.Minute, "the reader to have it", func() bool { return reader.ready() && reader.counted([]uint64{hot})[hot].likes == likes })
		require.Len(t, reader.likersOf(hot), int(likes))
	}
}
