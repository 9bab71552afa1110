package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProbesAreAskedForAgain: a question without an answer is a long time, not the end of the run; an answer that
// is an error is the end.
func TestProbesAreAskedForAgain(t *testing.T) {
	answers := []error{context.DeadlineExceeded, nil, errors.New("no such table")}
	w := newWatcher("a place", func(_ context.Context, posts []uint64) (map[uint64]bool, error) {
		err := answers[0]
		answers = answers[1:]
		return map[uint64]bool{1: err == nil}, err
	})
	w.expect(probe{post: 1, sent: time.Now()})
	w.end()
	require.NoError(t, w.watch(within(t)))
	require.Len(t, w.took, 1)

	w.begin()
	w.expect(probe{post: 1, sent: time.Now()})
	require.EqualError(t, w.watch(within(t)), "looking for probes in a place: no such table")
}
