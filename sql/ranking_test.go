package sql

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func rankingsTopic() Source {
	return Source{Topic: schema.TopicTrending, TopicID: [16]byte{0xbe, 0xef, 15: 2}, Partitions: 4}
}

// rankedStore is a store on a migrated database, with every partition at the start of rankingsTopic.
func (d database) rankedStore(t testing.TB, change ...func(*Options)) *Store {
	t.Helper()
	s := d.migrated(t).store(t, change...)
	for partition := range rankingsTopic().Partitions {
		requireAt(t, start, (*Store).RankingPosition, s, rankingsTopic(), partition)
	}
	return s
}

func offset(next int64) Position { return Position{NextOffset: next, LeaderEpoch: 7} }

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// ranked is a ranking of n posts; first is the post with rank 1.
func ranked(region, window string, n int, first uint64) Ranking {
	r := Ranking{Region: region, Window: window, AsOf: noon}
	for i := range n {
		r.Posts = append(r.Posts, RankedPost{PostID: first + uint64(i), Score: schema.Score(n-i) * schema.ScoreOne / 2,
			Likes: int64(n - i)})
	}
	return r
}

// rankings returns both tables: by key, the rows in rank order.
func (d database) rankings(t testing.TB) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, query := range []string{
		"SELECT CONCAT(region, '/', `window`) k, CONCAT_WS(' ', `rank`, post_id, CAST(score AS CHAR), likes, as_of) " +
			"v FROM trending ORDER BY region, `window`, `rank`",
		"SELECT CONCAT(region, '/', period) k, CONCAT_WS(' ', `rank`, post_id, likes, as_of) v FROM leaderboard " +
			"ORDER BY region, period, `rank`",
	} {
		var rows []struct{ K, V string }
		require.NoError(t, d.raw(t).Select(&rows, query))
		for _, row := range rows {
			all[row.K] = append(all[row.K], row.V)
		}
	}
	return all
}

func replace(t testing.TB, s *Store, src Source, partition int32, from, to Position, rankings ...Ranking) {
	t.Helper()
	require.NoError(t, s.ReplaceRankings(t.Context(), src, partition, from, to, rankings))
}

func TestRankingsAreReplacedWhole(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.rankedStore(t)
		src := rankingsTopic()
		replace(t, s, src, 1, start, offset(10), ranked("US", "1h", 3, 100), ranked("US-CA", "10m", 1, math.MaxUint64),
			ranked("US", "day", 2, 7), ranked("global", "24h", 0, 0),
			Ranking{Region: "global", Window: "all", Posts: []RankedPost{{PostID: 1, Likes: math.MaxInt64}}})
		want := map[string][]string{
			"US/1h": {"1 100 1.500000 3 2026-07-01 12:00:00", "2 101 1.000000 2 2026-07-01 12:00:00",
				"3 102 0.500000 1 2026-07-01 12:00:00"},
			"US-CA/10m":  {"1 18446744073709551615 0.500000 1 2026-07-01 12:00:00"},
			"US/day":     {"1 7 2 2026-07-01 12:00:00", "2 8 1 2026-07-01 12:00:00"},
			"global/all": {"1 1 9223372036854775807"},
		}
		require.Equal(t, want, db.rankings(t))

		// Rankings that are longer, shorter, empty, and absent.
		shorter := ranked("US", "1h", 1, 200)
		shorter.AsOf = noon.Add(time.Minute).In(time.FixedZone("east", 3600))
		shorter.Posts[0].Score = math.MaxInt64
		replace(t, s, src, 1, offset(10), offset(12), ranked("US", "day", 0, 0), shorter, ranked("global", "all", 2, 5))
		want["US/1h"] = []string{"1 200 9223372036854.775807 1 2026-07-01 12:01:00"}
		delete(want, "US/day")
		want["global/all"] = []string{"1 5 2 2026-07-01 12:00:00", "2 6 1 2026-07-01 12:00:00"}
		require.Equal(t, want, db.rankings(t))
		requireAt(t, offset(12), (*Store).RankingPosition, s, src, 1)
	})
}

