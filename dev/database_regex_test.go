//go:build !nodev

package dev

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDatabaseMatchesRegularExpressions as MySQL does, with the package that replaces go-mysql-server's own.
func TestDatabaseMatchesRegularExpressions(t *testing.T) {
	db := open(t, startDatabase(t), "")
	for _, c := range []struct{ expression, want string }{
		{`'kudos' REGEXP '^k.*s$'`, "1"},
		{`REGEXP_LIKE('kudos', 'K', 'i')`, "1"},
		{`'kudos' RLIKE '^u'`, "0"},
		{`'kudos' NOT REGEXP '^k'`, "0"},
		{`REGEXP_LIKE('kudos', 'K', 'c')`, "0"},
		{`REGEXP_LIKE('a\nb', '^b', 'm')`, "1"},
		{`REGEXP_LIKE('a\nb', 'a.b')`, "0"},
		{`REGEXP_LIKE('a\nb', 'a.b', 'n')`, "1"},
		{`REGEXP_INSTR('äbab', 'b')`, "2"},
		{`REGEXP_INSTR('äbab', 'b', 3)`, "4"},
		{`REGEXP_INSTR('äbab', 'ab', 1, 1, 1)`, "5"},
		{`REGEXP_INSTR('äbab', 'b', 1, 3)`, "0"},
		{`REGEXP_SUBSTR('one two three', '[a-z]+', 1, 2)`, "two"},
		{`REGEXP_SUBSTR('one two three', '[a-z]+', 5)`, "two"},
		{`COALESCE(REGEXP_SUBSTR('one', '[0-9]+'), 'none')`, "none"},
		{`REGEXP_REPLACE('one two', '[a-z]+', 'x')`, "x x"},
		{`REGEXP_REPLACE('äbc äbc', 'b', 'x', 4)`, "äbc äxc"},
		{`REGEXP_REPLACE('one two three', '[a-z]+', 'x', 1, 2)`, "one x three"},
		{`REGEXP_REPLACE('one two', '([a-z])([a-z]+)', '$2a$1')`, "neao woat"},
		{`REGEXP_REPLACE('ab', '(x)?b', '[$1]')`, "a[]"},
	} {
		var got string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT "+c.expression).Scan(&got), c.expression)
		require.Equal(t, c.want, got, c.expression)
	}
	_, err := db.ExecContext(t.Context(), "SELECT 'kudos' REGEXP '('")
	require.Error(t, err)
}
