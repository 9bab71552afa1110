package stream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// What a copy does, in words for people.
const (
	standbyOpening   = "opening" // or it has not come to the end of its log yet
	standbyFollowing = "following"
	standbyFailing   = "failing" // tried again and again; the log says why
)

var standbyStates = []string{standbyOpening, standbyFollowing, standbyFailing}

// follower keeps the copy of one partition. Its goroutine is run, which alone has the store;
// what fails there harms nobody else.
type follower struct {
	standby   *standby
	partition int32
	ctx       context.Context
	cancel    context.CancelFunc
	done      chan struct{} // closed when the store is

	store *store.Store // nil: not opened yet

	mu struct {
		sync.Mutex
		state  string
		behind int64 // offsets to the end of the log, as of the last fetch; -1: not known
	}
}

const (
	standbyRetryMin = 50 * time.Millisecond
	standbyRetryMax = 5 * time.Second
)

// pause waits before another try, longer each time; false if ctx has ended.
func pause(ctx context.Context, retry *time.Duration) bool {
	wait := time.NewTimer(*retry)
	defer wait.Stop()
	*retry = min(2**retry, standbyRetryMax)
	select {
	case <-ctx.Done():
		return false
	case <-wait.C:
		return true
	}
}

func newFollower(s *standby, partition int32) *follower {
	f := &follower{standby: s, partition: partition, done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	f.mu.state, f.mu.behind = standbyOpening, -1
	return f
}

// run follows until it is canceled. before had the folder, and may not have closed it yet.
func (f *follower) run(before *follower) {
	defer close(f.done)
	defer f.cancel()
	if before != nil {
		<-before.done
	}
	defer f.shut()
	for retry := standbyRetryMin; ; {
		started := time.Now()
		err := f.follow()
		if f.ctx.Err() != nil {
			return
		}
		if state, _ := f.status(); state != standbyFailing {
			f.standby.log.Warn("a standby copy cannot be followed, and is tried again", "partition", f.partition, "error", err)
		}
		f.show(standbyFailing, -1)
		if time.Since(started) > standbyRetryMax {
			retry = standbyRetryMin
		}
		if !pause(f.ctx, &retry) {
			return
		}
	}
}

// follow reads on from where the copy is, as far as the log is committed, until something
// fails. What is a copy of another log, or goes further than the log, starts over (resume).
func (f *follower) follow() error {
	s := f.standby
	if err := f.open(); err != nil {
		return err
	}
	next, err := f.store.Resume(f.ctx, s.cl, s.topic, f.partition, func() {})
	if err != nil {
		return err
	}
	r := kafka.NewLogReader(s.cl, s.topic, f.partition, 0)
	r.TopicID, r.FetchBytes = f.store.LogID().TopicID, standbyFetchBytes
	poll := time.NewTicker(standbyPoll)
	defer poll.Stop()
	for {
		got, err := f.read(r, next)
		if err != nil {
			return err
		}
		stands := got.Next == next
		next = got.Next
		f.showBehind(max(0, got.End-next))
		if !stands && next < got.End {
			continue
		}
		select {
		case <-poll.C:
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
}

// open opens the store, once.
func (f *follower) open() error {
	if f.store != nil {
		return nil
	}
	id, err := f.standby.identify(f.standby.topic)
	if err != nil {
		return fmt.Errorf("local state of %s/%d: %w", f.standby.topic, f.partition, err)
	}
	st := f.standby.stores.New(id, f.standby.topic, f.partition)
	if err := st.Open(); err != nil {
		return err
	}
	f.store = st
	return nil
}

// read takes a turn to fetch what follows an offset and to write it.
func (f *follower) read(r *kafka.LogReader, next int64) (kafka.LogChunk, error) {
	select {
	case f.standby.turns <- struct{}{}:
	case <-f.ctx.Done():
		return kafka.LogChunk{}, f.ctx.Err()
	}
	defer func() { <-f.standby.turns }()
	ctx, cancel := context.WithTimeout(f.ctx, standbyPatience)
	defer cancel()
	got, err := r.Fetch(ctx, next)
	if err != nil || got.Next == next {
		return got, err
	}
	return got, f.store.Replay(got.Records, got.Next-1)
}

// shut flushes and closes the store.
func (f *follower) shut() {
	if f.store == nil {
		return
	}
	if err := f.store.Close(); err != nil {
		f.standby.log.Warn("a standby copy was not closed in order: what was only in memory is read again", "partition", f.partition, "error", err)
	}
}

// showBehind tells how far the copy is, and when it is at the end for the first time, or
// again.
func (f *follower) showBehind(behind int64) {
	state, _ := f.status()
	switch {
	case behind == 0 && state != standbyFollowing:
		f.standby.log.Info("a standby copy follows", "partition", f.partition)
		state = standbyFollowing
	case behind > 0 && state == standbyFailing:
		state = standbyOpening
	}
	f.show(state, behind)
}

func (f *follower) show(state string, behind int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.state, f.mu.behind = state, behind
}

func (f *follower) status() (state string, behind int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.state, f.mu.behind
}
