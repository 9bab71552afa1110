package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"kudos/stream/kafka"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// session is one assignment, from the group's callback to its revocation. It is
// goka's sarama.ConsumerGroupSession.
//
//	assigned ─► fence ─► release (of standby copies) ─► Setup (goka recovers) ─► open ─► ConsumeClaim … ─► Cleanup
type session struct {
	cl      *kgo.Client
	opts    *ProcessorOptions
	member  kafka.Member
	topic   string
	claims  map[int32]*claim
	standby *standby // nil: no copies of what others own

	ctx    context.Context
	cancel context.CancelCauseFunc
	// opened is closed when the claims have their start positions, done when the
	// session has ended; err is set before that.
	opened, done chan struct{}
	err          error
}

// run is the session after the fence. It blocks until the session is canceled or a
// partition's goroutine in goka has ended by itself.
func (s *session) run(h sarama.ConsumerGroupHandler) {
	defer close(s.done)
	defer s.closeWorkers()
	err := s.standby.release(s.ctx, s.claims)
	if err == nil {
		err = h.Setup(s)
	}
	if err == nil && s.ctx.Err() == nil {
		s.openClaims()
		s.standby.follow(s.claims) // not before: what is owned is opened first
		err = s.consume(h)
	}
	s.cancel(errEndedItself)
	cleanupErr := h.Cleanup(s)
	switch {
	case context.Cause(s.ctx) == errEndedItself:
		s.err = errEndedItself
		if err := errors.Join(err, cleanupErr); err != nil {
			s.err = fmt.Errorf("%w: %w", errEndedItself, err)
		}
	case cleanupErr != nil:
		s.err = errors.Join(err, cleanupErr)
	default:
		// A recovery cut short by a rebalance is no failure.
	}
}

// errEndedItself tells of a session that nobody ended. A new one does not come then
// unless the group is left.
var errEndedItself = errors.New("goka stopped working on a partition")

// openClaims opens all claims at once, each its own goroutine: some wait on a server.
func (s *session) openClaims() {
	var wg sync.WaitGroup
	for _, c := range s.claims {
		wg.Go(func() {
			// A failed fence has parked the claim already; feed brings it back.
			if c.status().State == StateStarting {
				c.open(s.ctx, false)
			}
		})
	}
	wg.Wait()
	close(s.opened)
}

func (s *session) consume(h sarama.ConsumerGroupHandler) error {
	var wg sync.WaitGroup
	claims := slices.Collect(maps.Values(s.claims))
	errs := make([]error, len(claims))
	for i, c := range claims {
		wg.Go(func() { c.feed(s.ctx) })
		wg.Go(func() {
			// goka returns from here when its partition processor has ended, which
			// Cleanup then tells the cause of. The other partitions cannot go on in
			// this session either.
			defer s.cancel(errEndedItself)
			if err := h.ConsumeClaim(s, c); err != nil {
				errs[i] = fmt.Errorf("consuming %s/%d: %w", c.Topic(), c.Partition(), err)
			}
		})
	}
	if s.opts.CommitPositions {
		wg.Go(s.commitPositions)
	}
	wg.Go(s.watch)
	if len(s.claims) == 0 {
		<-s.ctx.Done()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// commitPositions keeps the group's committed offsets near the positions, for
// dashboards: nothing in kudos reads them.
func (s *session) commitPositions() {
	timer := time.NewTicker(time.Second)
	defer timer.Stop()
	committed := map[int32]kgo.EpochOffset{}
	for ended := false; !ended; {
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			ended = true // once more, so that a group at rest shows no lag
		}
		moved := map[int32]kgo.EpochOffset{}
		for p, c := range s.claims {
			pos := c.settled()
			at := kgo.EpochOffset{Epoch: pos.Epoch, Offset: pos.Offset}
			if pos.Offset >= 0 && committed[p] != at {
				moved[p] = at
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

func (s *session) closeWorkers() {
	for _, c := range s.claims {
		c.worker.Close()
	}
}

// start returns the positions to fetch from. What is parked gets any: it is paused,
// and moved when it is opened. The leader epochs follow with the first seek: given
// here, the client would look them up, and not take a seek before it has.
func (s *session) start() map[string]map[int32]kgo.Offset {
	offsets := map[int32]kgo.Offset{}
	for p, c := range s.claims {
		offsets[p] = kgo.NewOffset().At(max(0, c.status().Position.Offset))
	}
	return map[string]map[int32]kgo.Offset{s.topic: offsets}
}

func (s *session) Claims() map[string][]int32 {
	claims := map[string][]int32{}
	for p := range s.claims {
		claims[s.topic] = append(claims[s.topic], p)
	}
	return claims
}

func (s *session) MemberID() string         { return s.member.ID }
func (s *session) GenerationID() int32      { return s.member.Generation }
func (s *session) Context() context.Context { return s.ctx }

// MarkOffset is goka's commit: the batch under way is done. Where the group stands is
// the worker's to commit.
func (s *session) MarkOffset(_ string, partition int32, _ int64, _ string) {
	if c := s.claims[partition]; c != nil {
		c.done()
	}
}

func (s *session) MarkMessage(msg *sarama.ConsumerMessage, metadata string) {
	s.MarkOffset(msg.Topic, msg.Partition, msg.Offset+1, metadata)
}

func (s *session) Commit()                                  {}
func (s *session) ResetOffset(string, int32, int64, string) {}
