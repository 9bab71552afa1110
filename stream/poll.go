package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// This file is the poll loop. It hands what is fetched to the partitions, and steers the client (pause, resume, seek): only
// between two polls, while the client holds rebalances back.

// poll is the poll loop.
func (g *group) poll(ctx context.Context, fail context.CancelCauseFunc, cl *kgo.Client) {
	for ctx.Err() == nil {
		pollCtx, cancel := g.pollContext(ctx)
		fetches := cl.PollRecords(pollCtx, pendingBatches*g.opts.MaxBatch)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		s := g.present()
		if s != nil {
			g.deliver(s, fetches, fail)
			g.steer(s)
		}
		g.noteTrouble(fetches)
		cl.AllowRebalance()
		g.waitForRoom(ctx)
	}
}

// pollContext returns a context that wake ends.
func (g *group) pollContext(ctx context.Context) (context.Context, context.CancelFunc) {
	pollCtx, cancel := context.WithCancel(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.cancel = cancel
	if g.mu.woken {
		g.mu.woken = false
		cancel()
	}
	return pollCtx, cancel
}

// wake has the poll loop come round to steer.
func (g *group) wake() {
	g.mu.Lock()
	g.mu.woken = true
	if g.mu.cancel != nil {
		g.mu.cancel()
	}
	g.mu.Unlock()
	g.roomAgain()
}

// roomAgain has the poll loop look whether polling makes sense again.
func (g *group) roomAgain() {
	select {
	case g.room <- struct{}{}:
	default:
	}
}

// deliver hands what a poll brought to the partitions.
func (g *group) deliver(s *session, fetches kgo.Fetches, fail context.CancelCauseFunc) {
	fetches.EachPartition(func(tp kgo.FetchTopicPartition) {
		fetched := tp.FetchPartition
		p := s.partitions[fetched.Partition]
		switch {
		case p != nil && errors.Is(fetched.Err, kerr.UnknownTopicID):
			// This client would never consume the topic again. A new one finds the
			// new topic, and Open says what is to be done about it.
			fail(fmt.Errorf("reading %s: %w", s.topic, kafka.ErrRecreated))
		case p != nil && tp.Topic == s.topic:
			p.Deliver(&fetched)
		case fetched.Err != nil && !errors.Is(fetched.Err, context.Canceled):
			g.log.Warn("polling", "group", g.opts.Group, "error", fetched.Err)
		}
	})
}

// steer tells the client which partitions to pause, resume and move.
func (g *group) steer(s *session) {
	var pause, resume []int32
	seeks := map[int32]kafka.Position{}
	now, quotas := time.Now(), s.quotas(g.opts.MaxBatch)
	for n, p := range s.partitions {
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
		s.seek(seeks)
	}
	if len(resume) > 0 {
		s.cl.ResumeFetchPartitions(map[string][]int32{s.topic: resume})
	}
}

// seek moves the client. It ignores a partition that it does not consume yet, which then asks again.
func (s *session) seek(to map[int32]kafka.Position) {
	offsets := map[int32]kgo.EpochOffset{}
	stands := s.stands()
	for n, at := range to {
		offsets[n] = kgo.EpochOffset{Offset: at.Offset, Epoch: at.Epoch}
		if stands[n] == offsets[n] && at.Epoch >= 0 {
			// The client leaves out what it believes itself to be at, which after a
			// loss of data it is not. Without the epoch it is another place for it.
			offsets[n] = kgo.EpochOffset{Epoch: -1, Offset: at.Offset}
		}
	}
	s.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{s.topic: offsets})
	stands = s.stands()
	for n, at := range to {
		if stands[n] == offsets[n] {
			s.partitions[n].queue.sought(at)
		}
	}
}

// stands returns where the client believes itself to be: behind what it was polled.
func (s *session) stands() map[int32]kgo.EpochOffset {
	stands := map[int32]kgo.EpochOffset{}
	maps.Copy(stands, s.cl.CommittedOffsets()[s.topic]) // as of the start and SetOffsets
	maps.Copy(stands, s.cl.UncommittedOffsets()[s.topic])
	return stands
}

// waitForRoom holds the poll loop while every running partition has half of its quota
// waiting (what is not polled stays in the client's own bounded buffer), and for a
// while if one has all of it: a fast worker makes room soon, a slow one is
// then paused.
func (g *group) waitForRoom(ctx context.Context) {
	hold := time.NewTimer(holdPoll)
	defer hold.Stop()
	for {
		s := g.present()
		if s == nil {
			return
		}
		room, full := s.room(g.opts.MaxBatch)
		var held <-chan time.Time
		switch {
		case room && !full:
			return
		case room:
			held = hold.C
		}
		select {
		case <-g.room:
		case <-held:
			g.wake() // steer comes before the next poll
			return
		case <-s.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// quotas says how many records may wait for each partition: what the others leave of the
// bound, so that one hot post has all of it, but at least an equal part.
func (s *session) quotas(maxBatch int) map[int32]int {
	quotas, all := map[int32]int{}, 0
	for n, p := range s.partitions {
		quotas[n] = p.queue.waiting()
		all += quotas[n]
	}
	for n, own := range quotas {
		quotas[n] = pendingBatches * max(1, maxBatch/len(quotas), maxBatch-(all-own)/pendingBatches)
	}
	return quotas
}

// room tells whether polling makes sense: some partition has room, or none is running
// and the poll only waits. full: some partition must not get more.
func (s *session) room(maxBatch int) (has, full bool) {
	running, quotas := false, s.quotas(maxBatch)
	for n, p := range s.partitions {
		h, f := p.queue.room(quotas[n])
		has, full = has || h, full || f
		running = running || p.state() == StateRunning
	}
	return has || !running, full
}
