package view

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// What could not be applied leaves no trace: neither in the position nor in the totals.
func TestAFailedApplyLeavesNoTrace(t *testing.T) {
	stores := store.NewSet(t.TempDir(), 1<<20, discardLog())
	t.Cleanup(stores.Close)
	store := stores.New(kafka.LogID{}, schema.TopicState, 0)
	require.NoError(t, store.Open())
	t.Cleanup(func() { require.NoError(t, store.Close()) })

	c := &likesCopy{homes: &homes{}}
	require.NoError(t, c.Open(store))
	apply := func(records ...*kgo.Record) error {
		w := store.NewWrite()
		if err := c.Apply(store, w, records); err != nil {
			w.Discard()
			return err
		}
		require.NoError(t, w.Commit(0))
		c.Applied()
		return nil
	}
	progress := func(next int64) *kgo.Record {
		p := schema.Progress{NextOffset: next, Partitions: 1}
		return &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &p)}
	}
	counts := func(post uint64, likes int64) *kgo.Record {
		return &kgo.Record{Key: schema.AppendCountsKey(nil, post), Value: schema.AppendCounts(nil, schema.Counts{Likes: likes})}
	}
	require.NoError(t, apply(counts(1, 5), progress(10)))
	unknown := counts(2, 1)
	unknown.Value[0] = 99
	require.ErrorContains(t, apply(counts(1, 6), progress(20), unknown, progress(30)), "version")
	// Tried again, the records may come in other pieces: the first without a progress record.
	require.NoError(t, apply())
	asOf, err := c.asOf()
	require.NoError(t, err)
	require.EqualValues(t, 10, asOf.Offset, "nothing of what follows is in the store")
	require.NoError(t, apply(counts(1, 6), progress(20)))
	state, _ := c.present()
	require.Equal(t, Totals{Posts: 1, Likes: 6}, state.totals)
}
