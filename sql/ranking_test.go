package sql

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// rankingsTopic is the log of these tests.
func rankingsTopic() Source {
	return Source{Topic: schema.TopicTrending, TopicID: [16]byte{0xbe, 0xef, 15: 2}, Partitions: 4}
}

// rankedStore is a migrated database whose partitions stand at the start of rankingsTopic, and a store on it.
func (d database) rankedStore(t testing.TB, change ...func(*Options)) *Store {
	t.Helper()
	s := d.migrated(t).store(t, change...)
	for partition := range rankingsTopic().Partitions {
		position, err := s.RankingPosition(t.Context(), rankingsTopic(), partition)
		require.NoError(t, err)
		require.Equal(t, start, position)
	}
	return s
}

// offset is a position in a log of rankings.
func offset(next int64) Position { return Position{NextOffset: next, LeaderEpoch: 7} }

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// ranked is a ranking of n posts; first is the post at the first place.
func ranked(region, window string, n int, first uint64) Ranking {
	r := Ranking{Region: region, Window: window, AsOf: noon}
	for i := range n {
		r.Posts = append(r.Posts, RankedPost{PostID: first + uint64(i), Score: schema.Score(n-i) * schema.ScoreOne / 2, Likes: int64(n - i)})
	}
	return r
}

// rankings are both tables: by key, the rows in the order of their ranks.
func (d database) rankings(t testing.TB) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, query := range []string{
		"SELECT CONCAT(region, '/', `window`) k, CONCAT_WS(' ', `rank`, post_id, CAST(score AS CHAR), likes, as_of) v FROM trending ORDER BY region, `window`, `rank`",
		"SELECT CONCAT(region, '/', period) k, CONCAT_WS(' ', `rank`, post_id, likes, as_of) v FROM leaderboard ORDER BY region, period, `rank`",
	} {
		var rows []struct{ K, V string }
		require.NoError(t, d.raw(t).Select(&rows, query))
		for _, row := range rows {
			all[row.K] = append(all[row.K], row.V)
		}
	}
	return all
}

func TestRankingsAreReplacedWhole(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.rankedStore(t)
		ctx, src := t.Context(), rankingsTopic()
		require.NoError(t, s.ReplaceRankings(ctx, src, 1, start, offset(10), []Ranking{
			ranked("US", "1h", 3, 100), ranked("US-CA", "10m", 1, math.MaxUint64), ranked("US", schema.LeaderboardDay, 2, 7),
			ranked(schema.GlobalName, "24h", 0, 0),
			{Region: schema.GlobalName, Window: schema.LeaderboardAll, Posts: []RankedPost{{PostID: 1, Likes: math.MaxInt64}}},
		}))
		want := map[string][]string{
			"US/1h":      {"1 100 1.500000 3 2026-07-01 12:00:00", "2 101 1.000000 2 2026-07-01 12:00:00", "3 102 0.500000 1 2026-07-01 12:00:00"},
			"US-CA/10m":  {"1 18446744073709551615 0.500000 1 2026-07-01 12:00:00"},
			"US/day":     {"1 7 2 2026-07-01 12:00:00", "2 8 1 2026-07-01 12:00:00"},
			"global/all": {"1 1 9223372036854775807"},
		}
		require.Equal(t, want, db.rankings(t))

		// Longer, shorter, empty, and not there at all.
		zone := time.FixedZone("east", 3600)
		shorter := ranked("US", "1h", 1, 200)
		shorter.AsOf = noon.Add(time.Minute).In(zone)
		shorter.Posts[0].Score = math.MaxInt64
		require.NoError(t, s.ReplaceRankings(ctx, src, 1, offset(10), offset(12), []Ranking{
			ranked("US", schema.LeaderboardDay, 0, 0), shorter, ranked(schema.GlobalName, schema.LeaderboardAll, 2, 5),
		}))
		want["US/1h"] = []string{"1 200 9223372036854.775807 1 2026-07-01 12:01:00"}
		delete(want, "US/day")
		want["global/all"] = []string{"1 5 2 2026-07-01 12:00:00", "2 6 1 2026-07-01 12:00:00"}
		require.Equal(t, want, db.rankings(t))
		position, err := s.RankingPosition(ctx, src, 1)
		require.NoError(t, err)
		require.Equal(t, offset(12), position)
	})
}

