package schema

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// goldenRanking reads a golden record. These are the contract that consumers outside of this program rely on.
func goldenRanking(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return bytes.TrimSuffix(text, []byte("\n"))
}

func minuteAt(t *testing.T, text string) Minute {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return Minute(at.Unix() / 60)
}

// aRanking is the content of testdata/ranking.json.
func aRanking(t *testing.T) *Ranking {
	return &Ranking{
		Version: 1, Region: "DE", Window: "1h",
		RankingBasis: RankingBasis{
			From: minuteAt(t, "2026-03-01T11:05:00Z"), To: minuteAt(t, "2026-03-01T12:05:00Z"),
			Watermark:  minuteAt(t, "2026-03-01T12:04:00Z"),
			Exclusions: 7,
			Positions: []RankingPosition{
				{Partition: 0, Offset: 123456, Idle: NoMinute, Exclusions: 7},
				{Partition: 1, Offset: 0, Idle: minuteAt(t, "2026-03-01T12:06:00Z"), Exclusions: 6},
			},
		},
		Posts: []RankedPost{
			{Rank: 1, PreviousRank: 2, PostID: math.MaxUint64, Score: 31_500_000, Likes: 40},
			{Rank: 2, PreviousRank: 0, PostID: 42, Score: 1, Likes: 5},
		},
		Score: "decay", HalfLife: "30m", TopN: 100, MinLikes: 5,
		Previous: &RankingBasis{
			From: minuteAt(t, "2026-03-01T11:04:00Z"), To: minuteAt(t, "2026-03-01T12:04:00Z"),
			Watermark:  minuteAt(t, "2026-03-01T12:03:00Z"),
			Exclusions: 6,
			Positions: []RankingPosition{
				{Partition: 0, Offset: 123000, Idle: NoMinute, Exclusions: 6},
				{Partition: 1, Offset: 0, Idle: NoMinute, Exclusions: 6},
			},
		},
	}
}

// aLeaderboard is the content of testdata/leaderboard.json: the first all-time leaderboard, empty.
func aLeaderboard() *Ranking {
	return &Ranking{
		Version: 1, Region: GlobalName, Window: LeaderboardAll,
		RankingBasis: RankingBasis{From: NoMinute, To: NoMinute, Watermark: NoMinute,
			Positions: []RankingPosition{{Partition: 0, Offset: 1, Idle: NoMinute}}},
		Posts: []RankedPost{{Rank: 1, PostID: 9, Score: 3 * ScoreOne, Likes: 3}},
		Score: "count", TopN: 10, MinLikes: 1,
	}
}

func TestGoldenRanking(t *testing.T) {
	for name, want := range map[string]*Ranking{"ranking.json": aRanking(t), "leaderboard.json": aLeaderboard()} {
		golden := goldenRanking(t, name)
		got, err := DecodeRanking(golden)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
		bytes, err := EncodeRanking(got)
		require.NoError(t, err)
		require.Equal(t, string(golden), string(bytes), name)
		require.NotContains(t, string(bytes), "\n", "one line, for kcat")
	}
}

func TestDecodeRankingRejectsInvalidInput(t *testing.T) {
	golden := string(goldenRanking(t, "ranking.json"))
	for name, c := range map[string]struct{ old, new, want string }{
		"later version":     {`"version":1`, `"version":2`, "unknown version 2, expected 1; run a later version of kudos"},
		"no version":        {`"version":1,`, ``, "unknown version 0, expected 1"},
		"truncated record":  {golden[len(golden)/2:], "", "unexpected end of JSON"},
		"negative score":    {`"score":31.5`, `"score":-1`, "score -1"},
		"score as a string": {`"score":31.5`, `"score":"31.5"`, "score"},
		"too many decimals": {`"score":31.5`, `"score":31.5000001`, "more than 6 decimals"},
		"score too large":   {`"score":31.5`, `"score":9223372036855`, "value out of range"},
		"malformed time":    {`"2026-03-01T12:05:00Z"`, `"noon"`, "noon"},
		"malformed post id": {`"post_id":"42"`, `"post_id":"x"`, `unmarshal "x" into uint64`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, golden, c.old)
			_, err := DecodeRanking([]byte(strings.Replace(golden, c.old, c.new, 1)))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "decoding a ranking")
		})
	}
}

func TestScoreIsADecimalNumber(t *testing.T) {
	for score, text := range map[Score]string{
		0: "0", 1: "0.000001", 10: "0.00001", 500_000: "0.5", ScoreOne - 1: "0.999999", ScoreOne: "1",
		100 * ScoreOne: "100", 12_345_678: "12.345678", math.MaxInt64: "9223372036854.775807",
	} {
		require.Equal(t, text, score.String())
		value, err := json.Marshal(score)
		require.NoError(t, err)
		require.Equal(t, text, string(value))
		var back Score
		require.NoError(t, json.Unmarshal(value, &back))
		require.Equal(t, score, back, text)
	}
}

func TestMinuteIsATime(t *testing.T) {
	for minute, text := range map[Minute]string{
		NoMinute: `null`, 0: `"1970-01-01T00:00:00Z"`, -1: `"1969-12-31T23:59:00Z"`,
		29_539_445: `"2026-03-01T12:05:00Z"`,
	} {
		value, err := json.Marshal(minute)
		require.NoError(t, err)
		require.Equal(t, text, string(value))
		var back Minute
		require.NoError(t, json.Unmarshal(value, &back))
		require.Equal(t, minute, back, text)
	}
	require.Equal(t, "none", NoMinute.String())
	require.True(t, NoMinute.Time().IsZero())
	require.Equal(t, "1970-01-01T00:01:00Z", Minute(1).String())
}

func TestNamesInRankings(t *testing.T) {
	for size, want := range map[time.Duration]string{
		time.Minute: "1m", 10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m",
		24 * time.Hour: "24h", 7 * 24 * time.Hour: "168h",
	} {
		name := WindowName(size)
		require.Equal(t, want, name)
		back, err := time.ParseDuration(name)
		require.NoError(t, err)
		require.Equal(t, size, back)
	}
	us, ok := ParseRegion("us-ca")
	require.True(t, ok)
	require.Equal(t, "US-CA/10m", RankingKey(RankingRegion(us), "10m"))
	require.Equal(t, "global/all", RankingKey(RankingRegion(Global), LeaderboardAll))
}

func TestExclusions(t *testing.T) {
	for text, want := range map[string]Exclusion{
		``:                                    {},
		`{}`:                                  {},
		`{"excluded":false}`:                  {},
		`{"excluded":true}`:                   {Excluded: true},
		`{"excluded":true,"reason":"\u00fc"}`: {Excluded: true, Reason: "ü"},
	} {
		got, err := DecodeExclusion([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	value := AppendExclusion([]byte("x"), Exclusion{Excluded: true, Reason: "spam"})
	require.Equal(t, `x{"excluded":true,"reason":"spam"}`, string(value))
	_, err := DecodeExclusion([]byte("yes"))
	require.ErrorContains(t, err, "decoding an exclusion")
}
