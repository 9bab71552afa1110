package view

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream/kafka/tracing"
	"kudos/stream/store"
)

// likesCopy is one partition of Likes.
type likesCopy struct {
	partition int32
	reactions bool
	watch     func(asOf wire.Position, changes []Change)
	homes     *homes

	// next is what Apply has laid out and Applied makes known.
	next struct {
		state   likesState
		changes []Change
		spans   []trace.Span // of the likes in it that are followed
		moved   bool         // the layout is another, so that posts live elsewhere
	}

	mu struct {
		sync.Mutex
		state likesState
		moved moved
	}
}

// likesState is what is known of a partition beside its store, as of the same place.
type likesState struct {
	progress schema.Progress
	known    bool // a progress record has come
	totals   Totals
}

func (s *likesState) asOf(partition int32) wire.Position {
	return wire.Position{Partition: partition, Offset: s.progress.NextOffset}
}

// Open reads what the store has of itself.
func (c *likesCopy) Open(s *store.Store) error {
	var state likesState
	known, err := s.Find([]byte(schema.StateProgressKey), func(value []byte) error {
		return schema.DecodeProgress(value, &state.progress)
	})
	if err != nil {
		return err
	}
	state.known = known
	if _, err = s.Find([]byte(totalsKey), func(value []byte) (err error) {
		state.totals, err = decodeTotals(value)
		return err
	}); err != nil {
		return err
	}
	c.next.state, c.next.changes = state, nil
	if known {
		c.homes.tell(c.partition, &state.progress)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.state = state
	return nil
}

// Whole: the progress record is the last of each of the fold's transactions.
func (c *likesCopy) Whole(records []*kgo.Record) int {
	for i, rec := range slices.Backward(records) {
		if string(rec.Key) == schema.StateProgressKey {
			return i + 1
		}
	}
	return 0
}

// PartitionsOf: each progress record says how many there are, and the first that speaks of more comes before anything
// moves to them.
func (c *likesCopy) PartitionsOf(records []*kgo.Record) int32 {
	for _, rec := range slices.Backward(records) {
		var p schema.Progress
		if string(rec.Key) == schema.StateProgressKey && schema.DecodeProgress(rec.Value, &p) == nil {
			return p.Partitions
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.state.progress.Partitions
}

// Apply lays the records out. Of each post only the last counts matter. (A record without
// a value is of `kudos rebuild --from-events`, which takes away what likes does not have.)
func (c *likesCopy) Apply(s *store.Store, w *store.Write, records []*kgo.Record) error {
	c.next.changes = c.next.changes[:0]
	c.mu.Lock()
	c.next.state = c.mu.state // an Apply that failed may have left another
	c.mu.Unlock()
	counts := map[uint64]schema.Counts{}
	var key, value []byte
	before := c.next.state
	c.next.spans = tracing.Follow(records, "reader", time.Now())
	for _, rec := range records {
		var err error
		switch len(rec.Key) {
		case schema.PairKeySize:
			if c.reactions {
				key, value, err = applyPair(w, rec, key[:0], value[:0])
			}
		case schema.PostKeySize:
			post, _ := schema.ParseCountsKey(rec.Key)
			counts[post] = schema.Counts{}
			if rec.Value != nil {
				counts[post], err = schema.DecodeCounts(rec.Value)
			}
		default:
			if string(rec.Key) == schema.StateProgressKey {
				err = c.applyProgress(w, rec)
			}
		}
		if err != nil {
			return fmt.Errorf("record at offset %d: %w", rec.Offset, err)
		}
	}
	c.next.moved = before.known && !sameLayout(&before.progress, &c.next.state.progress)
	return c.applyCounts(s, w, counts)
}

func applyPair(w *store.Write, rec *kgo.Record, key, value []byte) (k, v []byte, err error) {
	var pair schema.Pair
	if rec.Value != nil {
		if err := schema.DecodePair(rec.Value, &pair); err != nil {
			return key, value, err
		}
	}
	post, user, _ := schema.ParsePairKey(rec.Key)
	key = appendReactionKey(key, post, user)
	if pair.Reaction == schema.NoReaction {
		return key, value, w.Set(key, nil)
	}
	value = appendReaction(value, &pair)
	return key, value, w.Set(key, value)
}

func (c *likesCopy) applyProgress(w *store.Write, rec *kgo.Record) error {
	c.next.state.known = true
	if err := schema.DecodeProgress(rec.Value, &c.next.state.progress); err != nil {
		return err
	}
	return w.Set(rec.Key, rec.Value)
}

// applyCounts writes the counts that are not what they were, and keeps the totals.
func (c *likesCopy) applyCounts(s *store.Store, w *store.Write, counts map[uint64]schema.Counts) error {
	if len(counts) == 0 {
		return nil
	}
	posts := slices.Sorted(maps.Keys(counts))
	before := make([]schema.Counts, len(posts))
	var key, value []byte
	err := s.Lookup(len(posts),
		func(i int) []byte { key = appendCountsKey(key[:0], posts[i]); return key },
		func(i int, value []byte) (err error) { before[i], err = decodeCounts(value); return err })
	if err != nil {
		return err
	}
	for i, post := range posts {
		after := counts[post]
		if after == before[i] {
			continue
		}
		c.next.state.totals.add(before[i], after)
		c.next.changes = append(c.next.changes, Change{post, after})
		key, value = appendCountsKey(key[:0], post), appendCounts(value[:0], after)
		if after == (schema.Counts{}) {
			value = nil
		}
		if err := w.Set(key, value); err != nil {
			return err
		}
	}
	return w.Set([]byte(totalsKey), appendTotals(nil, c.next.state.totals))
}

// Applied moves the position; whoever waits for it looks again.
func (c *likesCopy) Applied() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.state = c.next.state
	if c.next.state.known {
		c.homes.tell(c.partition, &c.next.state.progress)
	}
	c.mu.moved.tell()
	tracing.End(c.next.spans, nil)
}

// Published tells the live streams.
func (c *likesCopy) Published(anew bool) {
	if c.watch == nil {
		return
	}
	asOf := c.next.state.asOf(c.partition)
	switch {
	case anew || c.next.moved:
		c.watch(asOf, nil)
	case len(c.next.changes) > 0:
		c.watch(asOf, c.next.changes)
	}
}

// present is the state, and what is closed when there is another.
func (c *likesCopy) present() (likesState, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.state, c.mu.moved.wait()
}

// asOf is the place that the store is as of.
func (c *likesCopy) asOf() (wire.Position, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.state.known {
		return wire.Position{}, noProgress(c.partition)
	}
	return c.mu.state.asOf(c.partition), nil
}
