package rebuild

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold"
	"kudos/processor/fold/classify"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/store"
)

// replay folds a partition of likes once more, as latest-like-action has folded it,
// into a store that is nobody else's. It skips forwarded events and dead letters:
// those are in the log already.
type replay struct {
	store      *store.Store
	layout     schema.Layout
	classified classify.Classified
	fold       fold.Folder
	key, value []byte
}

// newReplay begins with what the store has: nothing, for a log from its start on.
func newReplay(store *store.Store, layout schema.Layout) *replay {
	return &replay{store: store, layout: layout}
}

// Fold takes the next records of the log; through is the last offset that they cover.
func (r *replay) Fold(records []*kgo.Record, through int64) error {
	r.classified.Reset()
	for _, rec := range records {
		r.classified.Add(rec, r.layout)
	}
	result, err := r.fold.Fold(r.classified.Events, &table.State{Store: r.store})
	if err != nil {
		return fmt.Errorf("folding up to offset %d again: %w", through, err)
	}
	write := r.store.NewWrite()
	for i := range result.Pairs {
		p := &result.Pairs[i]
		r.key = schema.AppendPairKey(r.key[:0], p.Key.PostID, p.Key.UserID)
		r.value = schema.AppendPair(r.value[:0], &p.Pair)
		if err := write.Set(r.key, r.value); err != nil {
			write.Discard()
			return err
		}
	}
	for _, c := range result.Counts {
		r.key = schema.AppendCountsKey(r.key[:0], c.PostID)
		r.value = schema.AppendCounts(r.value[:0], c.Counts)
		if err := write.Set(r.key, r.value); err != nil {
			write.Discard()
			return err
		}
	}
	return write.Commit(through)
}
