package view

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// What cannot be decoded stops its partition and no other: nobody is answered as of before
// it for ever, and readiness says which record it is. Where that is gone, all goes on.
func TestWhatCannotBeDecodedStopsItsPartition(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 12)
	f.run(30)
	dir := t.TempDir()
	l, stop := newLikes(t, kafka, dir, true)
	f.caughtUp(l)
	require.NoError(t, l.Ready())

	at := f.end(0)
	progress := schema.Progress{NextOffset: at.Offset + 1, SourceID: f.id, Partitions: partitions}
	f.commit(0, []*kgo.Record{
		{Key: schema.AppendCountsKey(nil, postsOf(0)[0]), Value: []byte{99}}, // of a later version
		{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &progress)},
	})
	stopped := func() bool {
		_, err := l.AsOf(0)
		return err != nil && strings.Contains(err.Error(), "record at offset ") && strings.Contains(err.Error(), "version 99")
	}
	require.Eventually(t, stopped, patience, 5*time.Millisecond, "a copy that runs")
	var notReady *NotReadyError
	require.ErrorAs(t, l.Ready(), &notReady)
	_, err := l.AsOf(1)
	require.NoError(t, err, "the others go on")
	stop()

	l, _ = newLikes(t, kafka, dir, true)
	require.Eventually(t, stopped, patience, 5*time.Millisecond, "a copy that starts")

	cl, err := kafka.NewClient(discardLog())
	require.NoError(t, err)
	defer cl.Close()
	var gone kadm.Offsets
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(t.Context(), schema.TopicState)
	require.NoError(t, err)
	end, _ := ends.Lookup(schema.TopicState, 0)
	gone.AddOffset(schema.TopicState, 0, end.Offset, -1)
	_, err = kadm.NewClient(cl).DeleteRecords(t.Context(), gone)
	require.NoError(t, err)
	f.transaction(0, 20)
	f.caughtUp(l)
	require.NoError(t, l.Ready())
}
