package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// Follower follows all partitions of a topic without a group, each by itself: for what keeps its own position. Where the
// topic comes to have other partitions, or is made anew, all begin again.
type Follower struct {
	poller
	newWorker func(Assignment) Worker
	begun     func([]Worker) // with those of a session by partition, and with nil after it

	err struct {
		sync.Mutex
		last error // why there is no session
	}
	end context.CancelCauseFunc // of the present session
}

// NewFollower returns a follower of the topic Input, shown in metrics as Group. It calls newWorker for each partition
// whenever all start, then begun, if not nil, with the workers, and begun with nil when they have ended.
func NewFollower(opts ProcessorOptions, newWorker func(Assignment) Worker, begun func([]Worker), log *slog.Logger) *Follower {
	opts.watchInterval, opts.stallTimeout = cmp.Or(opts.watchInterval, watchInterval), cmp.Or(opts.stallTimeout, stallTimeout)
	if opts.stalled == nil {
		opts.stalled = die
	}
	if begun == nil {
		begun = func([]Worker) {}
	}
	f := &Follower{poller: newPoller(&opts, log), newWorker: newWorker, begun: begun}
	f.err.last = errors.New("not started")
	return f
}

// topicCheckInterval is how often the topic's id and partition count are checked. The client itself may detect a
// recreated topic late.
const topicCheckInterval = 3 * time.Second

// Run blocks until ctx is canceled; it retries after every error.
func (f *Follower) Run(ctx context.Context) error {
	again(ctx, f.runOnce, func(err error, in time.Duration) {
		f.log.Warn("following a topic: all partitions begin again", "topic", f.opts.Input, "error", err, "remedy", remedyOf(err), "in", in)
		f.setErr(err)
	})
	return nil
}

// NotYet has Status say why nothing is followed, before Run.
func (f *Follower) NotYet(why error) { f.setErr(why) }

func (f *Follower) setErr(err error) {
	f.err.Lock()
	defer f.err.Unlock()
	f.err.last = err
}

// Err says why there are no partitions.
func (f *Follower) Err() error {
	f.err.Lock()
	defer f.err.Unlock()
	return f.err.last
}

// runOnce follows the partitions that there are, until something concerns all of them.
func (f *Follower) runOnce(ctx context.Context) error {
	cl, err := f.opts.Kafka.NewClient(f.log,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // they take offsets, up to the end of the log
		// Lost data is to be seen and not skipped.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		// A resumed partition waits for the fetch in flight.
		kgo.FetchMaxWait(250*time.Millisecond),
		kgo.FetchMaxPartitionBytes(followPartitionBytes),
		kgo.FetchMaxBytes(2*followPartitionBytes),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kafka.LookUpTopics(ctx, cl, f.opts.Input)
	if err != nil {
		return err
	}
	info := topics.ByName[f.opts.Input]
	id := kafka.LogID{ClusterID: topics.ClusterID, TopicID: info.ID}
	ctx, f.end = context.WithCancelCause(ctx)
	defer f.end(nil)
	s := &session{cl: cl, opts: f.opts, topic: f.opts.Input, partitions: map[int32]*Partition{}, fixed: true, ctx: ctx}
	workers := make([]Worker, info.Partitions)
	for n := range workers {
		a := Assignment{Topic: s.topic, Partition: int32(n), Log: id, Partitions: info.Partitions}
		p := newPartition(a, f.newWorker, f.opts, cl, f, f.log)
		workers[n], s.partitions[a.Partition] = p.worker, p
	}
	cl.PauseFetchPartitions(s.claims()) // until they are open
	f.show(s)
	f.begun(workers)
	var wg sync.WaitGroup
	for _, p := range s.partitions {
		wg.Go(func() {
			for ctx.Err() == nil {
				if !p.Step(ctx) {
					p.Wait(ctx)
				}
			}
		})
	}
	wg.Go(s.watch)
	wg.Go(func() { f.watchTopic(ctx, cl, id, info.Partitions) })
	f.poll(ctx, f.end, cl)
	wg.Wait()
	f.show(nil)
	f.begun(nil)
	s.closeWorkers()
	return context.Cause(ctx)
}

// followPartitionBytes is what the broker answers with for a partition.
const followPartitionBytes = 1 << 20

// watchTopic ends the session when the topic was recreated, or has other partitions.
func (f *Follower) watchTopic(ctx context.Context, cl *kgo.Client, id kafka.LogID, partitions int32) {
	tick := time.NewTicker(topicCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := sameTopic(ctx, cl, f.opts.Input, id, partitions); err != nil {
			f.startOver(err)
			return
		}
	}
}

// sameTopic returns an error if the topic was recreated or its partition count changed; nil if Kafka is unavailable.
func sameTopic(ctx context.Context, cl *kgo.Client, topic string, id kafka.LogID, partitions int32) error {
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
		return fmt.Errorf("%w: %s has %d, and had %d", errMore, topic, info.Partitions, partitions)
	}
	return nil
}

// Status tells how each partition is doing. The error says why there are none.
func (f *Follower) Status() ([]PartitionStatus, error) {
	s := f.present()
	if s == nil {
		return nil, f.Err()
	}
	return s.statuses(), nil
}

// statuses are in the order of partitions.
func (s *session) statuses() []PartitionStatus {
	statuses := make([]PartitionStatus, 0, len(s.partitions))
	for _, p := range s.partitions {
		statuses = append(statuses, p.Status())
	}
	slices.SortFunc(statuses, func(a, b PartitionStatus) int { return int(a.Partition - b.Partition) })
	return statuses
}

// startOver ends the session; Run starts the next one.
func (f *Follower) startOver(why error) {
	f.end(why)
	f.wake()
}

// rejoin has nothing to ask: no other process takes a partition.
func (f *Follower) rejoin() {}
