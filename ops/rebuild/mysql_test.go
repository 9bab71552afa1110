package rebuild

import (
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/schema"
)

// newCounted is a world with a database in which the one post has a wrong count, and a
// state table in which it has 3 likes.
func newCounted(t *testing.T) (*world, *sqlx.DB) {
	w := newWorld(t)
	var db *sqlx.DB
	w.mysql, db = devtest.Database(t)
	devtest.Migrate(t, w.mysql)
	for user := range uint64(3) {
		e := like(user + 1)
		pair := schema.Pair{Reaction: schema.Liked, TimeMs: e.TimeMs, SinceMs: e.TimeMs, Region: e.Region}
		w.write(schema.TopicState, damaged, &kgo.Record{Key: schema.AppendPairKey(nil, thePost, user+1), Value: schema.AppendPair(nil, &pair)})
	}
	w.write(schema.TopicState, damaged, &kgo.Record{Key: schema.AppendCountsKey(nil, thePost), Value: schema.AppendCounts(nil, schema.Counts{Likes: 3})})
	w.publish(0, 3)
	w.setProgress(func(p *schema.Progress) { p.NextOffset, p.NextSeq = 3, 1 })
	db.MustExec("INSERT INTO like_count (post_id, `count`, dislike_count) VALUES (?, 77, 0)", thePost)
	return w, db
}

func likesIn(t *testing.T, db *sqlx.DB) (n int64) {
	require.NoError(t, db.Get(&n, "SELECT `count` FROM like_count WHERE post_id = ?", thePost))
	return n
}

func TestMySQLIsMadeFromTheStateTable(t *testing.T) {
	t.Parallel()
	w, db := newCounted(t)
	result, err := w.run(MySQL)
	require.NoError(t, err)
	require.True(t, result.Swapped)
	require.Equal(t, int64(1), result.Posts)
	require.Equal(t, int64(1), result.Hours)
	require.Equal(t, int64(3), likesIn(t, db))
	var position struct {
		NextOffset int64  `db:"next_offset"`
		NextSeq    uint64 `db:"next_seq"`
	}
	require.NoError(t, db.Get(&position, "SELECT next_offset, next_seq FROM applied_offset WHERE partition_id = ?", damaged))
	require.Equal(t, int64(1), position.NextOffset)
	require.Equal(t, uint64(1), position.NextSeq)
}

// Positions are of one like-updates: in another they would be those of other updates.
func TestMySQLIsNotMadeFromAStateTableOfOtherTopics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*world)
		says   string
	}{
		"another like-updates": {func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.UpdatesID[0]++ })
		}, "the state table of partition 1 belongs to another like-updates than is there now; stop the processors and run `kudos rebuild --updates`"},
		"another cluster": {func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.ClusterID = "another" })
		}, "partition 1 of the state table is of cluster another"},
		"other partitions": {func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.Partitions = 8 })
		}, "with 8 partitions"},
		"a state table that is lost": {func(w *world) { w.forget(schema.TopicState) }, "partition 1 of the state table has no progress record"},
		"another layout": {func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.Layouts = 1 })
		}, "a repartition has begun and ended while the state table was read"},
		"reactions on their way": {func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.Moving, p.Layouts = true, 1 })
		}, errMoving.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, db := newCounted(t)
			c.change(w)
			asked := false
			w.asked = func() { asked = true }
			result, err := w.run(MySQL)
			require.ErrorContains(t, err, c.says)
			require.False(t, asked, "nothing to agree to")
			require.False(t, result.Swapped)
			require.Equal(t, int64(77), likesIn(t, db))
		})
	}
}

// A rebuild takes long: like-updates may be another by the time that its tables are full.
func TestUpdatesCreatedAgainWhileMySQLIsMade(t *testing.T) {
	t.Parallel()
	w, db := newCounted(t)
	w.asked = w.recreateUpdates
	result, err := w.run(MySQL)
	require.ErrorContains(t, err, "like-updates was deleted and created again meanwhile; nothing was changed in MySQL")
	require.False(t, result.Swapped)
	require.Equal(t, int64(77), likesIn(t, db))
}

// From the events up to MySQL: as many as were folded, whoever tells.
func TestAllIsMadeFromTheEvents(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]standing{
		"the state table is lost":      {-1, 7, -1},
		"the state table went back":    {2, 7, -1},
		"the group's offset went back": {7, 2, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var db *sqlx.DB
			w.mysql, db = devtest.Database(t)
			devtest.Migrate(t, w.mysql)
			w.stand(s)
			result, err := w.run(Events)
			require.NoError(t, err)
			require.True(t, result.Swapped)
			require.Equal(t, int64(7), likesIn(t, db), "3 of 10 events are still to be folded")
			require.Equal(t, int64(7), w.progress().NextOffset)
			require.Equal(t, int32(0), w.progress().LeaderEpoch)
			require.Equal(t, int64(7), w.committed())
			require.Contains(t, w.out.String(), "rebuild: folding the events of partition 1: 7 offsets")
		})
	}
}
