package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/dev/testkit"
	"kudos/ranker"
	"kudos/schema"
)

func rankingsBroker(t *testing.T) (brokers string, k *devtest.Kafka) {
	t.Helper()
	k = devtest.NewKafka(t, kfake.SeedTopics(3, schema.TopicTrending))
	return k.Options.Brokers[0], k
}

func hourRanking(region, window string, post uint64) *schema.Ranking {
	to := schema.Minute(time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC).Unix() / 60)
	return &schema.Ranking{
		Version: schema.RankingVersion, Region: region, Window: window, Score: "count", TopN: 100, MinLikes: 1,
		RankingBasis: schema.RankingBasis{From: to - 60, To: to, Watermark: to - 1},
		Posts:        []schema.RankedPost{{Rank: 1, PostID: post, Likes: 3, Score: 3 * schema.ScoreOne}},
	}
}

func writeRankings(t *testing.T, k *devtest.Kafka, rankings ...*schema.Ranking) {
	t.Helper()
	for _, r := range rankings {
		value, err := schema.EncodeRanking(r)
		require.NoError(t, err)
		key := []byte(schema.RankingKey(r.Region, r.Window))
		partition := schema.KeyPartition(key, 3)
		k.Write(&kgo.Record{Topic: schema.TopicTrending, Partition: partition, Key: key, Value: value})
	}
}

// requireOnlyProgress requires that stderr has nothing but the progress of a search, which appears after a second.
func requireOnlyProgress(t *testing.T, stderr string) {
	t.Helper()
	for line := range strings.Lines(stderr) {
		require.Regexp(t, `^trending: searching for the ranking: `, line)
	}
}

func TestTrendingShowsTheLatestRanking(t *testing.T) {
	brokers, k := rankingsBroker(t)
	latest := hourRanking("global", "1h", 7)
	latest.Posts = append(latest.Posts,
		schema.RankedPost{Rank: 2, PreviousRank: 4, PostID: 18446744073709551615, Likes: 2, Score: 2 * schema.ScoreOne},
		schema.RankedPost{Rank: 3, PreviousRank: 3, PostID: 8, Likes: 1, Score: schema.ScoreOne},
		schema.RankedPost{Rank: 4, PreviousRank: 1, PostID: 9, Likes: 1, Score: schema.ScoreOne})
	writeRankings(t, k,
		hourRanking("global", "1h", 6), latest, hourRanking("global", "10m", 5), hourRanking("US-CA", "1h", 4))

	stdout, stderr := done(t, "trending", "--brokers", brokers)
	requireOnlyProgress(t, stderr)
	header, table, _ := strings.Cut(stdout, "\n")
	const window = `2026-03-01 11:05 to 12:05 UTC   watermark 12:04`
	require.Regexp(t, `^global/1h   `+window+`   written (just now|\d+s ago)$`, header)
	require.Equal(t, `
   RANK                         POST   LIKES
      1   new                      7       3
      2    ↑2   18446744073709551615       2
      3     =                      8       1
      4    ↓3                      9       1
`, table)

	stdout, _ = done(t, "trending", "--brokers", brokers, "--region", "us-ca", "--window", "60m", "--output", "json")
	want, err := schema.EncodeRanking(hourRanking("US-CA", "1h", 4))
	require.NoError(t, err)
	require.Equal(t, string(want)+"\n", stdout, "exactly as stored in Kafka")

	stdout, _ = done(t, "trending", "--brokers", brokers, "--set", "ranker.windows=10m,24h")
	require.Contains(t, stdout, "global/10m", "the first window, if 1h is not configured")
}

func tableOf(r *schema.Ranking, age time.Duration) string {
	now := time.Now()
	return string(trendingTable(&ranker.WrittenRanking{Ranking: r, At: now.Add(-age)}, now))
}

func TestTrendingShowsScoresThatAreNotCounts(t *testing.T) {
	r := hourRanking("DE", "24h", 42)
	r.From, r.Score, r.HalfLife = r.To-24*60, "decay", "30m"
	r.Posts[0].Score = 2_500_000
	table := tableOf(r, 90*time.Second)
	require.Equal(t, `DE/24h   2026-02-28 12:05 to 2026-03-01 12:05 UTC   watermark 12:04   written 1m ago

   RANK         POST   LIKES   SCORE
      1   new     42       3     2.5
`, table)
}

func TestTrendingShowsLeaderboardsAndEmptyRankings(t *testing.T) {
	r := hourRanking("global", schema.LeaderboardAll, 42)
	r.From, r.To, r.Watermark = schema.NoMinute, schema.NoMinute, schema.NoMinute
	require.Contains(t, tableOf(r, 72*time.Hour), "global/all   all time   written 3 days ago\n")

	r.From = 29_539_445
	require.Contains(t, tableOf(r, 0), "global/all   since 2026-03-01 12:05 UTC   written just now\n")

	r.Posts, r.MinLikes = nil, 5
	table := tableOf(r, -time.Minute)
	require.Contains(t, table, "written just now", "even if the clocks differ")
	require.Contains(t, table, "No post has enough likes in this window (minimum 5).")
}

