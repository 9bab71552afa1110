package processor_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor"
	"kudos/schema"
)

// sourceEvent is an event as it was sent, with what makes its order plain.
type sourceEvent struct {
	schema.Event
	rank int // 0: has its time; 1: has none, so that its record's stands for it; 2: far ahead
	i    int // order of sending
}

func (e sourceEvent) compare(o sourceEvent) int {
	if e.rank == 0 && o.rank == 0 {
		return cmp.Or(cmp.Compare(e.TimeMs, o.TimeMs), cmp.Compare(e.i, o.i))
	}
	return cmp.Or(cmp.Compare(e.rank, o.rank), cmp.Compare(e.i, o.i))
}

// eventLog makes n records, of few posts and users so that they collide often: equal
// times, duplicates, late events, misplaced ones and poison among them. It also says
// what they must count to, by what was sent alone.
func eventLog(seed uint64, n int) ([]*kgo.Record, map[uint64]schema.Counts) {
	r := rand.New(rand.NewPCG(seed, 5))
	regions := []string{"US", "us-ca", "DE", "", "Atlantis", "FR"}
	latest := map[pairKey]sourceEvent{}
	var records []*kgo.Record
	for i := 0; len(records) < n; i++ {
		e := sourceEvent{i: i, Event: schema.Event{PostID: 1 + r.Uint64N(30), UserID: 1 + r.Uint64N(40), Action: schema.Action(1 + r.IntN(3))}}
		home := schema.PartitionFor(e.PostID, partitions)
		rec := &kgo.Record{Partition: home, Key: schema.AppendPostKey(nil, e.PostID)}
		region := regions[r.IntN(len(regions))]
		e.Region, _ = schema.ParseRegion(region)
		switch kind := r.IntN(100); {
		case kind < 4: // poison, in any of its forms
			rec.Value = []byte([]string{"", "{", "\xff", `{"user_id":1,"action":"LOVE"}`, `{"post_id":1000000,"user_id":1,"action":"LIKE"}`}[r.IntN(5)])
			records = append(records, rec)
			continue
		case kind < 12: // misplaced; at a time of its own, since its place in the order is not known
			rec.Partition = (home + 1 + r.Int32N(partitions-1)) % partitions
			e.TimeMs = 1e12 + 1000*int64(i) + 500
		case kind < 15:
			e.rank, e.TimeMs = 2, 1e14
		case kind < 18:
			e.rank = 1
		default: // in time or late, and often at the same time as others
			e.TimeMs = 1e12 + 1000*max(0, int64(i)-r.Int64N(50))
		}
		if r.IntN(2) == 0 {
			rec.Value = schema.AppendEvent(nil, &e.Event)
		} else {
			rec.Key = fmt.Append(nil, []string{"", "0"}[r.IntN(2)], e.PostID)
			rec.Value = fmt.Appendf(nil, `{"post_id":"%d","user_id":%d,"action":%q,"time_ms":%d,"region":%q}`, e.PostID, e.UserID, e.Action, e.TimeMs, region)
		}
		records = append(records, rec)
		if r.IntN(10) == 0 { // a double click, or a retry
			again := *rec
			records = append(records, &again)
		}
		if was, ok := latest[pairKey{e.PostID, e.UserID}]; !ok || was.compare(e) <= 0 {
			latest[pairKey{e.PostID, e.UserID}] = e
		}
	}
	want := map[uint64]schema.Counts{}
	for key, e := range latest {
		switch e.Action {
		case schema.Like:
			add(want, key.Post, schema.Counts{Likes: 1})
		case schema.Dislike:
			add(want, key.Post, schema.Counts{Dislikes: 1})
		}
	}
	return records[:n], want
}

// However the same events are cut into batches, and whoever works on them: they count
// to the same.
func TestTheSameEventsCountTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		events   int
		maxBatch int
		run      func(*system, int)
	}{
		{"batches of 1", 400, 1, runOnce},
		{"batches of 2", 1_000, 2, runOnce},
		{"batches of 7", 3_000, 7, runOnce},
		{"batches of 1000", 20_000, 1000, runOnce},
		{"batches of 50000", 20_000, 50_000, runOnce},
		{"with restarts", 10_000, 100, runWithRestarts},
		{"with restarts and the local state lost", 10_000, 100, runWithLostState},
		{"two at once, of which one goes and one comes", 10_000, 50, runTwoAtOnce},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			records, counts := eventLog(1, c.events)
			s.produceTo(records...)
			tape := s.tape()
			c.run(s, c.maxBatch)
			tape.waitDrained()
			for i, p := range s.started {
				p.stop()
				require.NotZero(t, p.metric("kudos_events_folded_total"), "events folded by processor %d", i)
			}
			want := tape.checkExact()
			require.Equal(t, counts, want.Counts, "counts by what was sent")
			require.NotZero(t, want.Forwarded)
			require.NotZero(t, want.Dead)
		})
	}
}

func runOnce(s *system, batch int) { s.run(maxBatch(batch)) }

// runWithRestarts stops the processor several times in the midst of the log.
func runWithRestarts(s *system, batch int) {
	dir := s.t.TempDir()
	brake := s.brake()
	for range 4 {
		s.runMidway(brake, maxBatch(batch), stateDir(dir))
	}
	s.run(maxBatch(batch), stateDir(dir))
}

func runWithLostState(s *system, batch int) {
	dir := s.t.TempDir()
	brake := s.brake()
	for range 4 {
		s.runMidway(brake, maxBatch(batch), stateDir(dir))
		require.NoError(s.t, os.RemoveAll(dir))
	}
	s.run(maxBatch(batch), stateDir(dir))
}

// runMidway runs a processor for a few transactions of each partition, and stops it with
// a further one in hand.
func (s *system) runMidway(brake *brake, change ...func(*processor.Options)) {
	brake.pass(2)
	p := s.run(change...)
	brake.wait()
	p.cancel()
	brake.release() // what is in hand is finished
	p.stop()
}

func runTwoAtOnce(s *system, batch int) {
	brake := s.brake()
	brake.pass(2)
	first := s.run(maxBatch(batch))
	brake.wait()
	second := s.run(maxBatch(batch))
	first.waitRebalance()
	brake.pass(5)
	brake.wait() // both are at work
	first.cancel()
	s.run(maxBatch(batch))
	second.waitRebalance() // the third one has come: who goes is in the group until its batch is done
	brake.release()
	first.stop()
}
