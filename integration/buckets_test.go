package integration

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func (r *reader) likersOf(post uint64) (users []uint64) {
	for token := ""; ; { // by token; "" is the first page
		page := get[struct {
			Likers []struct {
				UserID uint64 `json:"user_id,string"`
			}
			NextPageToken string `json:"next_page_token"`
		}](r.t, "%s/v1/posts/%d/likers?page_size=1000%s", r.base, post, token)
		for _, l := range page.Likers {
			users = append(users, l.UserID)
		}
		if page.NextPageToken == "" {
			return users
		}
		token = "&page_token=" + page.NextPageToken
	}
}

func writeCSV(t testing.TB, events []schema.Event) (path string) {
	var b bytes.Buffer
	b.WriteString("post_id,user_id,action,time_ms,region\n")
	for _, e := range events {
		fmt.Fprintf(&b, "%d,%d,%s,%d,%s\n", e.PostID, e.UserID, e.Action, e.TimeMs, e.Region)
	}
	path = filepath.Join(t.TempDir(), "likes.csv")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

// A post with user buckets is counted in all partitions, by events from clients that know of the buckets, and from one
// that does not, whose events are forwarded. Processors and rankers are killed meanwhile. MySQL has the sum in one row,
// readers return it and list every user once, and rankings rank it.
func TestAPostWithUserBuckets(t *testing.T) {
	const hot, events = 1, 60_000 // post 1 has most of the day's likes
	// The last likes must reach every partition, and so their posts must not have buckets: one partition that stays an
	// hour behind the others delays the rankings.
	var day []schema.Event
	s := verified(t, func(s *system) {
		day = aDay(events)
		s.userBuckets = map[uint64]int{hot: 16, day[0].PostID: 2}
	})
	other := day[0].PostID
	r := rand.New(rand.NewPCG(5, 5))
	for i := range day[:events] {
		if r.IntN(3) == 0 {
			day[i].PostID = hot
		}
	}

	victim, ranker := s.twoProcessors()[0], s.ranker("ranker", busy...).start()
	for i, part := range slices.Collect(slices.Chunk(day, len(day)/6+1)) {
		if i%2 == 0 {
			s.command("import", writeCSV(t, part), "--brokers", s.brokerList(), "--set", s.buckets())
		} else {
			s.produce(part...) // with the post's id alone as key
		}
		if i == 2 {
			victim.kill()
			ranker.kill()
			victim.start()
			ranker.start()
		}
	}
	s.drainExact(3 * time.Minute)

	var hotHours []int32
	require.NoError(t, s.db.Select(&hotHours, "SELECT DISTINCT partition_id FROM like_hourly"))
	require.Len(t, hotHours, partitions)
	want := s.mysqlCounts()
	require.Greater(t, want[hot].likes, int64(1000))
	require.Positive(t, want[other].likes)

	require.True(t, s.audit(0).Equal)
	require.True(t, s.audit(0, "--deep").Equal)
	s.db.MustExec("UPDATE like_count SET count = count + 1 WHERE post_id = ?", hot)
	require.False(t, s.audit(3).Equal)
	s.rebuild()
	s.requireExact()
	require.True(t, s.audit(0, "--deep").Equal)

	reader := s.startReader("reader")
	s.exactness().wait(reader)
	requireSame(t, "a reader", want, reader.counted(slices.Collect(maps.Keys(want))))
	users := reader.likersOf(hot)
	require.Len(t, users, int(want[hot].likes))
	require.True(t, slices.IsSorted(users))
	require.Len(t, slices.Compact(slices.Clone(users)), len(users), "duplicate users")
	for _, user := range users[:50] {
		require.Equal(t, "LIKE", get[likes](t, "%s/v1/posts/1/likes/%d", reader.base, user).Reaction)
	}
	s.waitRanked(rankingSettings, rankedWithin(events))
}

// A post with reactions gets user buckets, and loses them again: its counts do not change, and counting continues.
func TestAPostGetsUserBuckets(t *testing.T) {
	const hot, fans = 1, 3000
	s := verified(t)
	s.twoProcessors("--set", "processor.park_interval=1s")
	reader := s.startReader("reader")
	likeTwo := func(from, to uint64) { // the hot post, and one of the others
		s.pour(func(send func(schema.Event)) {
			for user := from; user < to; user++ {
				send(like(hot, user, 1000+int64(user)))
				send(like(2+user%50, user, 1000+int64(user)))
			}
		})
	}
	likes := int64(0)
	counted := func() bool { // the hot post's likes equal those of all others together
		sum, counts := int64(0), s.mysqlCounts()
		for _, c := range counts {
			sum += c.likes
		}
		return counts[hot].likes == likes && sum == 2*likes
	}
	for i, list := range []string{"1:16", "1:3,7:2", ""} {
		from := uint64(1 + i*fans)
		likeTwo(from, from+fans)
		likes += fans
		waitFor(t, time.Minute, "the likes to be counted", counted)
		before := s.mysqlCounts()
		s.repartition(partitions, "--set", "topics.user_buckets="+list)
		require.Equal(t, before, s.mysqlCounts())
		likeTwo(from+fans/2, from+fans) // duplicates
		likeTwo(1_000_000+from, 1_000_000+from+10)
		likes += 10
		waitFor(t, time.Minute, "later likes to be counted", counted)
		waitFor(t, time.Minute, "an audit without differences", func() bool {
			return s.operate("audit", "--deep").code == 0
		})
		require.Equal(t, likes, s.mysqlCounts()[hot].likes)
		reader.waitCounts(map[uint64]count{hot: {likes: likes}})
		require.Len(t, reader.likersOf(hot), int(likes))
	}
}