// A restored database has an earlier position and rankings. Applying the log again must restore the current ones.
func TestRewoundPositionAppliesAgain(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s, src := db.rankedStore(t), rankingsTopic()
		replace(t, s, src, 0, start, offset(5), ranked("US", "1h", 4, 100), ranked("DE", "all", 1, 1))
		replace(t, s, src, 0, offset(5), offset(9), ranked("US", "1h", 2, 200), ranked("DE", "all", 3, 1))
		want := db.rankings(t)
		raw := db.raw(t)
		raw.MustExec("UPDATE trending_position SET next_offset = 5 WHERE partition_id = 0")
		raw.MustExec("DELETE FROM trending")
		raw.MustExec("INSERT INTO trending VALUES ('US', '1h', 1, 9, 1, 1, NULL), ('US', '1h', 2, 8, 1, 1, NULL), " +
			"('US', '1h', 3, 7, 1, 1, NULL)")
		position, err := s.RankingPosition(t.Context(), src, 0)
		require.NoError(t, err)
		replace(t, s, src, 0, position, offset(9), ranked("US", "1h", 2, 200), ranked("DE", "all", 3, 1))
		require.Equal(t, want, db.rankings(t))

		// Move back on purpose, to read the log from its start.
		replace(t, s, src, 0, offset(9), offset(3))
		requireAt(t, offset(3), (*Store).RankingPosition, s, src, 0)
		require.Equal(t, want, db.rankings(t))
	})
}

func TestRankingsOfAnotherLogRestart(t *testing.T) {
	inEachCase(t, otherLogs, func(t *testing.T, db database, change func(*Source)) {
		s := db.rankedStore(t)
		old, now := rankingsTopic(), rankingsTopic()
		change(&now)
		replace(t, s, old, 0, start, offset(10), ranked("US", "1h", 2, 100))
		replace(t, s, old, 1, start, offset(10), ranked("US", "day", 2, 100))
		requireAt(t, start, (*Store).RankingPosition, s, now, 0)
		require.Empty(t, db.rankings(t), "the new log may lack the old log's keys")

		replace(t, s, now, 0, start, offset(2), ranked("DE", "1h", 1, 1))
		want := db.rankings(t)
		for partition := range now.Partitions {
			stands := start
			if partition == 0 {
				stands = offset(2)
			}
			requireAt(t, stands, (*Store).RankingPosition, s, now, partition)
		}
		require.Equal(t, want, db.rankings(t), "the other partitions have nothing left to delete")
		err := s.ReplaceRankings(t.Context(), old, 1, offset(10), offset(11), []Ranking{ranked("US", "day", 1, 100)})
		require.ErrorIs(t, err, ErrPositionMoved, "a writer that still reads the old log")
	})
}

// Two workers of one partition, over faulty connections, each resume where the other is. In the end the rankings must
// be the last ones of the log, whoever wrote last and however often something was repeated.
func TestRankingsMatchTheLogWhateverFails(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		log := make([]Ranking, 200)
		for i := range log {
			region, window := []string{"DE", "US", "global"}[random.IntN(3)], []string{"1h", "day"}[random.IntN(2)]
			log[i] = ranked(region, window, random.IntN(6), random.Uint64N(1000))
		}
		expected := database{options: db.options}
		if !db.real {
			expected = embeddedDatabase(t)
		}
		workOnFaults(t, db, seed, func(s *Store, random *rand.Rand) {
			followLog(t, s, (*Store).RankingPosition, rankingsTopic(), int64(len(log)), random,
				func(from Position, to int64) error {
					batch := newestOf(log[from.NextOffset:to])
					return s.ReplaceRankings(t.Context(), rankingsTopic(), 2, from, offset(to), batch)
				})
		})
		have := db.rankings(t)
		s := expected.migrated(t).store(t)
		expected.raw(t).MustExec("DELETE FROM trending")
		expected.raw(t).MustExec("DELETE FROM leaderboard")
		position, err := s.RankingPosition(t.Context(), rankingsTopic(), 0)
		require.NoError(t, err)
		replace(t, s, rankingsTopic(), 0, position, offset(1000), newestOf(log)...)
		require.Equal(t, expected.rankings(t), have)
	})
}

// newestOf returns the last ranking of each key.
func newestOf(log []Ranking) []Ranking {
	newest := map[string]Ranking{}
	for _, r := range log {
		newest[schema.RankingKey(r.Region, r.Window)] = r
	}
	return slices.Collect(maps.Values(newest))
}

