package rebuild

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/schema"
)

func TestDataLossIsFound(t *testing.T) {
	t.Parallel()
	const (
		cutOff  = "offsets 10 to 11 were folded, and then truncated by an unclean leader election"
		another = "likes was deleted and recreated, and the events of the earlier topic from offset 6 on are lost"
	)
	for name, c := range map[string]struct {
		standing
		damage damage
		next   int64
		why    string // empty if nothing is lost
	}{
		"nothing is lost":              {standing{6, 6, 6}, nothing, 0, ""},
		"all is folded":                {standing{10, 10, 10}, nothing, 0, ""},
		"the committed offset expired": {standing{6, -1, 6}, nothing, 0, ""},
		"folded events are gone":       {standing{6, 6, 6}, lose(6), 0, ""},
		"the next events are gone": {standing{6, 6, 6}, lose(8), 8,
			"offsets 6 to 7 were deleted before they were folded"},
		"folded events were truncated":      {standing{12, 12, 12}, nothing, 10, cutOff},
		"truncated, and the epoch is known": {standing{12, 12, 12}, knowsItsEpoch, 10, cutOff},
		"all folded events were truncated": {standing{6, 6, 6}, both(knowsItsEpoch, (*world).epochsEndAt0), 0,
			"offsets 0 to 5 were folded, and then truncated by an unclean leader election"},
		"another topic likes": {standing{6, 9, 6}, ofAnotherLikes, 0, another},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := newStanding(t, c.standing, c.damage).rebuild(Loss).findLoss(t.Context(), damaged)
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

// The fold continues after the gap: progress record, committed offset and like-updates all have the new position.
func TestLossIsAccepted(t *testing.T) {
	t.Parallel()
	w := newStanding(t, standing{6, 6, 6}, both(numbered(1), lose(8)))
	want := w.progress()
	w.mustRun(Loss)
	require.Contains(t, w.said, "partition 0: nothing is lost")
	require.Contains(t, w.said,
		"partition 1: offsets 6 to 7 were deleted before they were folded; it continues at offset 8")
	want.NextOffset, want.NextSeq, want.LeaderEpoch = 8, 2, -1
	require.Equal(t, want, w.progress())
	require.Equal(t, int64(8), w.committed())
	updates := w.updates()
	last := updates[len(updates)-1]
	require.Equal(t, uint64(1), last.Seq)
	require.Equal(t, int64(8), last.SourceOffset)
	w.mustRun(Loss)
	require.Contains(t, w.said, "partition 1: nothing is lost")
	require.Equal(t, want, w.progress(), "the second run does nothing")
}

// Only the committed offset is wrong: it becomes the progress record's, whatever likes still has; nothing else changes.
func TestOffsetsAreCommittedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		committed int64
		damage    damage
	}{
		"rewound":                        {2, nothing},
		"advanced":                       {9, nothing},
		"rewound, likes has lost events": {2, both(lose(4), loseElsewhere(9))},
		"rewound, nothing before":        {2, lose(6)},
		"rewound, repartitioned":         {2, ofAnotherLayout},
		"rewound, old and repartitioned": {0, both(lose(5), ofAnotherLayout)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStanding(t, standing{6, c.committed, 6}, both(numbered(1), knowsItsEpoch, c.damage))
			before, wrong, ends := w.progress(), w.committed(), w.written()
			w.mustRun(Offsets, func(o *Options) { o.DryRun = true })
			w.requireSaid("partition 1: the state table is at offset 6 of likes/1",
				"offset 6 is committed again", "dry run")
			require.Equal(t, wrong, w.committed())
			require.Equal(t, ends, w.written())

			w.mustRun(Offsets)
			w.requireSaid("partition 0: the committed offset is correct")
			require.Equal(t, int64(6), w.committed())
			require.Equal(t, before, w.progress())
			require.Equal(t, ends[1], w.written()[1], "like-updates")

			ends = w.written()
			w.mustRun(Offsets)
			w.requireSaid("partition 1: the committed offset is correct")
			require.Equal(t, ends, w.written(), "the second run does nothing")
		})
	}
}

