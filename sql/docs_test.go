package sql

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
)

type example struct {
	rows  []string // regular expressions
	sorts bool     // the query has to sort, and the docs say so
}

// The example queries in the docs return what the docs say, using only lookups and ranges of primary keys.
func TestDocumentedExamples(t *testing.T) {
	for _, page := range []struct {
		path     string
		prepare  func(database, *testing.T)
		examples []example
	}{
		{"../docs/trending.md", database.prepareTrending, []example{
			{rows: []string{"1 50 1.5 3 2026-07-01 12:00:00", "2 51 1 2 2026-07-01 12:00:00",
				"3 52 0.5 1 2026-07-01 12:00:00"}},
			{rows: []string{"1 7 4", "2 8 3", "3 9 2", "4 10 1"}},
			{rows: []string{"DE 30 2", "US 7 3"}},
			{rows: []string{"1 50 3", "3 52 1"}},
		}},
		{"../docs/reading.md", database.prepareReading, []example{
			{rows: []string{"3 1"}},
			{rows: []string{"42 3", "43 7", "45 0"}},
			{rows: []string{"44 page 44 0", "43 page 43 7", "42 page 42 3"}},
			{rows: []string{"1 42 page 42 2", "2 43 page 43 1"}},
			{rows: []string{"2026-07-01 00:00:00 2 0", "2026-07-01 10:00:00 105 10", "2026-07-01 12:00:00 4 1",
				"2026-07-01 23:00:00 1 0"}},
			{rows: []string{"2026-07-01 10:00:00 5", "2026-07-01 12:00:00 4"}},
			{rows: []string{"US 102", "DE 10"}, sorts: true},
			{rows: []string{`0 10 \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.]?\d* 9\d\d\d`,
				`1 20 \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.]?\d* \d+`, "2 0 .*", "3 0 .*"}},
			{}, // covered by TestRowOfZerosCanBeDeleted
		}},
	} {
		queries := queriesOf(t, page.path)
		require.Len(t, queries, len(page.examples), page.path)
		t.Run(filepath.Base(page.path), func(t *testing.T) {
			onEachServer(t, func(t *testing.T, db database) {
				page.prepare(db, t)
				raw := db.raw(t)
				for i, want := range page.examples {
					query := queries[i]
					rows := resultText(t, raw, query)
					require.Len(t, rows, len(want.rows), "%s: %s", query, rows)
					for j, row := range rows {
						require.Regexp(t, "^"+want.rows[j]+"$", row, query)
					}
					db.requireIndexed(t, raw, query, want.sorts)
				}
			})
		})
	}
}

func queriesOf(t *testing.T, path string) (queries []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		queries = append(queries, strings.TrimSuffix(strings.TrimSpace(block[1]), ";"))
	}
	return queries
}

// A deleted row of zeros counts on from zero; rows with counts are not deleted.
func TestRowOfZerosCanBeDeleted(t *testing.T) {
	queries := queriesOf(t, "../docs/reading.md")
	remove := queries[len(queries)-1]
	require.Contains(t, remove, "DELETE")
	onEachServer(t, func(t *testing.T, db database) {
		s, raw := db.startedStore(t), db.raw(t)
		for i, c := range []struct {
			delta CountDelta
			after map[string]string
		}{
			{CountDelta{42, 0, 1}, map[string]string{"42": "0 1"}},
			{CountDelta{42, 1, -1}, map[string]string{"42": "1 0"}},
			{CountDelta{42, -1, 0}, map[string]string{}},
			{CountDelta{42, 5, 2}, map[string]string{"42": "5 2"}},
		} {
			n := int64(i)
			require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(n, uint64(n)), at(n+1, uint64(n+1)),
				[]CountDelta{c.delta}, nil))
			raw.MustExec(remove)
			require.Equal(t, c.after, db.counts(t))
		}
	})
}

func (d database) prepareTrending(t *testing.T) {
	s := d.rankedStore(t)
	rankings := []Ranking{ranked("global", "1h", 3, 50), ranked("global", "24h", 1, 51), ranked("global", "10m", 1, 50),
		ranked("US", "1h", 3, 50), ranked("US", "all", 4, 7), ranked("US", "day", 3, 7), ranked("DE", "day", 2, 30),
		ranked("FR", "day", 2, 31), ranked("global", "all", 9, 7)}
	for i := range 100 { // enough other rankings that a table scan is not the cheapest plan
		region := fmt.Sprintf("X%c-%d", 'A'+i%26, i)
		rankings = append(rankings, ranked(region, "1h", 20, 1), ranked(region, "day", 20, 1))
	}
	replace(t, s, rankingsTopic(), 0, start, offset(1), rankings...)
}

