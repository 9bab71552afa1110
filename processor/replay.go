package processor

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold"
	"kudos/schema"
	"kudos/stream"
)

// Replay folds a partition of likes once more, as latest-like-action has folded it,
// into a store that is nobody else's. What was forwarded or buried then is passed
// over: it has its place in the log already.
type Replay struct {
	store      *stream.Store
	layout     schema.Layout
	verdict    verdict
	fold       fold.Folder
	key, value []byte
}

// NewReplay begins with what the store has: nothing, for a log from its start on.
func NewReplay(store *stream.Store, layout schema.Layout) *Replay {
	return &Replay{store: store, layout: layout}
}

// Fold takes the next records of the log; through is the last offset that they cover.
func (r *Replay) Fold(records []*kgo.Record, through int64) error {
	r.verdict.reset()
	for _, rec := range records {
		r.verdict.judge(rec, r.layout)
	}
	result, err := r.fold.Fold(r.verdict.events, &tableState{store: r.store})
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
