package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// group is a member of a consumer group that hands goka one message per partition:
// the poll batch. It is goka's sarama.ConsumerGroup.
//
// The poll loop steers the client (pause, resume, seek), and only between two polls,
// while the client holds rebalances back; and once when the client begins to consume.
type group struct {
	opts      *ProcessorOptions
	newWorker func(Assignment) Worker
	standby   *standby // nil: no copies of what others own
	log       *slog.Logger

	errs chan error // never written to: Consume returns its errors

	mu struct {
		sync.Mutex
		session *session // the present one; nil between sessions
		trouble error    // why there is none, as far as the client told
		woken   bool
		cancel  context.CancelFunc // ends the poll under way
	}
	room chan struct{} // capacity 1: look again for room

	steering sync.Mutex // held by steer
}

func newGroup(opts *ProcessorOptions, newWorker func(Assignment) Worker, log *slog.Logger) *group {
	return &group{opts: opts, newWorker: newWorker, log: log, errs: make(chan error), room: make(chan struct{}, 1)}
}

func (g *group) Errors() <-chan error      { return g.errs }
func (g *group) Close() error              { return nil }
func (g *group) Pause(map[string][]int32)  {}
func (g *group) Resume(map[string][]int32) {}
func (g *group) PauseAll()                 {}
func (g *group) ResumeAll()                {}

const (
	groupMetadataMaxAge = 10 * time.Second
	// groupPartitionBytes is what the broker answers with for a partition: the records of a fetch take several times as
	// much memory, for each partition of a process.
	groupPartitionBytes = 1 << 20
)

// Consume joins the group and stays through all rebalances until ctx ends or
// something fails that a new session would not mend. (goka would wait 5 seconds if
// it returned at each rebalance.)
func (g *group) Consume(ctx context.Context, topics []string, h sarama.ConsumerGroupHandler) error {
	if len(topics) != 1 {
		return fmt.Errorf("group %s: one input topic is supported, not %v", g.opts.Group, topics)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cl, err := g.opts.Kafka.NewClient(g.log,
		kgo.ConsumerGroup(g.opts.Group),
		kgo.ConsumeTopics(topics...),
		// Eager, and sticky for the sake of the local state.
		kgo.Balancers(kgo.StickyBalancer()),
		kgo.SessionTimeout(g.opts.SessionTimeout),
		kgo.HeartbeatInterval(g.opts.heartbeatInterval),
		// Partitions that were added are found at this pace.
		kgo.MetadataMaxAge(groupMetadataMaxAge),
		// A revocation waits for the batch in hand.
		kgo.RebalanceTimeout(g.opts.ShutdownTimeout+30*time.Second),
		kgo.BlockRebalanceOnPoll(),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Control records take offsets; without them the end of the log would
		// never be reached.
		kgo.KeepControlRecords(),
		// Lost data is to be seen and not skipped.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		// A resumed partition is asked for only when the fetch under way has ended.
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchMaxPartitionBytes(groupPartitionBytes),
		kgo.FetchMaxBytes(2*groupPartitionBytes),
		kgo.WithPools(&recordPool{}),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, assigned map[string][]int32) {
			g.begin(ctx, cancel, cl, topics[0], assigned[topics[0]], h)
		}),
		kgo.AdjustFetchOffsetsFn(func(ctx context.Context, _ map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return g.startPositions(ctx)
		}),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) { g.end(cancel) }),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) { g.end(cancel) }),
	)
	if err != nil {
		return err
	}
	g.poll(ctx, cancel, cl)
	cl.CloseAllowingRebalance() // leaves the group, which ends the session
	g.end(cancel)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("group %s: %w", g.opts.Group, err)
	}
	return nil
}

// begin starts a session: it fences, and lets the rest run beside, so that a further
// rebalance can cut a long recovery short.
func (g *group) begin(ctx context.Context, fail context.CancelCauseFunc, cl *kgo.Client, topic string, partitions []int32, h sarama.ConsumerGroupHandler) {
	g.end(fail) // the client revokes first; this only makes sure
	id, generation := cl.GroupMetadata()
	s := &session{
		cl:      cl,
		opts:    g.opts,
		member:  kafka.Member{Group: g.opts.Group, ID: id, Generation: generation},
		topic:   topic,
		claims:  map[int32]*claim{},
		standby: g.standby,
		opened:  make(chan struct{}),
		done:    make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	for _, p := range partitions {
		a := Assignment{Topic: topic, Partition: p, Member: s.member}
		s.claims[p] = newClaim(a, g.newWorker(a), g.opts, g.log, g, func(ctx context.Context, pos kafka.Position) error {
			return checkTruncation(ctx, cl, topic, p, pos)
		})
	}
	cl.ResumeFetchPartitions(s.Claims()) // it remembers what earlier sessions paused
	g.mu.Lock()
	g.mu.session, g.mu.trouble = s, nil
	g.mu.Unlock()
	g.log.Info("partitions assigned", "group", g.opts.Group, "generation", generation, "partitions", partitions)

	var wg sync.WaitGroup
	for _, c := range s.claims {
		wg.Go(func() { c.fence(s.ctx) })
	}
	wg.Wait()
	go func() {
		s.run(h)
		if s.err != nil {
			fail(s.err)
			g.wake()
		}
	}()
}

// end ends the session, if there is one, and waits for it.
func (g *group) end(fail context.CancelCauseFunc) {
	g.mu.Lock()
	s := g.mu.session
	g.mu.session = nil
	g.mu.Unlock()
	if s == nil {
		return
	}
	s.cancel(context.Canceled)
	<-s.done // bounded: the batch in hand has ShutdownTimeout
	if s.err != nil {
		fail(s.err)
	}
}

// startPositions waits until the session has opened its partitions. ctx ends when the
// group begins to rebalance.
func (g *group) startPositions(ctx context.Context) (map[string]map[int32]kgo.Offset, error) {
	s := g.present()
	if s == nil {
		return nil, errors.New("no session")
	}
	select {
	case <-s.opened:
		g.steer(s) // parked partitions must be paused before they would be fetched
		return s.start(), nil
	case <-s.done:
		return nil, errors.New("the session ended before it began")
	case <-ctx.Done():
		s.cancel(context.Canceled) // a recovery in vain
		return nil, ctx.Err()
	}
}

func (g *group) present() *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.session
}

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

