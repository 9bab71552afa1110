package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// This file is the poll loop. It delivers fetched records to the partitions, and pauses, resumes and seeks them: only
// between two polls.

// poller is the poll loop of one client, which has one session at a time.
type poller struct {
	opts  *ProcessorOptions
	log   *slog.Logger
	shown atomic.Pointer[session] // nil between sessions

	mu struct {
		sync.Mutex
		failure error // why the group has assigned nothing, if the client reported it
		woken   bool
		cancel  context.CancelFunc // ends the current poll
	}
	freed chan struct{} // capacity 1: check for capacity again
}

func newPoller(opts *ProcessorOptions, log *slog.Logger) poller {
	return poller{opts: opts, log: log, freed: make(chan struct{}, 1)}
}

func (l *poller) failed(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.failure = why
}

// waiting returns why nothing is assigned.
func (l *poller) waiting() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failure != nil {
		return fmt.Errorf("waiting for the group to assign partitions: %w", l.mu.failure)
	}
	return errors.New("waiting for the group to assign partitions")
}

func (l *poller) poll(ctx context.Context, fail context.CancelCauseFunc, cl *kgo.Client) {
	var next time.Time // of a delivery
	for ctx.Err() == nil {
		pollCtx, cancel := l.pollContext(ctx)
		fetches := l.collect(pollCtx, cl, next)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		if n := fetches.NumRecords(); n > 0 {
			next = time.Time{}
			if l.opts.CollectFor > 0 && n < l.opts.MaxBatch/keepsUp {
				next = time.Now().Add(l.opts.CollectFor)
			}
		}
		if s := l.shown.Load(); s != nil {
			l.deliver(s, fetches, fail)
			l.controlFlow(s)
		}
		l.waitForCapacity(ctx)
	}
}

// keepsUp is the share of a batch below which a delivery shows that the partitions keep up.
const keepsUp = 10

// collect polls, but not before next: each delivery costs its partitions a transaction. A record that comes after a
// pause is delivered at once.
func (l *poller) collect(ctx context.Context, cl *kgo.Client, next time.Time) kgo.Fetches {
	most := pendingBatches * l.opts.MaxBatch
	if wait := time.Until(next); wait > 0 {
		kafka.Sleep(ctx, wait)
	}
	began := time.Now()
	fetches := cl.PollRecords(ctx, most)
	if next.IsZero() || fetches.NumRecords() == 0 || time.Since(began) > time.Millisecond {
		return fetches
	}
	// What the client had fetched is from the beginning of the wait. It now fetches the rest.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
	defer cancel()
	rest := cl.PollRecords(ctx, most)
	if errors.Is(rest.Err0(), context.DeadlineExceeded) {
		return fetches
	}
	return append(fetches, rest...)
}

// pollContext returns a context that wake ends.
func (l *poller) pollContext(ctx context.Context) (context.Context, context.CancelFunc) {
	pollCtx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cancel = cancel
	if l.mu.woken {
		l.mu.woken = false
		cancel()
	}
	return pollCtx, cancel
}

// wake ends the current poll, so that the loop calls controlFlow.
func (l *poller) wake() {
	l.mu.Lock()
	l.mu.woken = true
	if l.mu.cancel != nil {
		l.mu.cancel()
	}
	l.mu.Unlock()
	l.capacityFreed()
}

func (l *poller) capacityFreed() { wakeUp(l.freed) }

// deliver passes a poll to the partitions, errors first: the client appends the notice of a loss to later records.
func (l *poller) deliver(s *session, fetches kgo.Fetches, fail context.CancelCauseFunc) {
	for _, failed := range []bool{true, false} {
		for _, f := range fetches {
			for _, t := range f.Topics {
				if t.TopicID != s.log.TopicID && t.TopicID != [16]byte{} {
					// The client looked the topic up after the session did: positions are those of another log.
					fail(fmt.Errorf("reading %s: %w", s.topic, kafka.ErrRecreated))
					return
				}
				for i := range t.Partitions {
					if (t.Partitions[i].Err != nil) == failed {
						l.deliverOne(s, t.Topic, &t.Partitions[i], fail)
					}
				}
			}
		}
	}
}

