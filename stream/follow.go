package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// Follower consumes the partitions of a topic without a group, each independently, for workers that keep their own
// position. If the topic is recreated or its partition count changes, all partitions restart.
type Follower struct {
	poller
	newWorker func(Assignment) Worker
	changed   func([]Worker) // with the workers by partition, when they change, and with nil after a session

	mu struct {
		sync.Mutex
		err     error                      // why there is no session
		wanted  func(partition int32) bool // which partitions are followed
		session *session                   // nil between sessions
		running map[int32]*started         // including those being closed
	}
	end context.CancelCauseFunc // of the current session
}

// NewFollower returns a follower of the topic Input, shown in metrics as Group. For each session it calls newWorker for
// each partition that is wanted, and whenever these change, changed, if not nil, with the workers by partition: nil for
// those that are not followed. It calls changed with nil when the session has ended.
func NewFollower(opts ProcessorOptions, newWorker func(Assignment) Worker, changed func([]Worker), log *slog.Logger,
) *Follower {
	opts.setDefaults()
	if changed == nil {
		changed = func([]Worker) {}
	}
	f := &Follower{poller: newPoller(&opts, log), newWorker: newWorker, changed: changed}
	f.mu.err, f.mu.running = errors.New("not started"), map[int32]*started{}
	f.mu.wanted = func(int32) bool { return true }
	return f
}

const topicCheckInterval = 3 * time.Second // of topic id and partition count: the client may notice a recreation late

// Run blocks until ctx is canceled; it retries after every error.
func (f *Follower) Run(ctx context.Context) error {
	again(ctx, f.runOnce, func(err error, in time.Duration) {
		f.log.Warn("following a topic failed; all partitions restart", "topic", f.opts.Input, "error", err,
			"action", actionOf(err), "retry_in", in)
		f.NotYet(err)
	})
	return nil
}

// NotYet sets the reason that Status returns while there are no partitions.
func (f *Follower) NotYet(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.err = why
}

// Err returns why there are no partitions.
func (f *Follower) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.err
}

func (f *Follower) runOnce(ctx context.Context) error {
	cl, err := f.opts.newFetchClient(f.log, 250*time.Millisecond)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, f.end = context.WithCancelCause(ctx)
	defer f.end(nil)
	s, err := newSession(ctx, cl, f.opts)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.mu.session = s
	f.startWanted(s)
	f.mu.Unlock()
	f.shown.Store(s)
	s.work.Go(s.watch)
	s.work.Go(func() { s.watchTopic(topicCheckInterval, f.startOver) })
	f.poll(ctx, f.end, cl)
	f.mu.Lock()
	f.mu.session = nil
	f.mu.Unlock()
	s.work.Wait()
	f.shown.Store(nil)
	s.consumeNothing()
	f.changed(nil)
	return context.Cause(ctx)
}

// startWanted starts the partitions that are not followed yet; it is called with mu held.
func (f *Follower) startWanted(s *session) {
	for n := range s.count {
		if f.mu.wanted(n) && s.partitions()[n] == nil {
			f.start(s, n)
		}
	}
	f.tell(s)
}

func (f *Follower) tell(s *session) {
	workers := make([]Worker, s.count)
	for n, p := range s.partitions() {
		workers[n] = p.worker
	}
	f.changed(workers)
}

// start starts one partition; it is called with mu held. Its predecessor, if any, closes its files first.
func (f *Follower) start(s *session, n int32) {
	before := f.mu.running[n]
	a := Assignment{Topic: s.topic, Partition: n, Log: s.log, Partitions: s.count}
	p := newPartition(a, f.newWorker, f.opts, s.cl, f, f.log)
	ctx, cancel := context.WithCancel(s.ctx)
	f.mu.running[n] = s.start(p, cancel, before, func() { p.run(ctx) })
}

// followWanted sets which partitions are wanted and starts those that are not followed yet.
func (f *Follower) followWanted(wanted func(partition int32) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.wanted = wanted
	if s := f.mu.session; s != nil {
		f.startWanted(s)
	}
}

// release stops following a partition and waits, up to ShutdownTimeout, until it is closed.
func (f *Follower) release(ctx context.Context, n int32) error {
	f.mu.Lock()
	wanted := f.mu.wanted
	f.mu.wanted = func(other int32) bool { return other != n && wanted(other) }
	p := f.mu.running[n]
	if p != nil {
		p.cancel()
		if s := f.mu.session; s != nil {
			s.set(n, nil)
			f.tell(s)
		}
	}
	f.mu.Unlock()
	if p == nil {
		return nil
	}
	f.wake() // its client is still fetching them
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(f.opts.ShutdownTimeout):
		return fmt.Errorf("the local copy of %s/%d was not closed within %v: check its disk", f.opts.Input, n,
			f.opts.ShutdownTimeout)
	}
}

// watchTopic calls startOver when the topic was recreated or its partition count has changed.
func (s *session) watchTopic(interval time.Duration, startOver func(error)) {
	for kafka.Sleep(s.ctx, interval) {
		if err := sameTopic(s.ctx, s.cl, s.topic, s.log, s.count); err != nil {
			startOver(err)
			return
		}
	}
}

// sameTopic returns an error if the topic was recreated or its partition count changed; nil if Kafka is unavailable.
func sameTopic(ctx context.Context, cl kmsg.Requestor, topic string, id kafka.LogID, partitions int32) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	topics, err := kafka.LookUpTopics(ctx, cl, topic)
	if err != nil {
		return nil
	}
	switch info := topics.ByName[topic]; {
	case kafka.LogID{ClusterID: topics.ClusterID, TopicID: info.ID} != id:
		return fmt.Errorf("following %s: %w", topic, kafka.ErrRecreated)
	case info.Partitions != partitions:
		return fmt.Errorf("%w: %s has %d, before it had %d", errMore, topic, info.Partitions, partitions)
	}
	return nil
}

// Status returns the status of each partition. The error says why there are none.
func (f *Follower) Status() ([]PartitionStatus, error) {
	s := f.shown.Load()
	if s == nil {
		return nil, f.Err()
	}
	return s.statuses(), nil
}

func (s *session) statuses() []PartitionStatus {
	var statuses []PartitionStatus
	for _, p := range s.partitions() {
		statuses = append(statuses, p.Status())
	}
	slices.SortFunc(statuses, func(a, b PartitionStatus) int { return int(a.Partition - b.Partition) })
	return statuses
}

func (f *Follower) startOver(why error) {
	f.end(why)
	f.wake()
}

// rejoin does nothing: no other process takes a follower's partition.
func (f *Follower) rejoin() {}
