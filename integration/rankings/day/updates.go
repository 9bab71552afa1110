package day

import (
	"fmt"
	"iter"
	"math/rand/v2"

	"kudos/integration/rankings"
	"kudos/processor/fold"
	"kudos/schema"
)

// Batching is how the fold groups events into transactions.
type Batching struct {
	Partitions int
	// UserBuckets are the posts that are spread over several partitions.
	UserBuckets schema.UserBuckets
	// MaxEvents is the maximum batch size; each batch has a random size up to it.
	MaxEvents int
	// WaitMs is how long a batch waits for more events.
	WaitMs int64
	Seed   uint64
}

// DefaultBatching is that of a system without backlog.
func DefaultBatching(partitions int) Batching {
	return Batching{Partitions: partitions, MaxEvents: 1000, WaitMs: 2000, Seed: 1}
}

// Updates returns the partitions of like-updates for events: what latest-like-action would write, including progress
// records and the offsets of transaction markers. A record's append time is when its batch was complete.
func Updates(events iter.Seq[Event], b Batching) ([]*rankings.Tape, error) {
	layout, err := schema.NewLayout(int32(b.Partitions), b.UserBuckets)
	if err != nil {
		return nil, err
	}
	partitions, tapes := make([]*partition, b.Partitions), make([]*rankings.Tape, b.Partitions)
	for i := range partitions {
		tapes[i] = &rankings.Tape{}
		partitions[i] = &partition{b: b, layout: layout, rng: rand.New(rand.NewPCG(b.Seed, uint64(i))), tape: tapes[i],
			state: state{map[fold.PairKey]schema.Pair{}, map[uint64]schema.Counts{}}}
		partitions[i].size = partitions[i].nextSize()
	}
	for e := range events {
		e.ResolveTime(e.ArrivalMs)
		if err := partitions[layout.PartitionOf(e.PostID, e.UserID)].add(e); err != nil {
			return nil, err
		}
	}
	for _, p := range partitions {
		if err := p.flush(p.lastMs); err != nil {
			return nil, err
		}
	}
	return tapes, nil
}

type partition struct {
	b      Batching
	layout schema.Layout
	rng    *rand.Rand
	tape   *rankings.Tape

	batch           []fold.Event
	size            int   // at which the batch is complete
	firstMs, lastMs int64 // arrival times in the batch
	next            int64 // offset of the next event in likes
	seq             uint64
	fold            fold.Engine
	state           state
	key, value      []byte
}

func (p *partition) nextSize() int { return 1 + p.rng.IntN(p.b.MaxEvents) }

func (p *partition) add(e Event) error {
	if len(p.batch) > 0 && e.ArrivalMs > p.firstMs+p.b.WaitMs {
		if err := p.flush(p.firstMs + p.b.WaitMs); err != nil {
			return err
		}
	}
	if len(p.batch) == 0 {
		p.firstMs = e.ArrivalMs
	}
	p.batch = append(p.batch, fold.Event{Event: e.Event, Offset: p.next})
	p.lastMs = e.ArrivalMs
	p.next++
	if len(p.batch) >= p.size {
		return p.flush(e.ArrivalMs)
	}
	return nil
}

func (p *partition) flush(appendMs int64) error {
	if len(p.batch) == 0 {
		return nil
	}
	result, err := p.fold.Fold(p.batch, &p.state)
	if err != nil {
		return fmt.Errorf("folding up to event %d: %w", p.next, err)
	}
	p.state.keep(result)
	for i := range result.Updates {
		u := &result.Updates[i]
		p.key = schema.AppendPostKey(p.key[:0], u.PostID)
		all := schema.Update{Counts: u.Counts, Deltas: u.Deltas, Buckets: p.layout.Buckets(u.PostID)}
		for record := range all.Split() {
			p.write(appendMs, record)
		}
	}
	p.key = append(p.key[:0], schema.ProgressKey...)
	p.write(appendMs, schema.Update{})
	p.tape.EndAt(p.tape.End() + 1) // the transaction marker
	p.batch, p.size = p.batch[:0], p.nextSize()
	return nil
}

func (p *partition) write(appendMs int64, u schema.Update) {
	u.Seq, u.SourceOffset = p.seq, p.next
	p.seq++
	p.value = schema.AppendUpdate(p.value[:0], &u)
	p.tape.Add(rankings.Record{Offset: p.tape.End(), TimeMs: appendMs, Key: p.key, Value: p.value})
}

type state struct {
	pairs  map[fold.PairKey]schema.Pair
	counts map[uint64]schema.Counts
}

func (s *state) Pairs(keys []fold.PairKey, found func(i int, p schema.Pair)) error {
	for i, key := range keys {
		if p, ok := s.pairs[key]; ok {
			found(i, p)
		}
	}
	return nil
}

func (s *state) Counts(posts []uint64, found func(i int, c schema.Counts)) error {
	for i, post := range posts {
		if c, ok := s.counts[post]; ok {
			found(i, c)
		}
	}
	return nil
}

func (s *state) keep(r *fold.Result) {
	for i := range r.Pairs {
		s.pairs[r.Pairs[i].Key] = r.Pairs[i].Pair
	}
	for _, c := range r.Counts {
		s.counts[c.PostID] = c.Counts
	}
}
