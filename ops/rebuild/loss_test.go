package rebuild

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func TestLossIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		standing
		change func(*world)
		next   int64
		why    string // none: nothing is lost
	}{
		"nothing is lost":              {standing{6, 6, 6}, func(*world) {}, 0, ""},
		"all is folded":                {standing{10, 10, 10}, func(*world) {}, 0, ""},
		"the committed offset expired": {standing{6, -1, 6}, func(*world) {}, 0, ""},
		"folded events are gone": {standing{6, 6, 6}, func(w *world) {
			require.NoError(w.t, w.broker.DeleteRecords(schema.TopicLikes, damaged, 6))
		}, 0, ""},
		"the next events are gone": {standing{6, 6, 6}, func(w *world) {
			require.NoError(w.t, w.broker.DeleteRecords(schema.TopicLikes, damaged, 8))
		}, 8, "offsets 6 to 7 were deleted before they were folded"},
		"folded events were cut off": {standing{12, 12, 12}, func(*world) {}, 10, "offsets 10 to 11 were folded, and then cut off by an unclean leader election"},
		"cut off, and the epoch is known": {standing{12, 12, 12}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.LeaderEpoch = 0 })
		}, 10, "offsets 10 to 11 were folded, and then cut off by an unclean leader election"},
		"all that was folded was cut off": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.LeaderEpoch = 0 })
			w.epochEnds(0)
		}, 0, "offsets 0 to 5 were folded, and then cut off by an unclean leader election"},
		"of another likes": {standing{6, 9, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.SourceID[0]++ })
		}, 0, "likes was deleted and created again, and what the earlier one had from offset 6 on is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.stand(c.standing)
			c.change(w)
			l, err := w.rebuild(Loss).findLoss(t.Context(), damaged, w.progress())
			require.NoError(t, err)
			if c.why == "" {
				require.Empty(t, l.why)
				require.Contains(t, l.String(), "partition 1: nothing is lost")
				return
			}
			require.Contains(t, l.why, c.why)
			require.Equal(t, c.next, l.next)
		})
	}
}

// A state table that went back, or is of other topics, does not tell what is lost.
func TestLossOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	wentBack := func(w *world) {
		w.setProgress(func(p *schema.Progress) { p.NextSeq = 1 })
		w.publish(1, 8) // of the transaction that the state table has no more
	}
	for name, c := range map[string]struct {
		standing
		change func(*world)
		says   string
	}{
		"the state table went back": {standing{6, 8, 6}, wentBack, "the state table stands at offset 6 of likes/1, but the group has committed 8"},
		"it went back, and events are gone": {standing{6, 8, 6}, func(w *world) {
			wentBack(w)
			require.NoError(w.t, w.broker.DeleteRecords(schema.TopicLikes, damaged, 7))
		}, "the state table stands at offset 6 of likes/1, but the group has committed 8"},
		"the state table is lost": {standing{-1, 6, 6}, func(*world) {}, "partition 1 of the state table has no progress record"},
		"of another cluster": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.ClusterID = "another" })
		}, "was made for other topics than there are"},
		"of another state table": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.StateID[0]++ })
		}, "was made for other topics than there are"},
		"of other partitions": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.Partitions++ })
		}, "was made for other topics than there are"},
		"reactions are on their way": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.Moving = true })
		}, errMoving.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.stand(c.standing)
			c.change(w)
			before := w.broker.PartitionInfo(schema.TopicState, damaged)
			_, err := w.run(Loss)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, before, w.broker.PartitionInfo(schema.TopicState, damaged), "nothing was written")
		})
	}
}

// The fold goes on behind what is gone: progress record, committed offset and like-updates
// all say so.
func TestLossIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stand(standing{6, 6, 6})
	w.setProgress(func(p *schema.Progress) { p.NextSeq = 1 })
	require.NoError(t, w.broker.DeleteRecords(schema.TopicLikes, damaged, 8))
	want := w.progress()
	_, err := w.run(Loss)
	require.NoError(t, err)
	require.Contains(t, w.said, "partition 0: nothing is lost")
	require.Contains(t, w.said, "partition 1: offsets 6 to 7 were deleted before they were folded; it goes on at offset 8")
	want.NextOffset, want.NextSeq, want.LeaderEpoch = 8, 2, -1
	require.Equal(t, want, w.progress())
	require.Equal(t, int64(8), w.committed())
	last := w.lastUpdate()
	require.Equal(t, uint64(1), last.Seq)
	require.Equal(t, int64(8), last.SourceOffset)
	_, err = w.run(Loss)
	require.NoError(t, err)
	require.Contains(t, w.said, "partition 1: nothing is lost")
	require.Equal(t, want, w.progress(), "the second time there is nothing to do")
}
