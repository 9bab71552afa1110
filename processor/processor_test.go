package processor_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

func TestLikesBecomeCounts(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run()
	r := rand.New(rand.NewPCG(1, 1))
	state := map[pairKey]schema.Action{}
	var records []*kgo.Record
	for i := range 20_000 {
		e := schema.Event{PostID: 1 + r.Uint64N(50), UserID: 1 + r.Uint64N(200), Action: schema.Action(1 + r.IntN(3)), TimeMs: int64(1e12 + i), Region: schema.UnknownRegion}
		state[pairKey{e.PostID, e.UserID}] = e.Action
		records = append(records, record(e))
	}
	want := map[uint64]schema.Counts{}
	for k, a := range state {
		switch a {
		case schema.Like:
			add(want, k.Post, schema.Counts{Likes: 1})
		case schema.Dislike:
			add(want, k.Post, schema.Counts{Dislikes: 1})
		}
	}
	s.produce(records...)
	s.waitFor("the counts", func() (bool, any) {
		have := s.counts()
		return fmt.Sprint(have) == fmt.Sprint(want), have
	})
	p.waitReady()
	p.waitIdle()
	tape := s.tape()
	tape.waitDrained()
	require.Equal(t, want, tape.checkExact().Counts, "the oracle of these tests agrees")
	require.Equal(t, len(records), p.metric("kudos_events_folded_total"))
	require.Equal(t, len(records), p.metric("kudos_transitions_total")+p.metric("kudos_duplicates_total"))
}