// prepareReading stores the counts of docs/reading.md among many others, plus the application's own table of posts.
func (d database) prepareReading(t *testing.T) {
	s := d.startedStore(t)
	for partition := range likesTopic().Partitions {
		requireAt(t, start, (*Store).Position, s, likesTopic(), partition)
		requireAt(t, start, (*Store).RankingPosition, s, rankingsTopic(), partition)
	}
	counts := []CountDelta{{PostID: 42, Likes: 3, Dislikes: 1}, {PostID: 43, Likes: 7}, {PostID: 45, Likes: 1}}
	hours := []HourDelta{{hourOf(0), "US", 2, 0}, {hourOf(10), "US", 100, 10}, {hourOf(12), "DE", 4, 1},
		{hourOf(23), "DE", 1, 0}, {hourOf(24), "DE", 50, 0}, {hourOf(-1), "US", 50, 0}}
	for i := range int64(2000) {
		counts = append(counts, CountDelta{PostID: 1000 + uint64(i), Likes: 1})
		hours = append(hours, HourDelta{hourOf(100 + i), "FR", 1, 0})
	}
	require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(10, 10), counts, hours))
	require.NoError(t, s.Apply(t.Context(), likesTopic(), 1, at(0, 0), at(20, 20),
		[]CountDelta{{PostID: 45, Likes: -1}}, []HourDelta{{hourOf(10), "DE", 5, 0}}))
	rankings := []Ranking{ranked("DE", "1h", 2, 42), ranked("US", "1h", 2, 43)}
	for i := range 100 {
		rankings = append(rankings, ranked(fmt.Sprintf("X%c-%d", 'A'+i%26, i), "1h", 20, 1))
	}
	replace(t, s, rankingsTopic(), 0, start, offset(1), rankings...)

	raw := d.raw(t)
	raw.MustExec("UPDATE applied_offset SET updated_at = UTC_TIMESTAMP(3) - INTERVAL 9500 SECOND" +
		" WHERE partition_id = 0")
	raw.MustExec("CREATE TABLE posts (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, author_id BIGINT UNSIGNED NOT NULL, " +
		"title VARCHAR(100) NOT NULL, KEY by_author (author_id, id))")
	var posts []string
	for id := range 2000 {
		author := 8 + id%50
		if id >= 42 && id <= 44 {
			author = 7
		}
		posts = append(posts, fmt.Sprintf("(%d, %d, 'page %d')", id, author, id))
	}
	raw.MustExec("INSERT INTO posts VALUES " + strings.Join(posts, ","))
	if d.real {
		raw.MustExec("ANALYZE TABLE posts, like_count, like_hourly, trending")
	}
}

// requireIndexed requires reads by primary key, and no sort unless sorts. It skips the embedded server's EXPLAIN.
func (d database) requireIndexed(t testing.TB, raw *sqlx.DB, query string, sorts bool) {
	t.Helper()
	if !d.real {
		return
	}
	plan, err := raw.Queryx("EXPLAIN " + query)
	require.NoError(t, err)
	defer plan.Close()
	for plan.Next() {
		row := map[string]any{}
		require.NoError(t, plan.MapScan(row))
		column := func(name string) string { return fmt.Sprintf("%s", row[name]) }
		if !sorts {
			require.NotRegexp(t, "filesort|temporary", column("Extra"), "%s: %s", query, row)
		}
		require.Contains(t, []string{"const", "eq_ref", "ref", "range"}, column("type"), "%s: %s", query, row)
		if column("table") != "posts" { // the application's table
			require.Equal(t, "PRIMARY", column("key"), "%s: %s", query, row)
		}
	}
	require.NoError(t, plan.Err())
}

// resultText formats rows as columns separated by spaces, and decimals without trailing zeros.
func resultText(t testing.TB, db *sqlx.DB, query string) (lines []string) {
	t.Helper()
	rows, err := db.Query(query)
	require.NoError(t, err, query)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		cells, into := make([]string, len(columns)), make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		require.NoError(t, rows.Scan(into...))
		for i, cell := range cells {
			if strings.Contains(cell, ".") {
				cells[i] = strings.TrimRight(strings.TrimRight(cell, "0"), ".")
			}
		}
		lines = append(lines, strings.Join(cells, " "))
	}
	require.NoError(t, rows.Err())
	return lines
}
