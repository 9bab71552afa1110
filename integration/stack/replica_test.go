package stack_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

// A replica has what its primary committed, misses what came after it was stopped, and the old primary can follow the
// promoted one.
func TestFailover(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	a := stack.MariaDBForTest(t, stack.DatabaseOptions{})
	b := stack.MariaDBForTest(t, stack.DatabaseOptions{ExtraArgs: []string{"--server-id=2"}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, a.CreateDatabase(ctx, "it"))
	onA, onB := openDatabase(t, a.DSN("it")), openDatabase(t, b.DSN("it"))
	_, err := onA.ExecContext(ctx, "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, note VARCHAR(9))")
	require.NoError(t, err)
	_, err = onA.ExecContext(ctx, "INSERT INTO t VALUES (1, NULL), (18446744073709551615, 'x')")
	require.NoError(t, err)
	require.NoError(t, b.Follow(ctx, a, "it"))
	require.Equal(t, 2, rows(ctx, t, onB), "rows copied")
	_, err = onA.ExecContext(ctx, "INSERT INTO t VALUES (2, 'y')")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return rows(ctx, t, onB) == 3 }, patience, 10*time.Millisecond, "rows replicated")

	require.NoError(t, b.StopReplicating(ctx))
	_, err = onA.ExecContext(ctx, "INSERT INTO t VALUES (3, 'lost')")
	require.NoError(t, err)
	require.NoError(t, a.Kill())
	require.NoError(t, b.Promote(ctx))
	require.Equal(t, 3, rows(ctx, t, onB), "rows on the promoted replica")
	_, err = onB.ExecContext(ctx, "INSERT INTO t VALUES (4, 'new')")
	require.NoError(t, err)

	require.NoError(t, a.Start(ctx))
	require.NoError(t, a.Follow(ctx, b, "it"))
	require.Equal(t, 4, rows(ctx, t, onA), "rows on the old primary, which lost what was lost")
	_, err = onB.ExecContext(ctx, "INSERT INTO t VALUES (5, 'z')")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return rows(ctx, t, onA) == 5 }, patience, 10*time.Millisecond, "rows replicated back")
}