func TestOffsetsOfAllPartitionsAreCommittedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.likes(4)
	for w.in = range int32(partitions) {
		w.setProgress(func(p *schema.Progress) { p.NextOffset, p.NextSeq = 3, 1 })
		w.publish(0, 3)
		w.commit(1)
	}
	w.mustRun(Offsets)
	for w.in = range int32(partitions) {
		require.Equal(t, int64(3), w.committed(), "partition %d", w.in)
	}
}

// An earlier worker is fenced, as by anything that writes a partition: it cannot commit its open transaction.
func TestOffsetsAreCommittedUnderTheFence(t *testing.T) {
	t.Parallel()
	w := newStanding(t, standing{6, 2, 6}, numbered(1))
	id := schema.FoldTransactionalIDs(damaged)[0]
	zombie := w.NewClient(kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, zombie.BeginTransaction())
	_, _, err := zombie.ProducerID(t.Context())
	require.NoError(t, err)
	w.mustRun(Offsets)
	rec := devtest.CountsRecord(damaged, thePost, schema.Counts{Likes: 1})
	require.Error(t, zombie.ProduceSync(t.Context(), rec).FirstErr())
	require.Equal(t, int64(6), w.committed())
}

// If several things are wrong, each can be repaired without waiting for the others.
func TestRebuildOffsetsWithOtherDamage(t *testing.T) {
	t.Parallel()
	requireAt := func(w *world, offset int64) {
		require.Equal(w.t, offset, w.committed())
		require.Equal(w.t, offset, w.progress().NextOffset)
	}
	t.Run("the next events are gone, too", func(t *testing.T) {
		t.Parallel()
		w := newStanding(t, standing{6, 2, 6}, both(numbered(1), lose(7)))
		w.mustRun(Loss)
		requireAt(w, 7)
	})
	t.Run("nothing is lost", func(t *testing.T) {
		t.Parallel()
		w := newStanding(t, standing{6, 2, 6}, numbered(1))
		w.mustRun(Loss)
		w.requireSaid("partition 1: nothing is lost, but the state table is at offset 6", "kudos rebuild --offsets")
		require.Equal(t, int64(2), w.committed())
	})
	t.Run("the state table was rewound", func(t *testing.T) {
		t.Parallel()
		w := newStanding(t, standing{6, 8, 8}, both(lose(4), loseElsewhere(1)))
		_, err := w.run(Loss)
		require.ErrorContains(t, err, "kudos rebuild --updates")
		_, err = w.run(Updates)
		require.ErrorContains(t, err, "published up to 8")
		require.ErrorContains(t, err, "kudos rebuild --updates")
		_, err = w.run(Events)
		require.ErrorContains(t, err, "likes/0 starts at offset 1")
		require.ErrorContains(t, err, "in partition 1, the state table is at offset 6")
		require.ErrorContains(t, err, "to fix this: stop the processors, delete like-updates")
		w.recreateUpdates()
		_, err = w.run(Offsets)
		require.ErrorContains(t, err, "like-updates does not belong to the state table")
		w.runKafka(Updates)
		w.requireSaid("but the group has committed 8", "the fold resumes at the offset of the state table")
		requireAt(w, 6)
	})
	t.Run("the state table was rewound to before the start of likes", func(t *testing.T) {
		t.Parallel()
		w := newStanding(t, standing{6, 8, 8}, lose(7))
		_, err := w.run(Loss)
		require.ErrorContains(t, err, "if offsets 6 to 6 of likes/1 are permanently lost")
		w.recreateUpdates()
		w.mustRun(Loss)
		w.runKafka(Updates)
		requireAt(w, 7)
	})
}

