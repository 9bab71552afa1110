package sql

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var testUpsert = statementText{prefix: "P ", suffix: " S"}

func TestAppendStatementCutsAtTheLimit(t *testing.T) {
	rows := []CountDelta{{1, 1, 0}, {2, 0, 0}, {3, -1, 2}, {4, 1, 0}}
	whole := "P (1,1,0),(3,-1,2),(4,1,0) S"
	for _, c := range []struct {
		limit int
		want  string
		used  int
	}{
		{len(whole), whole, 4},
		{len(whole) - 1, "P (1,1,0),(3,-1,2) S", 3},
		{1, "P (1,1,0) S", 2}, // at least one row; the zero row after it costs nothing
	} {
		text, used := appendStatement(nil, c.limit, testUpsert, rows, appendCount)
		require.Equal(t, c.want, string(text), "limit %d", c.limit)
		require.Equal(t, c.used, used, "limit %d", c.limit)
	}
}

func TestAppendStatementSkipsZeroDeltas(t *testing.T) {
	text, used := appendStatement(nil, 100, testUpsert, []CountDelta{{1, 0, 0}, {2, 0, 0}}, appendCount)
	require.Empty(t, text, "nothing to change: no statement")
	require.Equal(t, 2, used)
	text, _ = appendStatement(nil, 100, testUpsert, []CountDelta{{1, 0, 0}, {2, 0, 1}}, appendCount)
	require.Equal(t, "P (2,0,1) S", string(text))
}

func TestAppendStatementSendsEveryRowOnceWhateverTheLimit(t *testing.T) {
	var rows []CountDelta
	var want []string
	for i := range int64(100) {
		rows = append(rows, CountDelta{PostID: uint64(i) << 57, Likes: i % 3, Dislikes: -(i % 2)})
		if i%3 != 0 || i%2 != 0 {
			want = append(want, fmt.Sprintf("(%d,%d,%d)", uint64(i)<<57, i%3, -(i%2)))
		}
	}
	for limit := 1; limit < 600; limit++ {
		var got []string
		for rest := rows; len(rest) > 0; {
			text, used := appendStatement(nil, limit, testUpsert, rest, appendCount)
			rest = rest[used:]
			if len(text) == 0 {
				continue
			}
			values := strings.TrimSuffix(strings.TrimPrefix(string(text), "P "), " S")
			count := strings.Count(values, "(")
			require.True(t, count == 1 || len(text) <= limit, "limit %d: %q", limit, text)
			got = append(got, strings.SplitAfter(values, ")")[:count]...)
		}
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], ",")
		}
		require.Equal(t, want, got, "limit %d", limit)
	}
}

func TestAppendExtremes(t *testing.T) {
	require.Equal(t, "(18446744073709551615,9223372036854775807,-9223372036854775808)",
		string(appendCount(nil, CountDelta{math.MaxUint64, math.MaxInt64, math.MinInt64})))
	require.Equal(t, "('1969-12-31 23:00:00','US-CA',7,1,-1)",
		string(appendHour(7)(nil, HourDelta{Hour: -1, Region: "US-CA", Likes: 1, Dislikes: -1})))
}

// One row, the text around it and the margin must fit even the smallest max_allowed_packet a server can have.
func TestOneRowAlwaysFits(t *testing.T) {
	longest, _ := appendStatement(nil, 1, countUpsert, []CountDelta{{math.MaxUint64, math.MinInt64, math.MinInt64}}, appendCount)
	require.Less(t, len(longest)+packetMargin, 1024)
	longest, _ = appendStatement(nil, 1, hourUpsert, []HourDelta{{lastHour, "AA-AAA", math.MinInt64, math.MinInt64}}, appendHour(math.MaxInt32))
	require.Less(t, len(longest)+packetMargin, 1024)
}
