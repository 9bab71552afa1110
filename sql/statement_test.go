package sql

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func statements[R any](t testing.TB, limit int, around statementText, rows []R,
	row func([]byte, R) []byte) (sent []string) {
	send := func(text string) error {
		sent = append(sent, text)
		return nil
	}
	require.NoError(t, eachStatement(limit, around, rows, row, send))
	return sent
}

var testUpsert = statementText{prefix: "P ", suffix: " S"}

func TestStatementsAreSplitAtTheLimit(t *testing.T) {
	rows := []CountDelta{{1, 1, 0}, {2, 0, 0}, {3, -1, 2}, {4, 1, 0}}
	whole := "P (1,1,0),(3,-1,2),(4,1,0) S"
	for _, c := range []struct {
		limit int
		rows  []CountDelta
		want  []string
	}{
		{len(whole), rows, []string{whole}},
		{len(whole) - 1, rows, []string{"P (1,1,0),(3,-1,2) S", "P (4,1,0) S"}},
		{1, rows, []string{"P (1,1,0) S", "P (3,-1,2) S", "P (4,1,0) S"}}, // at least one row
		{100, rows[1:2], nil}, // nothing to change, so no statement
		{100, []CountDelta{{1, 0, 0}, {2, 0, 1}}, []string{"P (2,0,1) S"}},
	} {
		require.Equal(t, c.want, statements(t, c.limit, testUpsert, c.rows, appendCount), "%+v", c)
	}
}

func TestStatementsHaveEveryRowOnceWhateverTheLimit(t *testing.T) {
	var rows []CountDelta
	var want []string
	for i := range int64(100) {
		rows = append(rows, CountDelta{PostID: uint64(i) << 57, Likes: i % 3, Dislikes: -(i % 2)})
		if i%3 != 0 || i%2 != 0 {
			want = append(want, fmt.Sprintf("(%d,%d,%d)", uint64(i)<<57, i%3, -(i%2)))
		}
	}
	whole := regexp.MustCompile(`^P (\([^)]*\))(,\([^)]*\))* S$`)
	for limit := 1; limit < 600; limit++ {
		var got []string
		for _, text := range statements(t, limit, testUpsert, rows, appendCount) {
			require.Regexp(t, whole, text)
			values := strings.SplitAfter(strings.TrimSuffix(strings.TrimPrefix(text, "P "), " S"), "),")
			require.True(t, len(values) == 1 || len(text) <= limit, "limit %d: %q", limit, text)
			got = append(got, values...)
		}
		for i := range got {
			got[i] = strings.TrimSuffix(got[i], ",")
		}
		require.Equal(t, want, got, "limit %d", limit)
	}
}

func TestRowsOfExtremes(t *testing.T) {
	require.Equal(t, "(18446744073709551615,9223372036854775807,-9223372036854775808)",
		string(appendCount(nil, CountDelta{math.MaxUint64, math.MaxInt64, math.MinInt64})))
	require.Equal(t, "('1969-12-31 23:00:00','US-CA',7,1,-1)",
		string(appendHour(7)(nil, HourDelta{Hour: -1, Region: "US-CA", Likes: 1, Dislikes: -1})))
}

// One row, the text around it and the margin must fit even the smallest max_allowed_packet that a server can have.
func TestOneRowAlwaysFits(t *testing.T) {
	counts := []CountDelta{{math.MaxUint64, math.MinInt64, math.MinInt64}}
	hours := []HourDelta{{lastHour, "AA-AAA", math.MinInt64, math.MinInt64}}
	for _, text := range append(
		statements(t, 1, countUpsert, counts, appendCount), statements(t, 1, hourUpsert, hours,
			appendHour(math.MaxInt32))...) {
		require.Less(t, len(text)+packetMargin, 1024)
	}
}