func (l *poller) deliverOne(s *session, topic string, fetched *kgo.FetchPartition, fail context.CancelCauseFunc) {
	p := s.partitions()[fetched.Partition]
	switch {
	case p != nil && errors.Is(fetched.Err, kerr.UnknownTopicID):
		// This client would never consume the topic again. A new one finds the new topic; Open says what to do.
		fail(fmt.Errorf("reading %s: %w", s.topic, kafka.ErrRecreated))
	case p != nil && topic == s.topic:
		p.Deliver(fetched)
	case fetched.Err != nil && !errors.Is(fetched.Err, context.Canceled):
		l.log.Warn("fetch failed", "group", l.opts.Group, "topic", topic, "error", fetched.Err)
	}
}

func (l *poller) controlFlow(s *session) {
	var pause, resume []int32
	seeks := map[int32]kafka.Position{}
	now, partitions := time.Now(), s.partitions()
	quotas := quotas(partitions, l.opts.MaxBatch)
	s.dropReleased(partitions)
	for n, p := range partitions {
		paused, changed, seek := p.queue.flow(now, quotas[n])
		if seek != nil {
			seeks[n] = *seek
		}
		switch {
		case changed && paused:
			pause = append(pause, n)
		case changed:
			resume = append(resume, n)
		}
	}
	if len(pause) > 0 {
		s.cl.PauseFetchPartitions(map[string][]int32{s.topic: pause})
	}
	if len(seeks) > 0 {
		s.seek(partitions, seeks)
	}
	if len(resume) > 0 {
		s.cl.ResumeFetchPartitions(map[string][]int32{s.topic: resume})
	}
}

// seek makes the client consume partitions from a position, whether or not it consumed them before.
func (s *session) seek(partitions map[int32]*Partition, to map[int32]kafka.Position) {
	offsets := map[int32]kgo.Offset{}
	for n, at := range to {
		offsets[n] = kgo.NewOffset().At(at.Offset).WithEpoch(at.Epoch)
	}
	s.cl.RemoveConsumePartitions(map[string][]int32{s.topic: slices.Collect(maps.Keys(to))})
	s.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: offsets})
	for n, at := range to {
		if !slices.Contains(s.fetched, n) {
			s.fetched = append(s.fetched, n)
		}
		partitions[n].queue.seekConfirmed(at)
	}
}

// consumeNothing must be called before the client is closed. Close ends all fetches, but a metadata update may
// start to consume what was just added while the fetch session ends: a data race (franz-go 1.22.3).
func (s *session) consumeNothing() {
	s.cl.RemoveConsumePartitions(map[string][]int32{s.topic: s.fetched})
}

func (s *session) dropReleased(partitions map[int32]*Partition) {
	var released []int32
	s.fetched = slices.DeleteFunc(s.fetched, func(n int32) bool {
		if partitions[n] != nil {
			return false
		}
		released = append(released, n)
		return true
	})
	if len(released) > 0 {
		s.cl.RemoveConsumePartitions(map[string][]int32{s.topic: released})
	}
}

// waitForCapacity blocks the poll loop while every running partition has at least half of its quota pending; what is
// not polled stays in the client's own bounded buffer. If only some partition is full, it blocks for holdPoll at most:
// a fast worker frees capacity soon, and a slow one is paused after that.
func (l *poller) waitForCapacity(ctx context.Context) {
	hold := time.After(holdPoll)
	for {
		s := l.shown.Load()
		if s == nil {
			return
		}
		free, full := s.capacity(l.opts.MaxBatch)
		var held <-chan time.Time
		switch {
		case free && !full:
			return
		case free:
			held = hold
		}
		select {
		case <-l.freed:
		case <-held:
			l.wake() // so that controlFlow runs before the next poll
			return
		case <-ctx.Done():
			return
		}
	}
}

// quotas returns how many records may be pending for each partition: what the others leave of the bound, so that one
// hot post can use all of it, but at least an equal share.
func quotas(partitions map[int32]*Partition, maxBatch int) map[int32]int {
	quotas, all := map[int32]int{}, 0
	for n, p := range partitions {
		quotas[n] = p.queue.waiting()
		all += quotas[n]
	}
	for n, own := range quotas {
		quotas[n] = pendingBatches * max(1, maxBatch/len(quotas), maxBatch-(all-own)/pendingBatches)
	}
	return quotas
}

// capacity returns whether to poll: some partition has capacity, or none runs. full: some partition is at its quota.
func (s *session) capacity(maxBatch int) (has, full bool) {
	running, partitions := false, s.partitions()
	quotas := quotas(partitions, maxBatch)
	for n, p := range partitions {
		h, f := p.queue.capacity(quotas[n])
		has, full = has || h, full || f
		running = running || p.state() == StateRunning
	}
	return has || !running, full
}