// Each case differs from the stored row in one column of the compare-and-swap only, and so must change nothing.
func TestAStalePositionReplacesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*Source)
		partition int32
		from      int64
	}{
		"topic":        {change: func(s *Source) { s.Topic = "Trending" }, from: 10},
		"topic_id":     {change: func(s *Source) { s.TopicID[15]++ }, from: 10},
		"partitions":   {change: func(s *Source) { s.Partitions++ }, from: 10},
		"partition_id": {partition: 1, from: 10},
		"next_offset":  {from: 9},
	} {
		t.Run(name, func(t *testing.T) {
			onEachServer(t, func(t *testing.T, db database) {
				s := db.rankedStore(t)
				require.NoError(t, s.ReplaceRankings(t.Context(), rankingsTopic(), 0, start, offset(10), []Ranking{ranked("US", "1h", 2, 100)}))
				want := db.rankings(t)
				src := rankingsTopic()
				if c.change != nil {
					c.change(&src)
				}
				err := s.ReplaceRankings(t.Context(), src, c.partition, offset(c.from), offset(20), []Ranking{ranked("US", "1h", 1, 500)})
				require.ErrorIs(t, err, ErrPositionMoved)
				require.False(t, IsTransient(err))
				require.Equal(t, want, db.rankings(t))
				require.Equal(t, "10", db.scalar(t, "SELECT MAX(next_offset) FROM trending_position"))
			})
		})
	}
}

// A database that was restored stands at an earlier position, with rankings of then: applied again, they are as they were.
func TestAPositionThatWentBackAppliesAgain(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.rankedStore(t)
		replace := func(from, to Position, rankings ...Ranking) {
			t.Helper()
			require.NoError(t, s.ReplaceRankings(t.Context(), rankingsTopic(), 0, from, to, rankings))
		}
		replace(start, offset(5), ranked("US", "1h", 4, 100), ranked("DE", "all", 1, 1))
		replace(offset(5), offset(9), ranked("US", "1h", 2, 200), ranked("DE", "all", 3, 1))
		want := db.rankings(t)
		raw := db.raw(t)
		raw.MustExec("UPDATE trending_position SET next_offset = 5 WHERE partition_id = 0")
		raw.MustExec("DELETE FROM trending")
		raw.MustExec("INSERT INTO trending VALUES ('US', '1h', 1, 9, 1, 1, NULL), ('US', '1h', 2, 8, 1, 1, NULL), ('US', '1h', 3, 7, 1, 1, NULL)")
		position, err := s.RankingPosition(t.Context(), rankingsTopic(), 0)
		require.NoError(t, err)
		replace(position, offset(9), ranked("US", "1h", 2, 200), ranked("DE", "all", 3, 1))
		require.Equal(t, want, db.rankings(t))

		// Back by our own will, to read the log from its beginning.
		replace(offset(9), offset(3))
		position, err = s.RankingPosition(t.Context(), rankingsTopic(), 0)
		require.NoError(t, err)
		require.Equal(t, offset(3), position)
		require.Equal(t, want, db.rankings(t))
	})
}

func TestRankingsOfAnotherLogStartAnew(t *testing.T) {
	for name, change := range map[string]func(*Source){
		"topic created again": func(s *Source) { s.TopicID[0]++ },
		"partitions added":    func(s *Source) { s.Partitions = 8 },
	} {
		t.Run(name, func(t *testing.T) {
			onEachServer(t, func(t *testing.T, db database) {
				s := db.rankedStore(t)
				old, now := rankingsTopic(), rankingsTopic()
				change(&now)
				require.NoError(t, s.ReplaceRankings(t.Context(), old, 0, start, offset(10), []Ranking{ranked("US", "1h", 2, 100)}))
				require.NoError(t, s.ReplaceRankings(t.Context(), old, 1, start, offset(10), []Ranking{ranked("US", "day", 2, 100)}))
				position, err := s.RankingPosition(t.Context(), now, 0)
				require.NoError(t, err)
				require.Equal(t, start, position)
				require.Empty(t, db.rankings(t), "the new log may not have the keys of the old one")

				require.NoError(t, s.ReplaceRankings(t.Context(), now, 0, start, offset(2), []Ranking{ranked("DE", "1h", 1, 1)}))
				want := db.rankings(t)
				for partition := range now.Partitions {
					position, err := s.RankingPosition(t.Context(), now, partition)
					require.NoError(t, err)
					require.Equal(t, partition == 0, position == offset(2), "partition %d: %v", partition, position)
				}
				require.Equal(t, want, db.rankings(t), "the others have nothing to delete any more")
				err = s.ReplaceRankings(t.Context(), old, 1, offset(10), offset(11), []Ranking{ranked("US", "day", 1, 100)})
				require.ErrorIs(t, err, ErrPositionMoved, "whoever still reads the old log")
			})
		})
	}
}

