//go:build !nodev

package cli

import (
	"context"
	stdsql "database/sql"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/config"
	"kudos/dev"
	"kudos/sql"
)

// TestDevShowsMillionsOfLikes: from a million on the embedded MySQL writes a sum with an
// exponent.
func TestDevShowsMillionsOfLikes(t *testing.T) {
	var out logBuffer
	cfg, err := config.Load(config.Sources{})
	require.NoError(t, err)
	d := newDevSystem(&app{http.NoBody, &out, &out}, cfg, devFlags{})
	t.Cleanup(func() {
		for _, undo := range d.undo {
			require.NoError(t, undo())
		}
	})

	opts := dev.DefaultDatabaseOptions()
	opts.Address = "127.0.0.1:0"
	database := dev.NewDatabase(opts, d.log)
	require.NoError(t, database.Start())
	background(t, database.Run)
	require.NoError(t, d.useDatabase(database))
	require.NoError(t, sql.Migrate(t.Context(), d.cfg.MySQL, d.log))
	db, err := stdsql.Open("mysql", database.DSN())
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "INSERT INTO like_count (post_id, count, dislike_count) VALUES (7, 2000000, 0)")
	require.NoError(t, err)

	background(t, dev.NewStatus(dev.NewConsole(&out, true), d.hooks).Run)
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "likes counted ") }, time.Minute, 10*time.Millisecond)
	require.Contains(t, out.String(), "likes counted 2,000,000")
}

// background runs something until the test ends.
func background(t *testing.T, run work) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Error("what the test began does not end")
		}
	})
}