// noteTrouble keeps the reason for which the client could not stay in the group or join.
func (g *group) noteTrouble(fetches kgo.Fetches) {
	var trouble *kgo.ErrGroupSession
	for _, f := range fetches.Errors() {
		if errors.As(f.Err, &trouble) {
			g.mu.Lock()
			g.mu.trouble = trouble.Err
			g.mu.Unlock()
		}
	}
}

// waiting says why there is no session.
func (g *group) waiting() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.trouble != nil {
		return fmt.Errorf("waits for its group to assign partitions: %w", g.mu.trouble)
	}
	return errors.New("waits for its group to assign partitions")
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

// deliver hands what a poll brought to the claims.
func (g *group) deliver(s *session, fetches kgo.Fetches, fail context.CancelCauseFunc) {
	fetches.EachPartition(func(tp kgo.FetchTopicPartition) {
		p := tp.FetchPartition
		c := s.claims[p.Partition]
		switch {
		case c != nil && errors.Is(p.Err, kerr.UnknownTopicID):
			// This client would never consume the topic again. A new one finds the
			// new topic, and Open says what is to be done about it.
			fail(fmt.Errorf("reading %s: %w", s.topic, kafka.ErrRecreated))
		case c != nil && tp.Topic == s.topic:
			c.push(&p)
		case p.Err != nil && !errors.Is(p.Err, context.Canceled):
			g.log.Warn("polling", "group", g.opts.Group, "error", p.Err)
		}
	})
}

// fetchError says what a partition's fetch error means for it.
func fetchError(err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.As(err, &loss):
		return dataLost(err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return Park(CauseLoss, "raise the topic's retention; `kudos topics check` shows its ends", "the position is not in the log any more: %w", err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed):
		return Park(CausePermission, grantAccess, "%w", err)
	}
	return err
}

// steer tells the client which partitions to pause, resume and move.
func (g *group) steer(s *session) {
	g.steering.Lock()
	defer g.steering.Unlock()
	var pause, resume []int32
	seeks := map[int32]kgo.EpochOffset{}
	now, quotas := time.Now(), s.quotas(g.opts.MaxBatch)
	for p, c := range s.claims {
		paused, changed, seek := c.flow(now, quotas[p])
		if seek != nil {
			seeks[p] = *seek
		}
		switch {
		case changed && paused:
			pause = append(pause, p)
		case changed:
			resume = append(resume, p)
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

// seek moves the client. It ignores a partition that it does not consume yet; the
// claim then asks again.
func (s *session) seek(to map[int32]kgo.EpochOffset) {
	offsets := maps.Clone(to)
	stands := s.stands()
	for p, at := range to {
		if stands[p] == at && at.Epoch >= 0 {
			// The client leaves out what it believes itself to be at, which after a
			// loss of data it is not. Without the epoch it is another place for it.
			offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: at.Offset}
		}
	}
	s.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{s.topic: offsets})
	stands = s.stands()
	for p, at := range to {
		if stands[p] == offsets[p] {
			s.claims[p].sought(at)
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

// rejoin asks the group for a new assignment.
func (g *group) rejoin() {
	if s := g.present(); s != nil {
		g.log.Warn("asks the group for a new assignment: a partition was fenced, and no rebalance came", "group", g.opts.Group)
		s.cl.ForceRebalance()
	}
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

// room tells whether polling makes sense: some partition has room, or none is running
// and the poll only waits. full: some partition must not get more.
func (s *session) room(maxBatch int) (has, full bool) {
	running, quotas := false, s.quotas(maxBatch)
	for p, c := range s.claims {
		h, f := c.room(quotas[p])
		has, full = has || h, full || f
		running = running || c.status().State == StateRunning
	}
	return has || !running, full
}