// Two workers of a partition, over connections that break, each going on where the other is: the rankings are in the end
// those of the log's end, whoever came last, and however often something was repeated.
func TestRankingsAreThoseOfTheLogWhateverFails(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		log := make([]Ranking, 200)
		newest := map[string]Ranking{}
		for i := range log {
			log[i] = ranked([]string{"DE", "US", "global"}[random.IntN(3)], []string{"1h", "day"}[random.IntN(2)], random.IntN(6), random.Uint64N(1000))
			newest[schema.RankingKey(log[i].Region, log[i].Window)] = log[i]
		}
		expected := database{options: db.options}
		if !db.real {
			expected = embeddedDatabase(t)
		}
		proxy, faulty := db.migrated(t).through(t)
		proxy.On(faults(rand.New(rand.NewPCG(seed, 1))))
		first := faulty.store(t)
		stores := []*Store{first, first}
		if db.real {
			stores[1] = faulty.store(t)
		}
		var workers sync.WaitGroup
		for i, s := range stores {
			workers.Go(func() { replaceAll(t, s, rand.New(rand.NewPCG(seed, uint64(2+i))), log) })
		}
		workers.Wait()
		proxy.On(nil)

		have := db.rankings(t)
		s := expected.migrated(t).store(t)
		expected.raw(t).MustExec("DELETE FROM trending")
		expected.raw(t).MustExec("DELETE FROM leaderboard")
		position, err := s.RankingPosition(t.Context(), rankingsTopic(), 0)
		require.NoError(t, err)
		var all []Ranking
		for _, r := range newest {
			all = append(all, r)
		}
		require.NoError(t, s.ReplaceRankings(t.Context(), rankingsTopic(), 0, position, offset(1000), all))
		require.Equal(t, expected.rankings(t), have)
	})
}

func replaceAll(t *testing.T, s *Store, random *rand.Rand, log []Ranking) {
	const partition = 2
	for range 5000 {
		position, err := s.RankingPosition(t.Context(), rankingsTopic(), partition)
		for err == nil {
			from := position.NextOffset
			if from == int64(len(log)) {
				return
			}
			to := min(int64(len(log)), from+1+random.Int64N(20))
			newest := map[string]Ranking{}
			for _, r := range log[from:to] {
				newest[schema.RankingKey(r.Region, r.Window)] = r
			}
			var batch []Ranking
			for _, r := range newest {
				batch = append(batch, r)
			}
			if err = s.ReplaceRankings(t.Context(), rankingsTopic(), partition, position, offset(to), batch); err == nil {
				position = offset(to)
			}
		}
	}
	t.Error("the log was not brought to MySQL after 5000 attempts")
}

// The order of statements and rows is the order of locks, and what did not shrink needs no DELETE.
func TestReplaceRankingsLocksItsOwnRowsInOrder(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.rankedStore(t, func(o *Options) { o.MaxStatementBytes = minStatementBytes })
	require.NoError(t, s.ReplaceRankings(t.Context(), rankingsTopic(), 0, start, offset(1), []Ranking{ranked("US", "1h", 60, 1), ranked("DE", "day", 2, 1)}))
	proxy.seen()
	require.NoError(t, s.ReplaceRankings(t.Context(), rankingsTopic(), 0, offset(1), offset(2),
		[]Ranking{ranked("US", "1h", 40, 1), ranked("DE", "day", 2, 1), ranked("DE", "1h", 40, 1)}))
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
	require.Equal(t, []string{"SELECT region, `window`,", "INSERT INTO trending", "DELETE FROM trending", "SELECT region, period,", "INSERT INTO leaderboard"}, kinds)
	var want []string
	for _, region := range []string{"DE", "US"} {
		for rank := range 40 {
			want = append(want, fmt.Sprint(region, rank+1))
		}
	}
	require.Equal(t, want, upserted)
	require.Equal(t, []string{"DELETE FROM trending WHERE region = 'US' AND `window` = '1h' AND `rank` IN (41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60)"}, deleted)
}

// Keys of two partitions lie side by side in the tables; neither waits for the other.
func TestPartitionsReplaceRankingsSideBySide(t *testing.T) {
	onRealServers(t, func(t *testing.T, direct database) {
		proxy, slowly := direct.through(t)
		s := slowly.rankedStore(t)
		lists := func(first, n int) (rankings []Ranking) {
			for i := first; i < 40; i += 2 {
				window := []string{"1h", "day"}[i/2%2]
				rankings = append(rankings, ranked(fmt.Sprintf("A%c-%d", 'A'+i/10, i), window, n, 1))
			}
			return rankings
		}
		for partition := range int32(2) {
			require.NoError(t, s.ReplaceRankings(t.Context(), rankingsTopic(), partition, start, offset(1), lists(int(partition), 20)))
		}
		held, release := proxy.hold(t, "COMMIT")
		var slow sync.WaitGroup
		var slowErr error
		slow.Go(func() {
			slowErr = s.ReplaceRankings(t.Context(), rankingsTopic(), 0, offset(1), offset(2), lists(0, 10))
		})
		await(t, held)
		other := direct.store(t, func(o *Options) { o.LockWaitTimeout, o.Retries = time.Second, 0 })
		require.NoError(t, other.ReplaceRankings(t.Context(), rankingsTopic(), 1, offset(1), offset(2), lists(1, 10)))
		require.NoError(t, other.ReplaceRankings(t.Context(), rankingsTopic(), 1, offset(2), offset(3), lists(1, 30)))
		release()
		slow.Wait()
		require.NoError(t, slowErr)
		for key, rows := range direct.rankings(t) {
			require.Contains(t, []int{10, 30}, len(rows), key)
		}
	})
}

