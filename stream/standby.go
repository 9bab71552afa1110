package stream

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

const (
	// standbyPoll is how often a copy at the end of its log asks for more. Asking without
	// waiting at the broker, all copies can share one connection to each.
	standbyPoll = 500 * time.Millisecond
	// standbyPatience is how long a fetch may go on without an answer: it holds a turn.
	standbyPatience = 5 * time.Second
	// standbyAtATime copies read and write at a time: they are to take little from the
	// partitions that are worked on, also when all of them begin at once.
	standbyAtATime = 4
	// standbyFetchBytes: a takeover waits for the fetch in hand to be written.
	standbyFetchBytes = 256 << 10
)

// standby keeps copies of the state table's partitions that this process does not own,
// so that taking one over reads only what has not been followed yet. A partition's
// folder has one user at a time:
//
//	assigned ─► release (the copy is closed) ─► goka recovers, Worker … Cleanup (goka closes) ─► follow
//
// goka's own hot standby opens nothing before all copies have recovered, fails the whole
// processor with a copy that fails, and closes all of them at each rebalance.
type standby struct {
	opts       *ProcessorOptions
	cl         *kgo.Client // not goka's: a recovery does not wait behind the copies
	topic      string
	partitions []int32 // all there are
	stores     *store.Set
	identify   func(topic string) (kafka.LogID, error)
	log        *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	turns  chan struct{} // has one for each copy that reads or writes

	mu struct {
		sync.Mutex
		copies map[int32]*follower // those being closed included
	}
}

// newStandby follows nothing yet; without Standby it is nil, which never does.
func newStandby(ctx context.Context, opts *ProcessorOptions, own *kgo.Client, log *slog.Logger) (*standby, error) {
	if opts.Standby == nil {
		return nil, nil
	}
	topic := tableOf(opts.Group)
	partitions, err := topicManager{cl: own, timeout: opts.Kafka.RequestTimeout}.Partitions(topic)
	if err != nil {
		return nil, err
	}
	cl, err := opts.Kafka.NewClient(log)
	if err != nil {
		return nil, err
	}
	s := &standby{
		opts: opts, cl: cl, topic: topic, partitions: partitions,
		stores: opts.Standby, identify: topicManager{cl: cl, timeout: opts.Kafka.RequestTimeout}.identify,
		log:   log.With("topic", topic),
		turns: make(chan struct{}, standbyAtATime),
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.mu.copies = map[int32]*follower{}
	return s, nil
}

// release ends the copies of what is to be opened by its owner, and returns when their
// stores are closed. It is cut short by ctx, and bounded: a process whose disk does not
// answer is not to hold partitions.
func (s *standby) release(ctx context.Context, owned map[int32]*Partition) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	var ending []*follower
	for p := range owned {
		if f := s.mu.copies[p]; f != nil {
			f.cancel()
			ending = append(ending, f)
		}
	}
	s.mu.Unlock()
	bound := time.NewTimer(s.opts.ShutdownTimeout)
	defer bound.Stop()
	for _, f := range ending {
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		case <-bound.C:
			return fmt.Errorf("the standby copy of %s/%d was not closed within %v: does its disk answer?", s.topic, f.partition, s.opts.ShutdownTimeout)
		}
		s.mu.Lock()
		delete(s.mu.copies, f.partition)
		s.mu.Unlock()
	}
	return nil
}

// follow begins with the copies of all but the owned partitions; those that are followed
// already go on.
func (s *standby) follow(owned map[int32]*Partition) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partitions {
		before := s.mu.copies[p]
		if owned[p] != nil || before != nil && before.ctx.Err() == nil {
			continue
		}
		f := newFollower(s, p)
		s.mu.copies[p] = f
		go f.run(before)
	}
}

// close ends all copies, and waits for them with a bound.
func (s *standby) close() {
	if s == nil {
		return
	}
	s.cancel()
	bound := time.NewTimer(s.opts.ShutdownTimeout)
	defer bound.Stop()
	for _, f := range s.all() {
		select {
		case <-f.done:
			continue
		case <-bound.C:
			s.log.Error("a standby copy was not closed in time", "partition", f.partition)
		}
		break
	}
	s.cl.Close()
}

func (s *standby) all() []*follower {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.mu.copies))
}
