package processor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor"
	"kudos/schema"
)

// eventLog returns n records that collide often: equal times, duplicates, late, misrouted and invalid events.
func eventLog(seed uint64, n int) []*kgo.Record {
	r := rand.New(rand.NewPCG(seed, 5))
	regions := []string{"US", "us-ca", "DE", "", "Atlantis", "FR"}
	var records []*kgo.Record
	for i := int64(0); len(records) < n; i++ {
		e := schema.Event{PostID: 1 + r.Uint64N(30), UserID: 1 + r.Uint64N(40), Action: schema.Action(1 + r.IntN(3))}
		owner := schema.PartitionFor(e.PostID, partitions)
		rec := &kgo.Record{Partition: owner, Key: schema.AppendPostKey(nil, e.PostID)}
		region := regions[r.IntN(len(regions))]
		e.Region, _ = schema.ParseRegion(region)
		switch kind := r.IntN(100); {
		case kind < 4: // invalid, in any form
			rec.Value = []byte([]string{"", "{", "\xff", `{"user_id":1,"action":"LOVE"}`,
				`{"post_id":1000000,"user_id":1,"action":"LIKE"}`}[r.IntN(5)])
			records = append(records, rec)
			continue
		case kind < 12: // misrouted
			rec.Partition = (owner + 1 + r.Int32N(partitions-1)) % partitions
			e.TimeMs = 1e12 + 1000*i + 500
		case kind < 15: // far ahead
			e.TimeMs = 1e14
		case kind < 18: // no time: that of its record counts
		default: // in time or late, and often at the same time as others
			e.TimeMs = 1e12 + 1000*max(0, i-r.Int64N(50))
		}
		if r.IntN(2) == 0 {
			rec.Value = schema.AppendEvent(nil, &e)
		} else {
			rec.Key = fmt.Append(nil, []string{"", "0"}[r.IntN(2)], e.PostID)
			rec.Value = fmt.Appendf(nil, `{"post_id":"%d","user_id":%d,"action":%q,"time_ms":%d,"region":%q}`, e.PostID,
				e.UserID, e.Action, e.TimeMs, region)
		}
		records = append(records, rec)
		if r.IntN(10) == 0 { // a double click, or a retry
			again := *rec
			records = append(records, &again)
		}
	}
	return records[:n]
}

// However the same events are split into batches, and whichever processes fold them: the counts are the same.
func TestSameEventsGiveTheSameCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		events, maxBatch int
		run              func(*system, int)
	}{
		{"batches of 1", 400, 1, runOnce},
		{"batches of 2", 1_000, 2, runOnce},
		{"batches of 7", 3_000, 7, runOnce},
		{"batches of 1000", 20_000, 1000, runOnce},
		{"batches of 50000", 20_000, 50_000, runOnce},
		{"with restarts", 10_000, 100, runWithRestarts},
		{"with restarts that lose the local state", 10_000, 100, runWithLostState},
		{"two processors, one leaving and one joining", 10_000, 50, runTwoAtOnce},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			if testing.Short() && c.maxBatch < 10 { // the race detector needs less data
				c.events /= 4
			}
			records := eventLog(1, c.events)
			s.produce(records...)
			c.run(s, c.maxBatch)
			s.waitDrained()
			for i, p := range s.started {
				p.stop()
				require.NotZero(t, p.metric("kudos_events_folded_total"), "events folded by processor %d", i)
			}
			s.checkExact()
			seen := s.seen()
			require.Greater(t, seen[schema.TopicLikes], len(records), "events were forwarded")
			require.NotZero(t, seen[schema.TopicDLT])
		})
	}
}

func runOnce(s *system, batch int) { s.run(maxBatch(batch)) }

// runWithRestarts stops the processor several times in the middle of the log.
func runWithRestarts(s *system, batch int) { s.runInParts(batch, func(string) error { return nil }) }

func runWithLostState(s *system, batch int) { s.runInParts(batch, os.RemoveAll) }

func (s *system) runInParts(batch int, between func(dir string) error) {
	dir := s.t.TempDir()
	brake := s.brake()
	for range 4 {
		s.runMidway(brake, maxBatch(batch), stateDir(dir))
		require.NoError(s.t, between(dir))
	}
	s.run(maxBatch(batch), stateDir(dir))
}

// runMidway runs a processor for a few transactions of each partition, and stops it with another one in flight.
func (s *system) runMidway(brake *brake, change ...func(*processor.Options)) {
	brake.pass(2)
	p := s.run(change...)
	brake.wait()
	p.cancel()
	brake.release() // the transactions in flight finish
	p.stop()
}

func runTwoAtOnce(s *system, batch int) {
	brake := s.brake()
	brake.pass(2)
	first := s.run(maxBatch(batch))
	brake.wait()
	s.run(maxBatch(batch)).waitAssigned()
	brake.pass(5)
	brake.wait() // both are working
	first.cancel()
	s.run(maxBatch(batch)).waitAssigned() // one that leaves is in the group until its batch is done
	brake.release()
	first.stop()
}
