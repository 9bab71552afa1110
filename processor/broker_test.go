package processor_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

type ending int

const (
	goOn       ending = iota // it is handled normally
	cut                      // the connection breaks; the broker never saw the request
	doneAndCut               // the broker handles it, and the connection breaks before the response
	doneAndNo                // the broker handles it, and responds with an error
)

// held is a request that the broker does not handle yet.
type held struct {
	s       *system
	reached chan struct{}
	end     chan ending
	release func(ending)
}

// ofFold reports whether a transactional id is one of a partition's fold.
func ofFold(partition int32, id string) bool {
	return slices.Contains(schema.FoldTransactionalIDs(partition), id)
}

// holdCommit holds the next EndTxn of a partition's fold until release.
func (s *system) holdCommit(partition int32) *held {
	h := &held{s: s, reached: make(chan struct{}), end: make(chan ending, 1)}
	var once sync.Once
	h.release = func(e ending) { once.Do(func() { h.end <- e }) }
	s.t.Cleanup(func() { h.release(goOn) })
	var taken atomic.Bool
	s.Broker.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.EndTxnRequest)
		if !ofFold(partition, req.TransactionalID) || !taken.CompareAndSwap(false, true) {
			return nil, nil, false
		}
		close(h.reached)
		how := goOn
		s.Broker.SleepControl(func() { // other requests continue meanwhile
			if how = <-h.end; how == doneAndCut || how == doneAndNo {
				h.commitInstead(*req)
			}
		})
		switch how {
		case cut, doneAndCut:
			return nil, errors.New("cut by the test"), true
		case doneAndNo:
			resp := req.ResponseKind().(*kmsg.EndTxnResponse)
			resp.ErrorCode = -1 // UNKNOWN_SERVER_ERROR
			return resp, nil, true
		}
		return nil, nil, false
	})
	return h
}

// commitInstead sends the request once more, with another client.
func (h *held) commitInstead(req kmsg.EndTxnRequest) {
	resp, err := req.RequestWith(h.s.t.Context(), h.s.Client)
	if err != nil || resp.ErrorCode != 0 {
		h.s.t.Errorf("committing in place of the producer: %v, %v", resp, err)
	}
}

func (h *held) wait() {
	h.s.t.Helper()
	h.s.waitFor("the request to hold", func() (bool, any) {
		select {
		case <-h.reached:
			return true, nil
		default:
			return false, "not sent"
		}
	})
}

func (s *system) recreate(topics ...string) {
	for _, topic := range topics {
		info := s.Broker.TopicInfo(topic)
		require.NotNil(s.t, info, topic)
		require.NoError(s.t, s.Broker.DeleteTopic(topic))
		configs := map[string]string{}
		for k, v := range info.Configs {
			configs[k] = *v
		}
		require.NoError(s.t, s.Broker.CreateTopic(topic, partitions, configs))
	}
}

// brake stops the fold in the middle of the log: each partition may commit as often as pass says, and the next
// transaction is kept open. So a test finds events left, however slowly it or the processors run. A hold must be short:
// clients take a broker that is silent for 10 s for dead. It holds the last step but one, TxnOffsetCommit: at EndTxn
// the offset would be pending, and kfake (unlike Kafka) then has no stable offset for the other partitions either.
type brake struct {
	s  *system
	mu struct {
		sync.Mutex
		off  bool
		left [partitions]int           // commits that may pass
		held [partitions]chan struct{} // closed when the waiting commit may pass; nil: none waits
	}
}

// brake must be called before the processors run: nothing passes yet.
func (s *system) brake() *brake {
	b := &brake{s: s}
	s.Broker.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if held := b.take(r.(*kmsg.TxnOffsetCommitRequest).TransactionalID); held != nil {
			s.Broker.SleepControl(func() { // other requests continue meanwhile
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

// take returns nil if the commit may pass, and otherwise the channel that it must wait for.
func (b *brake) take(txn string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.mu.left {
		switch {
		case b.mu.off || !ofFold(int32(p), txn):
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

// pass lets the next n commits of each partition pass, waiting ones included, and no more.
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

// wait waits until each partition has a held commit: all that pass allowed are done, and each has events left.
func (b *brake) wait() {
	b.s.t.Helper()
	what := "a commit of each partition to be held (a log that is too short has none left)"
	b.s.waitFor(what, func() (bool, any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		all := !slices.Contains(b.mu.held[:], nil)
		return all, fmt.Sprintf("allowed to pass: %v; held: %v", b.mu.left, b.mu.held)
	})
}