// Damage that a depth does not repair is rejected with an action that works on this cluster, and nothing is written.
func TestInvalidArguments(t *testing.T) {
	t.Parallel()
	const (
		another     = "was written for other topics than the current ones"
		unknown     = "the folded offset of likes/1 is unknown"
		behindEnd   = "likes/1 was folded up to offset 11, but ends at 10"
		otherLikes  = "was folded from a topic likes that is not the current one"
		otherLayout = "since `kudos topics repartition`"
		noProgress  = "partition 1 of the state table has no progress record"
		committed   = "the state table is at offset 6 of likes/1, but the group has committed 8"
		wentBack    = "and published up to 8: the state table was lost or rewound"
		torn        = "and published up to 5: Kafka committed a transaction in part, or like-updates was rewound"
		fromEvents  = "stop the processors, then: kudos rebuild --from-events"
		updates     = "stop the processors, delete like-updates, then: kudos topics apply, and kudos rebuild --updates"
		gone        = "restore the topic latest-like-action-table, or, if offsets 6 to 6 of likes/1 are permanently " +
			"lost: stop the processors, delete like-updates, then: kudos topics apply, kudos rebuild --accept-loss, " +
			"and kudos rebuild --updates"
		deleted = "offsets 6 to 6 were deleted before they were folded"
		loss    = "kudos rebuild --accept-loss"
	)
	for name, c := range map[string]struct {
		depth Depth
		standing
		damage      damage
		says, helps string // parts of the error; empty if nothing is wrong
	}{
		"the folded offset is unknown": {Events, standing{-1, -1, -1}, nothing, unknown, ""},
		"events are missing":           {Events, standing{11, 11, -1}, nothing, behindEnd, ""},
		"likes has lost its start":     {Events, standing{6, 6, 6}, lose(3), "likes/1 starts at offset 3", ""},
		"events of another likes":      {Events, standing{6, 6, 6}, ofAnotherLikes, otherLikes, ""},
		"events, another cluster":      {Events, standing{6, 6, 6}, ofAnotherCluster, otherLikes, ""},
		"events, repartitioned":        {Events, standing{6, 6, 6}, ofAnotherLayout, otherLayout, ""},
		"events, migrating":            {Events, standing{6, 6, 6}, isMigrating, errMigrating.Error(), ""},

		// A state table that was rewound, or belongs to other topics, does not show what is lost.
		"loss, state table rewound":                 {Loss, standing{6, 8, 8}, nothing, committed, ""},
		"loss, state table rewound, events deleted": {Loss, standing{6, 8, 8}, lose(7), committed, ""},
		"loss, state table lost":                    {Loss, standing{-1, 6, 6}, nothing, noProgress, ""},
		"loss, another cluster":                     {Loss, standing{6, 6, 6}, ofAnotherCluster, another, ""},
		"loss, another state table":                 {Loss, standing{6, 6, 6}, ofAnotherTable, another, ""},
		"loss, other partitions":                    {Loss, standing{6, 6, 6}, of8Partitions, another, ""},
		"loss, migrating":                           {Loss, standing{6, 6, 6}, isMigrating, errMigrating.Error(), ""},

		"updates, another state table": {Updates, standing{6, 6, 6}, ofAnotherTable, another, ""},
		"updates, another likes": {Updates, standing{6, 6, 6}, ofAnotherLikes,
			"likes was deleted and recreated since partition 1 was folded", "start over in empty topics"},

		"published further":                    {Offsets, standing{6, 8, 8}, nothing, wentBack, fromEvents},
		"published further, old":               {Offsets, standing{6, 8, 8}, lose(4), wentBack, updates},
		"published further, old elsewhere":     {Offsets, standing{6, 8, 8}, loseElsewhere(1), wentBack, updates},
		"published further, repartitioned":     {Offsets, standing{6, 8, 8}, ofAnotherLayout, wentBack, updates},
		"published further, events deleted":    {Offsets, standing{6, 8, 8}, lose(7), wentBack, gone},
		"published less":                       {Offsets, standing{6, 5, 5}, numbered(2), torn, fromEvents},
		"published less, old":                  {Offsets, standing{6, 5, 5}, both(numbered(2), lose(1)), torn, updates},
		"published less, same seq":             {Offsets, standing{6, 5, 5}, numbered(1), torn, fromEvents},
		"the next events are gone":             {Offsets, standing{6, 2, 6}, both(numbered(1), lose(7)), deleted, loss},
		"nothing is wrong: the offset expired": {Offsets, standing{6, -1, 6}, numbered(1), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStanding(t, c.standing, c.damage)
			committed, ends := w.committed(), w.written()
			_, err := w.run(c.depth)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
				require.ErrorContains(t, err, c.helps)
			}
			require.Equal(t, committed, w.committed())
			require.Equal(t, ends, w.written())
		})
	}
}
