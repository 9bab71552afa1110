package processor

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
)

func updateRecord(key string, u schema.Update) *kgo.Record {
	return &kgo.Record{Topic: schema.TopicUpdates, Partition: 2, Offset: int64(10 * u.Seq), Key: []byte(key),
		Value: schema.AppendUpdate(nil, &u)}
}

func delta(region string, minute, likes, dislikes int64) schema.Delta {
	r, _ := schema.ParseRegion(region)
	return schema.Delta{Region: r, Minute: minute, Likes: likes, Dislikes: dislikes}
}

func TestUpdatesCollapseToOneNetDelta(t *testing.T) {
	w := &countWorker{partition: 2, position: sql.Position{NextSeq: 5}}
	batch := []*kgo.Record{
		updateRecord("7", schema.Update{Seq: 5,
			Deltas: []schema.Delta{delta("US", 59, 2, 0), delta("FR", 59, 5, 0), delta("DE", 60, 1, 0)}}),
		updateRecord("9", schema.Update{Seq: 6, Deltas: []schema.Delta{delta("US", 0, 0, 3)}}),
		updateRecord(schema.ProgressKey, schema.Update{Seq: 7}),
		updateRecord("7", schema.Update{Seq: 8,
			Deltas: []schema.Delta{delta("US", 58, -1, 1), delta("DE", 119, 1, 0), delta("DE", 120, 1, 0)}}),
		updateRecord(schema.ProgressKey, schema.Update{Seq: 9}),
		updateRecord("11", schema.Update{Seq: 10, Deltas: []schema.Delta{delta("BR", 0, 1, 0)}}),
		updateRecord("11", schema.Update{Seq: 11, Deltas: []schema.Delta{delta("BR", 0, -1, 0)}}), // withdrawn: no row
	}
	for range 2 { // buffers are reused
		to, err := w.collapse(batch)
		require.NoError(t, err)
		require.Equal(t, uint64(12), to.NextSeq)
		require.ElementsMatch(t, []sql.CountDelta{{PostID: 7, Likes: 9, Dislikes: 1}, {PostID: 9, Dislikes: 3}},
			w.counts)
		require.ElementsMatch(t, []sql.HourDelta{
			{Hour: 0, Region: "US", Likes: 1, Dislikes: 4}, {Hour: 0, Region: "FR", Likes: 5},
			{Hour: 1, Region: "DE", Likes: 2}, {Hour: 2, Region: "DE", Likes: 1},
		}, w.hours)
	}
	require.Equal(t, sql.Position{NextSeq: 5}, w.position, "it advances only after the commit")
}

func TestCollapseParksOnInconsistentUpdates(t *testing.T) {
	progress := func(seq uint64) *kgo.Record { return updateRecord(schema.ProgressKey, schema.Update{Seq: seq}) }
	for name, c := range map[string]struct {
		batch []*kgo.Record
		says  []string
	}{
		"a jump": {[]*kgo.Record{progress(5), progress(7)},
			[]string{"offset 70", "seq 7", "6 was expected"}},
		"a jump at the start": {[]*kgo.Record{progress(6)}, []string{"seq 6", "5 was expected"}},
		"a repeated record":   {[]*kgo.Record{progress(5), progress(5)}, []string{"seq 5", "6 was expected"}},
		"an earlier record":   {[]*kgo.Record{progress(4)}, []string{"seq 4", "5 was expected"}},
		"not an update": {[]*kgo.Record{{Offset: 33, Key: []byte("7"), Value: []byte{0xff}}},
			[]string{"offset 33", "decoding"}},
		"a tombstone": {[]*kgo.Record{{Offset: 33, Key: []byte("7")}}, []string{"offset 33", "seq 0"}},
		"a foreign key": {[]*kgo.Record{updateRecord("post-7", schema.Update{Seq: 5})},
			[]string{"offset 50", "post-7"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&countWorker{partition: 2, position: sql.Position{NextSeq: 5}}).collapse(c.batch)
			var park *stream.ParkError
			require.ErrorAs(t, err, &park)
			require.NotEmpty(t, park.Action)
			for _, word := range append(c.says, "like-updates/2") {
				require.Contains(t, park.Reason, word)
			}
		})
	}
}

func TestMySQLErrorsParkOrReopen(t *testing.T) {
	changed := &sql.SourceChangedError{Stored: sql.Source{Partitions: 4},
		Given: sql.Source{Topic: "like-updates", Partitions: 8}}
	away := errors.New("dial tcp: connection refused")
	var park *stream.ParkError
	require.ErrorAs(t, parkMySQL(fmt.Errorf("x: %w", sql.ErrPositionMissing)), &park)
	require.ErrorAs(t, parkMySQL(fmt.Errorf("x: %w", changed)), &park)
	reopen := stream.Reopen("").Error()
	require.Contains(t, parkMySQL(fmt.Errorf("x: %w", sql.ErrPositionMoved)).Error(), reopen[:len(reopen)-2])
	require.Contains(t, parkMySQL(fmt.Errorf("x: %w", &sql.UnknownOutcomeError{Err: away})).Error(),
		reopen[:len(reopen)-2])
	require.Equal(t, away, parkMySQL(away), "a transient error is returned unchanged")
}

// A move between partitions changes no reaction; it is counted only where it arrives in another database or leaves one.
func TestMovedReactionsAreNotCountedAgain(t *testing.T) {
	options := sql.DefaultOptions()
	options.DSN, options.Shard = "kudos@tcp(127.0.0.1:1)/kudos", sql.Shard{Index: 0, Shards: 2}
	db, err := sql.New(options, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer db.Close()
	w := &countWorker{partition: 2, db: db}
	to, err := w.collapse([]*kgo.Record{
		updateRecord(schema.ProgressKey, schema.Update{Seq: 0, Buckets: 1, Moved: true}),
		updateRecord("7", schema.Update{Seq: 1, Counts: schema.Counts{Likes: 5},
			Deltas: []schema.Delta{delta("US", 59, 5, 0)}, Moved: true, Other: 0}),
		updateRecord("9", schema.Update{Seq: 2, Counts: schema.Counts{Likes: 6},
			Deltas: []schema.Delta{delta("US", 59, 6, 0)}, Moved: true, Other: 3}),
		updateRecord("11", schema.Update{Seq: 3, Deltas: []schema.Delta{delta("FR", 59, -7, 0)}, Moved: true,
			Other: 1}),
		updateRecord("7", schema.Update{Seq: 4, Counts: schema.Counts{Likes: 6},
			Deltas: []schema.Delta{delta("DE", 59, 1, 0)}}),
	})
	require.NoError(t, err)
	require.Equal(t, uint64(5), to.NextSeq)
	require.ElementsMatch(t, []sql.CountDelta{{PostID: 9, Likes: 6}, {PostID: 11, Likes: -7}, {PostID: 7, Likes: 1}},
		w.counts)
	require.ElementsMatch(t, []sql.HourDelta{{Region: "US", Likes: 6}, {Region: "FR", Likes: -7},
		{Region: "DE", Likes: 1}}, w.hours)
}
