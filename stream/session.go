package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// session is one assignment, from the group's callback to its revocation.
//
//	assigned ─► release (of standby replicas) ─► work (goka: Setup ─► partitions, independently ─► Cleanup) ─► revoked
type session struct {
	cl      *kgo.Client
	opts    *ProcessorOptions
	member  kafka.Member
	topic   string
	standby *standby // nil: no standby replicas

	// Only in a Follower's session, whose partitions no group assigns: fixed is true, log identifies the topic, and
	// fetched lists the partitions that the client fetches. Only the poll loop uses fetched.
	fixed   bool
	log     kafka.LogID
	fetched []int32

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the session has ended; err is set before that
	err    error

	mu struct {
		sync.Mutex
		partitions map[int32]*Partition // copied on write
	}
}

// partitions returns the current partitions, in a map that never changes.
func (s *session) partitions() map[int32]*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.partitions
}

func (s *session) set(n int32, p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := make(map[int32]*Partition, len(s.mu.partitions)+1)
	maps.Copy(changed, s.mu.partitions)
	changed[n] = p
	if p == nil {
		delete(changed, n)
	}
	s.mu.partitions = changed
}

// run blocks until the session is canceled or the driver returns early.
func (s *session) run(d driver) {
	defer close(s.done)
	defer func() {
		for _, p := range s.partitions() {
			p.Close()
		}
	}()
	err := s.standby.release(s.ctx, s.partitions())
	if err == nil {
		err = d.setUp(s)
	}
	if err == nil && s.ctx.Err() == nil {
		err = s.consume(d)
	}
	s.cancel(errEndedItself)
	cleanUpErr := d.cleanUp(s)
	switch {
	case context.Cause(s.ctx) == errEndedItself:
		s.err = errEndedItself
		if err := errors.Join(err, cleanUpErr); err != nil {
			s.err = fmt.Errorf("%w: %w", errEndedItself, err)
		}
	case cleanUpErr != nil:
		s.err = errors.Join(err, cleanUpErr)
	default:
		// A rebalance that interrupts the work is not a failure.
	}
}

// errEndedItself means that a session ended by itself. The group starts no new one unless the member leaves it.
var errEndedItself = errors.New("goka ended the session unexpectedly")

func (s *session) consume(d driver) error {
	var wg sync.WaitGroup
	partitions := slices.Collect(maps.Values(s.partitions()))
	errs := make([]error, len(partitions))
	for i, p := range partitions {
		wg.Go(func() {
			// A driver that stopped one partition cannot continue others in this session. cleanUp returns the cause.
			defer s.cancel(errEndedItself)
			if err := d.consume(s, p); err != nil {
				errs[i] = fmt.Errorf("consuming %s/%d: %w", s.topic, p.assignment.Partition, err)
			}
		})
	}
	if s.opts.CommitPositions {
		wg.Go(s.commitPositions)
	}
	wg.Go(s.watch)
	wg.Go(s.followOthers)
	if len(partitions) == 0 {
		<-s.ctx.Done()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// followOthers starts the standby replicas once all owned partitions have been opened.
func (s *session) followOthers() {
	for _, p := range s.partitions() {
		select {
		case <-p.opened:
		case <-s.ctx.Done():
			return
		}
	}
	s.standby.follow(s.partitions())
}

// commitPositions commits the positions as the group's offsets, for dashboards: nothing in kudos reads them.
func (s *session) commitPositions() {
	timer := time.NewTicker(time.Second)
	defer timer.Stop()
	committed := map[int32]kgo.EpochOffset{}
	for ended := false; !ended; {
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			ended = true // one last time, so that a stopped group shows no lag
		}
		moved := map[int32]kgo.EpochOffset{}
		for n, p := range s.partitions() {
			pos := p.settled()
			at := kgo.EpochOffset{Epoch: pos.Epoch, Offset: pos.Offset}
			if pos.Offset >= 0 && committed[n] != at {
				moved[n] = at
			}
		}
		if len(moved) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 5*time.Second)
		s.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.topic: moved},
			func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
				if err == nil {
					maps.Copy(committed, moved)
				}
			})
		cancel()
	}
}

func (s *session) claims() map[string][]int32 {
	return map[string][]int32{s.topic: slices.Collect(maps.Keys(s.partitions()))}
}