// RankingPosition waits for a transaction whose outcome is open, rather than read past it.
func TestRankingPositionWaitsForAnOpenTransaction(t *testing.T) {
	onRealServers(t, func(t *testing.T, direct database) {
		proxy, slowly := direct.through(t)
		s := slowly.rankedStore(t)
		held, release := proxy.hold(t, "COMMIT")
		var zombie, reading sync.WaitGroup
		var zombieErr, positionErr error
		var position Position
		zombie.Go(func() {
			zombieErr = s.ReplaceRankings(t.Context(), rankingsTopic(), 0, start, offset(10), []Ranking{ranked("US", "1h", 2, 1)})
		})
		await(t, held)
		successor := direct.store(t)
		reading.Go(func() { position, positionErr = successor.RankingPosition(t.Context(), rankingsTopic(), 0) })
		direct.waitForLockWait(t)
		release()
		zombie.Wait()
		reading.Wait()
		require.NoError(t, zombieErr)
		require.NoError(t, positionErr)
		require.Equal(t, offset(10), position)
	})
}

// Many processes find another log's positions at once: each gets the start, and the tables are emptied.
func TestManyProcessesStartAnewAtOnce(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		s := db.rankedStore(t)
		src := rankingsTopic()
		at := start
		for round := range 5 {
			require.NoError(t, s.ReplaceRankings(t.Context(), src, 0, at, offset(10), []Ranking{ranked("US", "1h", 2, 1)}))
			src.TopicID[0]++
			var processes sync.WaitGroup
			for i := range 2 * src.Partitions {
				s := db.store(t)
				processes.Go(func() {
					position, err := s.RankingPosition(t.Context(), src, i/2)
					if err != nil || position != start {
						t.Errorf("round %d, partition %d: position %v, error %v; want the start", round, i/2, position, err)
					}
				})
			}
			processes.Wait()
			require.Equal(t, "4", db.scalar(t, "SELECT COUNT(*) FROM trending_position WHERE next_offset = 0"))
			require.Empty(t, db.rankings(t))
		}
	})
}

func TestReplaceRankingsRefusesWhatOnlyADefectCanGive(t *testing.T) {
	s := noServer(t).store(t) // no statement may go out
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
		"no move":           {from: offset(5), to: offset(5), want: "does not move"},
		"negative":          {from: offset(-1), to: offset(5), want: "does not move"},
		"to negative":       {from: offset(5), to: offset(-1), want: "does not move"},
		"no such partition": {partition: 4, to: offset(1), want: "no partition 4"},
		"region":            {to: offset(1), rankings: []Ranking{ranked("'--", "1h", 1, 1)}, want: `region "'--"`},
		"Global":            {to: offset(1), rankings: []Ranking{ranked("Global", "1h", 1, 1)}, want: `region "Global"`},
		"window":            {to: offset(1), rankings: []Ranking{ranked("US", "1h'", 1, 1)}, want: `window "1h'"`},
		"no window":         {to: offset(1), rankings: []Ranking{ranked("US", "", 1, 1)}, want: `window ""`},
		"long window":       {to: offset(1), rankings: []Ranking{ranked("US", "123456789", 1, 1)}, want: "window"},
		"twice":             {to: offset(1), rankings: []Ranking{ranked("US", "1h", 1, 1), ranked("DE", "1h", 1, 1), ranked("US", "1h", 0, 1)}, want: "ranking US/1h is there twice"},
		"year":              {to: offset(1), rankings: []Ranking{far}, want: "year 10000"},
		"score":             {to: offset(1), rankings: []Ranking{below}, want: "score below zero"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.ReplaceRankings(t.Context(), rankingsTopic(), c.partition, c.from, c.to, c.rankings)
			require.ErrorContains(t, err, c.want)
			require.False(t, IsTransient(err))
		})
	}
}

func TestOnePlaceAlwaysFits(t *testing.T) {
	widest := place{region: "AA-AAA", window: "12345678", rank: math.MaxInt32,
		post: RankedPost{PostID: math.MaxUint64, Score: math.MaxInt64, Likes: math.MinInt64}, asOf: noon}
	for _, table := range rankingTables {
		text, _ := appendStatement(nil, 1, table.upsert, []place{widest}, table.append)
		require.Less(t, len(text)+packetMargin, 1024)
	}
}
