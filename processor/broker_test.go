package processor_test

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// ending is how a request ends that was held.
type ending int

const (
	goOn       ending = iota // as if nothing had been
	cut                      // the connection breaks; the broker never saw the request
	doneAndCut               // the broker has done it, and the connection breaks before the answer
	doneAndNo                // the broker has done it, and answers with an error
)

// held is one request that the broker is kept from handling.
type held struct {
	s       *system
	reached chan struct{}
	end     chan ending
	release func(ending)
}

// holdCommit holds the next EndTxn of a partition's fold until release.
func (s *system) holdCommit(partition int32) *held {
	h := &held{s: s, reached: make(chan struct{}), end: make(chan ending, 1)}
	var once sync.Once
	h.release = func(e ending) { once.Do(func() { h.end <- e }) }
	s.t.Cleanup(func() { h.release(goOn) })
	var taken atomic.Bool
	s.broker.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.EndTxnRequest)
		if req.TransactionalID != schema.FoldTransactionalID(partition) || !taken.CompareAndSwap(false, true) {
			return nil, nil, false
		}
		close(h.reached)
		how := goOn
		s.broker.SleepControl(func() { // other requests go on meanwhile
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

// commitInstead sends the request once more, from elsewhere.
func (h *held) commitInstead(req kmsg.EndTxnRequest) {
	resp, err := req.RequestWith(h.s.t.Context(), h.s.cl)
	if err != nil || resp.ErrorCode != 0 {
		h.s.t.Errorf("committing in the producer's stead: %v, %v", resp, err)
	}
}

// wait returns when the request is there.
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

// observe counts requests of these kinds from now on.
func (s *system) observe(keys ...kmsg.Key) *kfake.FaultHandle {
	faults := make([]kfake.Fault, len(keys))
	for i, key := range keys {
		faults[i] = kfake.Fault{Keys: []kmsg.Key{key}, Observe: true, Count: -1}
	}
	return s.broker.Fault(faults...)
}

// recreate deletes topics and makes them anew: the same names, other logs.
func (s *system) recreate(topics ...string) {
	for _, topic := range topics {
		info := s.broker.TopicInfo(topic)
		require.NotNil(s.t, info, topic)
		require.NoError(s.t, s.broker.DeleteTopic(topic))
		configs := map[string]string{}
		for k, v := range info.Configs {
			configs[k] = *v
		}
		require.NoError(s.t, s.broker.CreateTopic(topic, partitions, configs))
	}
}
