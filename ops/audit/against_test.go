package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/devtest"
	"kudos/schema"
)

func TestAgainst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.likeAndApply(0)
	w.likeAndApply(0)
	w.likeAndApply(1)
	w.db.MustExec("CREATE TABLE post_likes (post_id BIGINT UNSIGNED, user_id BIGINT UNSIGNED)")
	for user := range 2 {
		w.db.MustExec("INSERT INTO post_likes VALUES (?, ?)", postIn(0), user)
	}
	w.db.MustExec("INSERT INTO post_likes VALUES (?, 1)", postIn(1))
	const query = "SELECT post_id, COUNT(*) FROM post_likes GROUP BY post_id"
	against := func(query string) *AgainstReport {
		t.Helper()
		r, err := Against(t.Context(), w.options(false), w.shards, w.db.DB, query, devtest.Log())
		require.NoError(t, err)
		return r
	}
	r := against(query)
	require.True(t, r.Equal)
	require.EqualValues(t, 2, r.Posts.Compared)

	const missing = uint64(1<<64 - 1) // here, but not in kudos
	w.db.MustExec("INSERT INTO post_likes VALUES (?, 1)", missing)
	w.db.MustExec("DELETE FROM post_likes WHERE post_id = ?", postIn(1))
	r = against(query)
	require.False(t, r.Equal)
	require.ElementsMatch(t, []AgainstRow{
		{postIn(1), schema.Counts{Likes: 1}, schema.Counts{}}, {missing, schema.Counts{}, schema.Counts{Likes: 1}},
	}, r.Posts.Rows)
	var text strings.Builder
	r.Seconds = time.Second.Seconds()
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "2 of 3 posts differ (likes / dislikes):\n")
	require.Contains(t, text.String(), "18446744073709551615  0 / 0  1 / 0  -1 / +0\n")
	require.Contains(t, text.String(), "2 differences: 3 posts compared in 1s\n")

	r = against("SELECT post_id, COUNT(*), SUM(user_id) FROM post_likes GROUP BY post_id") // the sum as dislikes
	require.EqualValues(t, 3, r.Posts.Different)
	for query, want := range map[string]string{
		"SELECT post_id FROM post_likes":              "it has 1 columns; post id, likes",
		"SELECT -1, COUNT(*) FROM post_likes":         "the query: ",
		"SELECT post_id, 'many' FROM post_likes":      "the query: ",
		"SELECT post_id, COUNT(*) FROM no_such_table": "the query: ",
	} {
		_, err := Against(t.Context(), w.options(false), w.shards, w.db.DB, query, devtest.Log())
		require.ErrorContains(t, err, want, query)
	}
}
