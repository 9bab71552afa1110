package processor

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/table"
	"kudos/stream"
	"kudos/stream/kafka"
)

// This file is how the parts of a batch go through the stages of the fold. Only folding needs
// what the part before has changed; classifying the next part and sending the last one to the
// client run concurrently:
//
//	classify │ 1 │ 2 │ 3 │
//	fold         │ 1 │ 2 │ 3 │
//	send             │ 1 │ 2 │ 3 │ commit

// transact folds a batch, in parts, into a transaction and commits it.
func (w *folder) transact(x *kafka.Transaction, b *stream.Batch, out *output) error {
	classified, sent := w.classify(0, b.Records), func() {}
	// Whatever happens: nothing goes on that works for a batch which is over.
	defer func() { classified(); sent() }()
	for records, part := b.Records, 0; len(records) > 0; part++ {
		classified()
		v := &w.classified[part%2]
		records = records[min(w.atATime, len(records)):]
		classified = w.classify(part+1, records)
		result, err := w.fold.Fold(v.Events, &table.State{Store: w.store})
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

// classify begins to classify the part that records begin with, and returns a function that waits for it.
func (w *folder) classify(part int, records []*kgo.Record) (wait func()) {
	v := &w.classified[part%2]
	return w.beside(func() {
		v.Reset()
		v.Layouts = w.progress.Layouts
		for _, rec := range records[:min(w.atATime, len(records))] {
			v.Add(rec, w.layout)
		}
	})
}

func (w *folder) send(x *kafka.Transaction, records []*kgo.Record) (wait func()) {
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
