package processor

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// TestNothingGoesOnForABatchThatFailed: what is done beside the fold has ended when a batch
// has, which a next one would share its memory with.
func TestNothingGoesOnForABatchThatFailed(t *testing.T) {
	stores := store.NewSet(t.TempDir(), 1<<20, slog.New(slog.DiscardHandler))
	stores.BufferBytes = 1 << 20
	defer stores.Close()
	store := stores.New(kafka.LogID{}, schema.TopicState, 2)
	require.NoError(t, store.Open())
	defer store.Close()

	likes := make([]*kgo.Record, 3)
	for i := range likes {
		e := schema.Event{PostID: postAt(2, 0), UserID: uint64(i + 1), Action: schema.Like, TimeMs: 60_000}
		likes[i] = logRecord(2, int64(i), "", "")
		likes[i].Value = schema.AppendEvent(nil, &e)
	}
	store.Stage(1, func(int) (key, value []byte) {
		return schema.AppendPairKey(nil, postAt(2, 0), 1), []byte("no pair at all")
	})
	w := &folder{partition: 2, progress: testProgress(), layout: testLayout, rooms: &sync.Pool{}, atATime: 1, store: store}
	underWay := 0
	w.beside = func(f func()) func() {
		underWay++
		return sync.OnceFunc(func() { f(); underWay-- })
	}
	err := w.transact(nil, &stream.Batch{Records: likes}, &output{progress: w.progress})
	require.ErrorContains(t, err, "folding: ")
	require.Zero(t, underWay)
	require.Len(t, w.classified[1].Events, 1, "the second part was being judged")
}
