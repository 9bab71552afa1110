package processor

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream"
)

// This file is how the parts of a batch go through the stages of the fold. Only folding needs
// what the part before has changed; judging the next part and handing the last one to the
// client go on beside it:
//
//	judge  │ 1 │ 2 │ 3 │
//	fold       │ 1 │ 2 │ 3 │
//	send           │ 1 │ 2 │ 3 │ commit

// transact folds a batch, in parts, into a transaction and commits it.
func (w *folder) transact(x *stream.Transaction, b *stream.Batch, out *output) error {
	judged, sent := w.judge(0, b.Records), func() {}
	// Whatever happens: nothing goes on that works for a batch which is over.
	defer func() { judged(); sent() }()
	for records, part := b.Records, 0; len(records) > 0; part++ {
		judged()
		v := &w.verdicts[part%2]
		records = records[min(w.atATime, len(records)):]
		judged = w.judge(part+1, records)
		result, err := w.fold.Fold(v.events, &tableState{store: w.store})
		if err != nil {
			return fmt.Errorf("folding: %w", err)
		}
		out.add(v)
		w.publish(out, v, result, b.Next, len(records) == 0)
		sent()
		sent = w.send(x, out.records)
		// The rest of the batch finds what this part has changed.
		w.store.Stage(out.state, func(i int) (key, value []byte) { return out.records[i].Key, out.records[i].Value })
	}
	sent()
	out.folded, out.committing = time.Now(), true
	return x.Commit(b.Next)
}

// judge begins to judge the part that records begin with, and returns what waits for that.
func (w *folder) judge(part int, records []*kgo.Record) (wait func()) {
	v := &w.verdicts[part%2]
	return w.beside(func() {
		v.reset()
		v.layouts = w.progress.Layouts
		for _, rec := range records[:min(w.atATime, len(records))] {
			v.judge(rec, w.layout)
		}
	})
}

func (w *folder) send(x *stream.Transaction, records []*kgo.Record) (wait func()) {
	return w.beside(func() { x.Send(records) })
}

// beside runs f in a goroutine, and returns what waits for its end, as often as that is called.
func beside(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() { <-done }
}