func TestTrendingWithoutRankings(t *testing.T) {
	fails(t, exitFailed, []string{"trending", "--brokers", likesBroker(t)},
		"topic trending does not exist", "kudos topics apply")
	brokers, k := rankingsBroker(t)
	trending := []string{"trending", "--brokers", brokers}
	fails(t, exitFailed, trending, "no ranking at all", "kudos ranker")
	writeRankings(t, k, hourRanking("global", "1h", 6))
	fails(t, exitFailed, append(trending, "--window", "2h", "--region", "de", "--output", "json"),
		"no ranking of DE/2h", "ranker.windows; here: 10m, 1h, 24h")
	_, _, stderr := kudos(t, "", append(trending, "--window", "day")...)
	require.Contains(t, stderr, "no ranking of global/day")
	require.NotContains(t, stderr, "ranker.windows")
}

func TestTrendingChecksItsArguments(t *testing.T) {
	usedWrongly(t, "trending", map[string]string{
		"--window week":                  `--window "week" is not a window: use 10m, 1h, 24h, day, all`,
		"--window 90s":                   `--window "90s" is not a window`,
		"--window -1h":                   `--window "-1h" is not a window`,
		"--window=":                      `--window "" is not a window`,
		"--region Germany":               `--region "Germany" is neither global nor an ISO 3166 code`,
		"--region=":                      `--region "" is neither`,
		"global":                         `unknown command "global"`,
		"--window x":                     "kudos trending --help",
		"--window 7s --region Germany":   `"7s"`, // all errors
		"--window week --region Germany": `"Germany"`,
	})
}

func waitText(t *testing.T, b *testkit.Output, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(b.String(), text) }, 20*time.Second, 5*time.Millisecond,
		"want %q in:\n%s", text, b)
}

func TestTrendingFollows(t *testing.T) {
	brokers, k := rankingsBroker(t)
	writeRankings(t, k, hourRanking("global", "1h", 1001))
	r := start(t, "trending", "--follow", "--brokers", brokers)
	waitText(t, &r.stdout, "1001")
	writeRankings(t, k, hourRanking("DE", "1h", 1002), hourRanking("global", "1h", 1003))
	waitText(t, &r.stdout, "1003")
	require.Equal(t, exitDone, r.end(t), "Ctrl-C must be a normal exit")
	requireOnlyProgress(t, r.stderr.String())
	require.NotContains(t, r.stdout.String(), "1002")
	require.Equal(t, 2, strings.Count(r.stdout.String(), "global/1h"), "want both tables in sequence:\n%s", &r.stdout)
	require.NotContains(t, r.stdout.String(), "\x1b", "no escape sequences without a terminal")
}

func TestTrendingFollowsFromAnEmptyTopic(t *testing.T) {
	brokers, k := rankingsBroker(t)
	r := start(t, "trending", "--follow", "--brokers", brokers, "--output", "json")
	waitText(t, &r.stderr, "Waiting for the first one")
	writeRankings(t, k, hourRanking("global", "1h", 1001), hourRanking("global", "1h", 1002))
	waitText(t, &r.stdout, `"1002"`)
	require.Equal(t, exitDone, r.end(t))
	lines := strings.Split(strings.TrimSpace(r.stdout.String()), "\n")
	require.Len(t, lines, 2, "one line per ranking")
	for _, line := range lines {
		require.True(t, json.Valid([]byte(line)), line)
	}

	r = start(t, "trending", "--follow", "--brokers", likesBroker(t))
	waitText(t, &r.stderr, "kudos topics apply")
	require.Equal(t, exitFailed, r.end(t), "a missing topic must be a failure")
}

// TestTrendingOnATerminal simulates the lines of a terminal.
func TestTrendingOnATerminal(t *testing.T) {
	r := hourRanking("global", "1h", 1)
	for rank := 2; rank <= 10; rank++ {
		r.Posts = append(r.Posts, schema.RankedPost{Rank: rank, PreviousRank: rank, PostID: uint64(rank), Likes: 1})
	}
	var out strings.Builder
	v := newTrendingView(&out, "text", true)
	width, height := 40, 8
	v.size = func() (int, int) { return width, height }
	drawn := func(f func(w *ranker.WrittenRanking, at time.Time) error, at time.Time) (up int, lines []string) {
		t.Helper()
		out.Reset()
		require.NoError(t, f(&ranker.WrittenRanking{Ranking: r, At: time.Unix(100, 0)}, at))
		if out.Len() == 0 {
			return 0, nil
		}
		ups, rest, ok := strings.Cut(out.String(), eraseBelow)
		require.True(t, ok, "%q", out.String())
		return len(ups) / len(lineUp), strings.Split(strings.TrimSuffix(rest, "\n"), "\n")
	}
	refresh := func(_ *ranker.WrittenRanking, at time.Time) error { return v.refresh(at) }

	_, lines := drawn(refresh, time.Unix(100, 0))
	require.Empty(t, lines, "nothing is shown yet")
	up, lines := drawn(v.show, time.Unix(103, 0))
	require.Zero(t, up)
	require.Len(t, lines, 7, "everything must fit, with the cursor below")
	require.Equal(t, "… 7 more", lines[6])
	for _, line := range lines {
		require.LessOrEqual(t, len([]rune(line)), width)
	}
	_, lines = drawn(refresh, time.Unix(103, 5e8))
	require.Empty(t, lines, "it is too early to redraw")
	width, height = 200, 100
	up, lines = drawn(refresh, time.Unix(104, 0))
	require.Equal(t, 7, up, "the new text must replace the old")
	require.Len(t, lines, 13)
	require.Contains(t, lines[0], "written 4s ago")
	up, _ = drawn(v.show, time.Unix(105, 0))
	require.Equal(t, 13, up)
}
