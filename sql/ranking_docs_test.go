package sql

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
)

// The examples of docs/trending.md do what is said there, each as a range of the primary key.
func TestTheExamplesOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/trending.md")
	require.NoError(t, err)
	var examples []string
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		examples = append(examples, block[1])
	}
	golden := [][]string{
		{"1 50 1.5 3 2026-07-01 12:00:00", "2 51 1 2 2026-07-01 12:00:00", "3 52 0.5 1 2026-07-01 12:00:00"},
		{"1 7 4", "2 8 3", "3 9 2", "4 10 1"},
		{"DE 30 2", "US 7 3"},
		{"1 50 3", "3 52 1"},
	}
	require.Len(t, examples, len(golden))
	onEachServer(t, func(t *testing.T, db database) {
		s := db.rankedStore(t)
		rankings := []Ranking{
			ranked("global", "1h", 3, 50), ranked("global", "24h", 1, 51), ranked("global", "10m", 1, 50), ranked("US", "1h", 3, 50),
			ranked("US", "all", 4, 7), ranked("US", "day", 3, 7), ranked("DE", "day", 2, 30), ranked("FR", "day", 2, 31), ranked("global", "all", 9, 7),
		}
		for i := range 100 { // beside others, so that scanning would not be the cheapest
			region := fmt.Sprintf("X%c-%d", 'A'+i%26, i)
			rankings = append(rankings, ranked(region, "1h", 20, 1), ranked(region, "day", 20, 1))
		}
		require.NoError(t, s.ReplaceRankings(t.Context(), rankingsTopic(), 0, start, offset(1), rankings))
		raw := db.raw(t)
		for i, example := range examples {
			require.Equal(t, golden[i], resultText(t, raw, example), example)
			db.requireIndexed(t, raw, example)
		}
	})
}

// requireIndexed wants a query to read ranges of primary keys, in their order. The embedded server does not tell.
func (d database) requireIndexed(t testing.TB, raw *sqlx.DB, query string) {
	t.Helper()
	if !d.real {
		return
	}
	plan, err := raw.Queryx("EXPLAIN " + strings.TrimSuffix(strings.TrimSpace(query), ";"))
	require.NoError(t, err)
	defer plan.Close()
	for plan.Next() {
		row := map[string]any{}
		require.NoError(t, plan.MapScan(row))
		require.Equal(t, "PRIMARY", fmt.Sprintf("%s", row["key"]), "%s: %s", query, row)
		require.Contains(t, []string{"ref", "range"}, fmt.Sprintf("%s", row["type"]), "%s: %s", query, row)
		require.NotContains(t, fmt.Sprintf("%s", row["Extra"]), "filesort", "%s: %s", query, row)
		require.NotContains(t, fmt.Sprintf("%s", row["Extra"]), "temporary", "%s: %s", query, row)
	}
	require.NoError(t, plan.Err())
}

// resultText is a result's rows, their columns with spaces between; decimals without trailing zeros.
func resultText(t testing.TB, db *sqlx.DB, query string) (lines []string) {
	t.Helper()
	rows, err := db.Query(strings.TrimSuffix(strings.TrimSpace(query), ";"))
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
