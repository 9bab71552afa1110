package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// toggles produces a seeded log of n events in which few users change their minds
// again and again, late and duplicate events among them.
func (s *system) toggles(seed uint64, n int) {
	s.t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	posts := rand.NewZipf(r, 1.2, 1, 2000)
	regions := []schema.Region{{'U', 'S'}, {'B', 'R'}, {'I', 'N'}, {'D', 'E'}, schema.UnknownRegion}
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(60<<10), kgo.MaxBufferedRecords(100_000))
	start := time.Now().Add(-24 * time.Hour).UnixMilli()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	failed := make(chan error, 1)
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	for i := range n {
		e := schema.Event{
			PostID: 1 + posts.Uint64(), UserID: 1 + r.Uint64N(500),
			Action: []schema.Action{schema.Like, schema.Like, schema.Unlike, schema.Dislike}[r.IntN(4)],
			TimeMs: start + int64(i)/20 - r.Int64N(2000),
			Region: regions[r.IntN(len(regions))],
		}
		cl.Produce(ctx, record(&e), promise)
		if r.IntN(50) == 0 {
			cl.Produce(ctx, record(&e), promise)
		}
	}
	require.NoError(s.t, cl.Flush(ctx))
	select {
	case err := <-failed:
		require.NoError(s.t, err)
	default:
	}
}

// standing is how far the fold's committed position is, and how long the log is.
func (s *system) standing(adm *kadm.Client) (committed, end int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	offsets, err := adm.FetchOffsets(ctx, schema.GroupFold)
	if kerr.IsRetriable(err) || errors.Is(err, kerr.GroupIDNotFound) { // the broker's own topics, or the group, are being made
		return 0, math.MaxInt64
	}
	require.NoError(s.t, err)
	offsets.Each(func(o kadm.OffsetResponse) { committed += o.At })
	ends, err := adm.ListEndOffsets(ctx, schema.TopicLikes)
	require.NoError(s.t, err)
	ends.Each(func(o kadm.ListedOffset) { end += o.Offset })
	return committed, end
}

// openTransactions counts the fold's transactions that are under way on the broker.
func (s *system) openTransactions(adm *kadm.Client) int {
	s.t.Helper()
	listed, err := adm.ListTransactions(s.t.Context(), nil, []string{"Ongoing"})
	require.NoError(s.t, err)
	open := 0
	listed.Each(func(t kadm.ListedTransaction) {
		if strings.HasPrefix(t.TxnID, schema.GroupFold) {
			open++
		}
	})
	return open
}

func fromEnv(t testing.TB, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// Two processors share a log; time and again one of them is killed in the middle of it
// and started again on what it left. The long form: KUDOS_TEST_EVENTS=10000000.
func TestCountsAreExactWhenProcessorsAreKilled(t *testing.T) {
	tier.Test(t)
	t.Parallel()
	events := fromEnv(t, "KUDOS_TEST_EVENTS", 1_000_000)
	wanted := fromEnv(t, "KUDOS_TEST_KILLS", 20)
	seed := uint64(fromEnv(t, "KUDOS_TEST_SEED", 1))
	s := newRealSystem(t)
	s.toggles(seed, events)
	r := rand.New(rand.NewPCG(seed, 1))
	adm := kadm.NewClient(s.client())

	// Batches so small that the log lasts for all the kills.
	batch := fmt.Sprintf("processor.max_batch=%d", fromEnv(t, "KUDOS_TEST_BATCH", max(20, events/10_000)))
	processors := []*stack.Server{
		s.processor("processor-0", "--set", batch),
		s.processor("processor-1", "--set", batch),
	}
	for _, p := range processors {
		require.NoError(t, p.Start(t.Context()))
	}
	kills, inside, open := 0, 0, 0
	for deadline := time.Now().Add(10 * time.Minute); inside < wanted; {
		require.True(t, time.Now().Before(deadline), "%d of %d kills within the time", inside, wanted)
		before, _ := s.standing(adm)
		moved := func() bool { now, end := s.standing(adm); return now > before || now >= end }
		waitFor(t, time.Minute, "the committed position to move", moved)
		pause(t, time.Duration(r.IntN(300))*time.Millisecond)
		victim := processors[r.IntN(2)]
		require.NoError(t, victim.Kill())
		kills++
		left := s.openTransactions(adm)
		committed, end := s.standing(adm)
		if committed >= end {
			break // the log is used up
		}
		if committed > 0 {
			inside++
			if left > 0 {
				open++
			}
		}
		require.NoError(t, victim.Start(t.Context()))
	}
	t.Logf("events %d, kills %d, of which inside the log %d, with a transaction left open %d", events, kills, inside, open)
	require.GreaterOrEqual(t, inside, wanted, "kills that count: the log was used up before")
	// What is left goes in batches of any size, on what the killed ones left in Kafka and MySQL.
	for _, p := range processors {
		require.NoError(t, p.Stop())
	}
	require.NoError(t, s.processor("processor-2").Start(t.Context()))
	s.drain(3 * time.Minute)
	s.requireExact()
}

// pause waits a random while: a kill at a time of its own is the point.
func pause(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
