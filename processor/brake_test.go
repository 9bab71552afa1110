package processor_test

import (
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// brake holds the fold in the midst of the log: each partition may commit as often as pass
// says, and the transaction after that is kept open. So a test finds events left, however
// slowly it or the processors are run. A hold has to be short: clients take a broker that
// is silent for 10 s for dead.
//
// It holds the last step but one, TxnOffsetCommit: at EndTxn the offset would be pending,
// and kfake (unlike Kafka) then has no stable offset for the other partitions either.
type brake struct {
	s  *system
	mu struct {
		sync.Mutex
		off  bool
		left [partitions]int           // commits that may pass
		held [partitions]chan struct{} // closed when the commit that waits may pass; nil: none waits
	}
}

// brake is put on before the processors run: nothing passes yet.
func (s *system) brake() *brake {
	b := &brake{s: s}
	s.broker.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if held := b.take(r.(*kmsg.TxnOffsetCommitRequest).TransactionalID); held != nil {
			s.broker.SleepControl(func() { // other requests go on meanwhile
				select {
				case <-held:
				case <-s.t.Context().Done(): // the test is over, and stops its processors
				}
			})
		}
		return nil, nil, false
	})
	return b
}

// take returns nil if the commit may pass, and otherwise what it has to wait for.
func (b *brake) take(txn string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.mu.left {
		switch {
		case b.mu.off || txn != schema.FoldTransactionalID(int32(p)):
		case b.mu.left[p] > 0:
			b.mu.left[p]--
		default:
			if b.mu.held[p] == nil {
				b.mu.held[p] = make(chan struct{})
			}
			return b.mu.held[p]
		}
	}
	return nil
}

// pass lets the next n commits of each partition pass, those that wait included, and no
// more.
func (b *brake) pass(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.off = false
	for p := range b.mu.left {
		b.mu.left[p] = n
		if b.mu.held[p] != nil {
			b.mu.left[p]--
		}
	}
	b.letGo()
}

// release lets all pass, until pass is called again.
func (b *brake) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.off = true
	b.letGo()
}

// letGo is called with mu held.
func (b *brake) letGo() {
	for p, held := range b.mu.held {
		if held != nil {
			close(held)
			b.mu.held[p] = nil
		}
	}
}

// wait waits until a commit of each partition is held. All that pass has allowed have been
// made then, and there are events left in each partition.
func (b *brake) wait() {
	b.s.t.Helper()
	b.s.waitFor("a commit of each partition to be held (of a log that is too short none is left to hold)", func() (bool, any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !slices.Contains(b.mu.held[:], nil), fmt.Sprintf("may still pass: %v; held: %v", b.mu.left, b.mu.held)
	})
}
