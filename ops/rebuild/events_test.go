package rebuild

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// standing is how far likes/1, of 10 events, was folded, by each that tells; -1: it does not.
type standing struct {
	progress, committed, published int64
}

func (w *world) stand(s standing) {
	w.t.Helper()
	w.likes(10)
	if s.progress >= 0 {
		w.setProgress(func(p *schema.Progress) { p.NextOffset = s.progress })
	} else {
		w.forget(schema.TopicState)
	}
	if s.committed >= 0 {
		w.commit(s.committed)
	}
	if s.published >= 0 {
		w.publish(0, s.published)
	}
}

// What was folded is folded again: an event that was left out could never be counted,
// since the fold goes on behind it.
func TestEventsAreReplayedToWhereTheyWereFolded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		standing
		until int64
	}{
		"all agree":                                   {standing{6, 6, 6}, 6},
		"published decides, where it is less":         {standing{8, 7, 5}, 5},
		"published decides, where it is more":         {standing{4, 5, 9}, 9},
		"nothing published, the offset is ahead":      {standing{4, 7, -1}, 7},
		"nothing published, the state table is ahead": {standing{7, 4, -1}, 7},
		"nothing published, no committed offset":      {standing{5, -1, -1}, 5},
		"nothing published, the state table is lost":  {standing{-1, 5, -1}, 5},
		"published, all else is lost":                 {standing{-1, -1, 3}, 3},
		"up to the end":                               {standing{10, 10, 10}, 10},
		"nothing published, the offset is at the end": {standing{2, 10, -1}, 10},
		"nothing published, nothing folded":           {standing{0, 0, -1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.stand(c.standing)
			jobs, err := w.rebuild(Events).plan(t.Context())
			require.NoError(t, err)
			require.Equal(t, []job{
				{partition: 0, empty: true, events: true},
				{partition: damaged, empty: c.published < 0, until: c.until, events: true},
			}, jobs)
		})
	}
}

func TestEventsThatDoNotExplainTheStateTableAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		standing
		change func(*world)
		says   string
	}{
		"nobody tells how far": {standing{-1, -1, -1}, func(*world) {}, "up to where likes/1 was folded is not known"},
		"events are missing":   {standing{11, 11, -1}, func(*world) {}, "likes/1 was folded up to offset 11, but ends at 10"},
		"likes has lost its start": {standing{6, 6, 6}, func(w *world) {
			require.NoError(w.t, w.broker.DeleteRecords(schema.TopicLikes, damaged, 3))
		}, "likes/1 begins at offset 3"},
		"of another likes": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.SourceID[0]++ })
		}, "was folded from another likes than is there now"},
		"of another cluster": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.ClusterID = "another" })
		}, "was folded from another likes than is there now"},
		"repartitioned": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.Layouts = 1 })
		}, "since `kudos topics repartition`"},
		"reactions are on their way": {standing{6, 6, 6}, func(w *world) {
			w.setProgress(func(p *schema.Progress) { p.Moving, p.Layouts = true, 1 })
		}, errMoving.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.stand(c.standing)
			c.change(w)
			_, err := w.rebuild(Events).plan(t.Context())
			require.ErrorContains(t, err, c.says)
		})
	}
}
