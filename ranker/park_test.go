package ranker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/ranker"
	"kudos/schema"
)

// waitParked waits until readiness says all of the words.
func (a *arena) waitParked(words ...string) {
	a.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		err := a.run.Ready()
		missing := 0
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		require.True(a.t, time.Now().Before(deadline), "readiness does not say %q: %v", words, err)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-a.t.Context().Done():
		}
	}
}

// TestAGapInTheUpdatesParks: a recent update is missing. What is counted stays as it is.
func TestAGapInTheUpdatesParks(t *testing.T) {
	t.Parallel()
	a := newArena(t, nil)
	tapes, at := likesAt(time.Now().Unix()/60, 4), make([]int, partitions)
	a.start()
	a.feed(tapes, at, 2)
	a.waitCommitted(2)
	at[1]++ // lost
	a.feed(tapes, at, 1)
	a.waitParked("like-updates/1 offset 2 has seq 3 where 2 was expected", "kudos ranker reset")
}

// TestStateThatDoesNotBelongParks, and the remedy that is named is one.
func TestStateThatDoesNotBelongParks(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*arena, *kadm.Client){
		"stands at offset": func(a *arena, adm *kadm.Client) { // somebody set the group back
			var o kadm.Offsets
			o.AddOffset(schema.TopicUpdates, 1, 1, -1)
			_, err := adm.CommitOffsets(a.t.Context(), schema.GroupTrendingLocal, o)
			require.NoError(a.t, err)
		},
		"was deleted and created again": func(a *arena, adm *kadm.Client) {
			_, err := adm.DeleteTopics(a.t.Context(), schema.TopicTrendingLocal)
			require.NoError(a.t, err)
			_, err = adm.CreateTopic(a.t.Context(), partitions, 1, nil, schema.TopicTrendingLocal)
			require.NoError(a.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, nil)
			tapes, at := likesAt(29_000_000, 20), make([]int, partitions)
			a.start()
			a.feed(tapes, at, 10)
			a.waitCommitted(10)
			a.run.stop()
			adm := kadm.NewClient(a.cl)
			spoil(a, adm)
			a.start()
			a.waitParked(name, "kudos ranker reset")
			a.run.stop()

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.NoError(t, ranker.Reset(ctx, a.kafka, a.log))
			for _, topic := range []string{schema.TopicTrendingLocal, schema.TopicTrendingLocalTable, schema.TopicTrendingTable} {
				_, err := adm.CreateTopic(t.Context(), partitions, 1, nil, topic)
				require.NoError(t, err)
			}
			for p := range int32(partitions) { // the next ones are the first of their keys
				published, _ := a.read(schema.TopicTrending, p)
				a.passed[p] = len(published)
			}
			a.feed(tapes, at, 10)
			a.start()
			a.waitSettled()
		})
	}
}
