package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// A partition that the fold never began is not answered from: nobody could say as of what.
func TestNotReadyWithoutAProgressRecord(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	require.Eventually(t, func() bool { return l.view.Ready() == nil }, patience, 5*time.Millisecond)
	const want = "latest-like-action-table/1: it has no progress record (remedy: kudos topics apply)"
	var notReady *NotReadyError
	_, err := l.AsOf(1)
	require.ErrorAs(t, err, &notReady)
	require.EqualError(t, err, want)
	_, err = l.Epoch(1)
	require.EqualError(t, err, want)
	_, _, err = l.Counts([]uint64{postsOf(1)[0]})
	require.EqualError(t, err, want)
	_, _, _, err = l.Likers(postsOf(1)[0], 0, 1)
	require.EqualError(t, err, want)
	require.ErrorContains(t, l.Ready(), want)

	f := newFold(t, kafka, 30) // begins all
	f.caughtUp(l)
	require.NoError(t, l.Ready())
	require.Zero(t, l.Totals())
}
