package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream/kafka/tracing"
	"kudos/stream/store"
)

// likesCopy is one partition of Likes. The lock of stream.View guards it: Open and Applied exclude readers.
type likesCopy struct {
	likes     *Likes
	partition int32

	state likesState
	moved chan struct{} // closed when there is a newer state

	// next is what Apply stages and Applied makes visible.
	next struct {
		state   likesState
		changes []Change
		spans   []trace.Span // of its traced likes
		moved   bool         // the partition layout has changed, so posts are in other partitions
	}
}

func newLikesCopy(of *Likes, partition int32) *likesCopy {
	return &likesCopy{likes: of, partition: partition, moved: make(chan struct{})}
}

// likesState is the state of a partition outside its store, as of the same position.
type likesState struct {
	progress schema.Progress
	known    bool // there is a progress record
	totals   Totals
}

func (s *likesState) asOf(partition int32) wire.Position {
	return wire.Position{Partition: partition, Offset: s.progress.NextOffset}
}

func (c *likesCopy) Open(s *store.Store) error {
	c.state = likesState{}
	known, err := s.Find([]byte(schema.StateProgressKey), func(value []byte) error {
		return schema.DecodeProgress(value, &c.state.progress)
	})
	if err != nil {
		return err
	}
	c.state.known = known
	if _, err = s.Find([]byte(totalsKey), func(value []byte) (err error) {
		c.state.totals, err = decodeTotals(value)
		return err
	}); err != nil {
		return err
	}
	c.next.state, c.next.changes = c.state, nil
	if known {
		c.likes.owners.tell(c.partition, &c.state.progress)
	}
	return nil
}

// Whole ends with the last progress record, which is the last record of each of the fold's transactions.
func (c *likesCopy) Whole(records []*kgo.Record) int {
	for i, rec := range slices.Backward(records) {
		if string(rec.Key) == schema.StateProgressKey {
			return i + 1
		}
	}
	return 0
}

// PartitionsOf returns the number of partitions in the last progress record. The first record with more of them comes
// before anything moves to the new ones.
func (c *likesCopy) PartitionsOf(records []*kgo.Record) int32 {
	for _, rec := range slices.Backward(records) {
		var p schema.Progress
		if string(rec.Key) == schema.StateProgressKey && schema.DecodeProgress(rec.Value, &p) == nil {
			return p.Partitions
		}
	}
	return c.state.progress.Partitions
}

// Apply stages the records. Only the last counts of each post matter. (A record without a value is from `kudos rebuild
// --from-events`, which deletes what likes does not have.)
func (c *likesCopy) Apply(s *store.Store, w *store.Write, records []*kgo.Record) error {
	c.next.changes = c.next.changes[:0]
	c.next.state = c.state // a failed Apply may have left another
	counts := map[uint64]schema.Counts{}
	var key, value []byte
	c.next.spans = tracing.Follow(records, "reader", time.Now())
	for _, rec := range records {
		var err error
		switch len(rec.Key) {
		case schema.PairKeySize:
			if c.likes.opts.Reactions {
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
				c.next.state.known = true
				if err = schema.DecodeProgress(rec.Value, &c.next.state.progress); err == nil {
					err = w.Set(rec.Key, rec.Value)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("record at offset %d: %w", rec.Offset, err)
		}
	}
	c.next.moved = c.state.known && !sameLayout(&c.state.progress, &c.next.state.progress)
	return c.applyCounts(s, w, counts)
}

// applyPair stages one reaction. It returns key and value so that their memory can be reused.
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

// Applied makes the new state visible and wakes whoever waits for it.
func (c *likesCopy) Applied() {
	c.state = c.next.state
	if c.next.state.known {
		c.likes.owners.tell(c.partition, &c.next.state.progress)
	}
	close(c.moved)
	c.moved = make(chan struct{})
	tracing.End(c.next.spans, nil)
}

func (c *likesCopy) Published(recreated bool) {
	if c.likes.watch == nil {
		return
	}
	asOf := c.next.state.asOf(c.partition)
	switch {
	case recreated || c.next.moved:
		c.likes.watch(asOf, nil)
	case len(c.next.changes) > 0:
		c.likes.watch(asOf, c.next.changes)
	}
}

// present returns the state, and a channel that is closed when there is a newer one. A partition without a progress
// record is not ready: the fold could not use it either.
func (c *likesCopy) present() (likesState, <-chan struct{}, error) {
	if !c.state.known {
		return likesState{}, nil, &NotReadyError{Topic: schema.TopicState, Partition: c.partition, Behind: -1,
			Reason: "it has no progress record", Action: "kudos topics apply"}
	}
	return c.state, c.moved, nil
}
