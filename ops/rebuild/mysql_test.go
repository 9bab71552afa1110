package rebuild

import (
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"kudos/dev/devtest"
	"kudos/schema"
)

// newCounted is a world whose post has 3 likes in the state table and a wrong count in the database.
func newCounted(t *testing.T) (*world, *sqlx.DB) {
	w := newWorld(t)
	db := w.startDatabase()
	for user := range uint64(3) {
		w.Write(reaction(thePost, user+1, schema.Liked, 16_666_666))
	}
	w.Write(devtest.CountsRecord(damaged, thePost, schema.Counts{Likes: 3}))
	w.publish(0, 3)
	w.setProgress(func(p *schema.Progress) { p.NextOffset, p.NextSeq = 3, 1 })
	db.MustExec("INSERT INTO like_count (post_id, `count`, dislike_count) VALUES (?, 77, 0)", thePost)
	return w, db
}

func likesIn(t *testing.T, db *sqlx.DB) (n int64) {
	require.NoError(t, db.Get(&n, "SELECT `count` FROM like_count WHERE post_id = ?", thePost))
	return n
}

func TestRebuildsMySQLFromTheStateTable(t *testing.T) {
	t.Parallel()
	w, db := newCounted(t)
	result := w.mustRun(MySQL)
	require.True(t, result.Swapped)
	require.Equal(t, int64(1), result.Posts)
	require.Equal(t, int64(1), result.Hours)
	require.Equal(t, int64(3), likesIn(t, db))
	var position struct {
		NextOffset int64  `db:"next_offset"`
		NextSeq    uint64 `db:"next_seq"`
	}
	const query = "SELECT next_offset, next_seq FROM applied_offset WHERE partition_id = ?"
	require.NoError(t, db.Get(&position, query, damaged))
	require.Equal(t, int64(1), position.NextOffset)
	require.Equal(t, uint64(1), position.NextSeq)
}

// Positions are valid in one like-updates only; in another they would refer to other updates.
func TestRebuildRejectsAStateTableOfOtherTopics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage damage
		says   string
	}{
		"another like-updates": {ofOtherUpdates, "the state table of partition 1 belongs to a like-updates topic " +
			"that is not the current one; stop the processors and run `kudos rebuild --updates`"},
		"another cluster":  {ofAnotherCluster, "partition 1 of the state table belongs to cluster another"},
		"other partitions": {of8Partitions, "with 8 partitions"},
		"a lost state table": {func(w *world) { w.forget(schema.TopicState, damaged, -1) },
			"partition 1 of the state table has no progress record"},
		"another layout":          {ofAnotherLayout, "a repartition ran while the state table was read"},
		"reactions are migrating": {isMigrating, errMigrating.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, db := newCounted(t)
			c.damage(w)
			asked := false
			w.asked = func() { asked = true }
			result, err := w.run(MySQL)
			require.ErrorContains(t, err, c.says)
			require.False(t, asked, "there is nothing to confirm")
			require.False(t, result.Swapped)
			require.Equal(t, int64(77), likesIn(t, db))
		})
	}
}

// A rebuild takes long: like-updates may have been recreated by the time the tables are filled.
func TestUpdatesRecreatedWhileMySQLIsRebuilt(t *testing.T) {
	t.Parallel()
	w, db := newCounted(t)
	w.asked = w.recreateUpdates
	result, err := w.run(MySQL)
	require.ErrorContains(t, err, "like-updates was deleted and recreated meanwhile; nothing was changed in MySQL")
	require.False(t, result.Swapped)
	require.Equal(t, int64(77), likesIn(t, db))
}