// Rows are locked in the order of statements and rows, and rankings that did not shrink need no DELETE.
func TestReplaceRankingsLocksItsOwnRowsInOrder(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.rankedStore(t, func(o *Options) { o.MaxStatementBytes = minStatementBytes })
	replace(t, s, rankingsTopic(), 0, start, offset(1), ranked("US", "1h", 60, 1), ranked("DE", "day", 2, 1))
	proxy.seen()
	replace(t, s, rankingsTopic(), 0, offset(1), offset(2),
		ranked("US", "1h", 40, 1), ranked("DE", "day", 2, 1), ranked("DE", "1h", 40, 1))
	queries := proxy.seen()
	require.Equal(t, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", queries[0])
	require.Contains(t, queries[2], "UPDATE trending_position SET next_offset = 2", "the position must be moved first")
	require.Equal(t, "COMMIT", queries[len(queries)-1])
	var kinds, upserted, deleted []string
	for _, query := range queries[3 : len(queries)-1] {
		kind := strings.Join(strings.Fields(query)[:3], " ")
		if len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
		require.LessOrEqual(t, len(query), minStatementBytes)
		for _, row := range regexp.MustCompile(`\('(\w+)','1h',(\d+),`).FindAllStringSubmatch(query, -1) {
			upserted = append(upserted, row[1]+row[2])
		}
		if strings.HasPrefix(query, "DELETE") {
			deleted = append(deleted, query)
		}
	}
	require.Equal(t, []string{"SELECT region, `window`", "INSERT INTO trending", "DELETE FROM trending",
		"SELECT region, period", "INSERT INTO leaderboard"}, kinds)
	var want []string
	for _, region := range []string{"DE", "US"} {
		for rank := range 40 {
			want = append(want, fmt.Sprint(region, rank+1))
		}
	}
	require.Equal(t, want, upserted)
	require.Equal(t, []string{"DELETE FROM trending WHERE region = 'US' AND `window` = '1h' AND `rank` IN " +
		"(41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60)"}, deleted)
}

func TestReplaceRankingsRejectsImpossibleInput(t *testing.T) {
	s := noServer(t).store(t) // no statement may be sent
	far := ranked("US", "1h", 1, 1)
	far.AsOf = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	below := ranked("US", "1h", 1, 1)
	below.Posts[0].Score = -1
	for name, c := range map[string]struct {
		src       Source
		partition int32
		from, to  Position
		rankings  []Ranking
		want      string
	}{
		"same offset":            {from: offset(5), to: offset(5), want: "does not move"},
		"from a negative offset": {from: offset(-1), to: offset(5), want: "does not move"},
		"to a negative offset":   {from: offset(5), to: offset(-1), want: "does not move"},
		"no such partition":      {partition: 4, to: offset(1), want: "no partition 4"},
		"malformed region":       {to: offset(1), rankings: []Ranking{ranked("'--", "1h", 1, 1)}, want: `region "'--"`},
		"global in upper case": {to: offset(1), rankings: []Ranking{ranked("Global", "1h", 1, 1)},
			want: `region "Global"`},
		"malformed window": {to: offset(1), rankings: []Ranking{ranked("US", "1h'", 1, 1)}, want: `window "1h'"`},
		"empty window":     {to: offset(1), rankings: []Ranking{ranked("US", "", 1, 1)}, want: `window ""`},
		"long window":      {to: offset(1), rankings: []Ranking{ranked("US", "123456789", 1, 1)}, want: "window"},
		"duplicate ranking": {to: offset(1),
			rankings: []Ranking{ranked("US", "1h", 1, 1), ranked("DE", "1h", 1, 1), ranked("US", "1h", 0, 1)},
			want:     "ranking US/1h is a duplicate"},
		"year above 9999": {to: offset(1), rankings: []Ranking{far}, want: "year 10000"},
		"negative score":  {to: offset(1), rankings: []Ranking{below}, want: "score below zero"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.ReplaceRankings(t.Context(), rankingsTopic(), c.partition, c.from, c.to, c.rankings)
			require.ErrorContains(t, err, c.want)
			require.False(t, IsTransient(err))
		})
	}
}

func TestOnePositionAlwaysFits(t *testing.T) {
	widest := rankingRow{Ranking: &Ranking{Region: "AA-AAA", Window: "12345678", AsOf: noon}, rank: math.MaxInt32,
		post: RankedPost{PostID: math.MaxUint64, Score: math.MaxInt64, Likes: math.MinInt64}}
	for _, table := range rankingTables {
		require.Less(t, len(statements(t, 1, table.upsert, []rankingRow{widest}, table.append)[0])+packetMargin, 1024)
	}
}
