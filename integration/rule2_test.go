package integration

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/tier"
	"kudos/processor"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// What only a real broker shows of rule 2: the transaction coordinator decides by producer epochs who owns a partition.

// soon bounds what is immediate unless something waits for a transaction's timeout.
const (
	soon               = 30 * time.Second
	transactionTimeout = 4 * soon
)

// owner is the fold of partition 0 in one session, run step by step.
type owner struct {
	*stream.Partition
	s     *system
	kafka *heldKafka
	at    kafka.Position
	ctx   context.Context
}

// heldKafka connects to the broker, counts the transactional clients, and can hold one step of a transaction.
type heldKafka struct {
	kafka.Clients
	clients atomic.Int64
	next    atomic.Pointer[hold]
}

// Steps that can be held: before a client is made for the second transactional id, before the offset commit, and before
// and after the commit.
const (
	beforeSecond = "second id"
	beforeOffset = "offset"
	beforeCommit = "commit"
	afterCommit  = "committed"
)

type hold struct {
	step     string
	reached  chan struct{}
	released chan struct{}
}

// holdAt holds the next such step until release is called. reached returns once it is held.
func (k *heldKafka) holdAt(t testing.TB, step string) (reached, release func()) {
	h := &hold{step, make(chan struct{}), make(chan struct{})}
	k.next.Store(h)
	release = sync.OnceFunc(func() { close(h.released) })
	t.Cleanup(release)
	return func() {
		select {
		case <-h.reached:
		case <-time.After(soon):
			require.FailNow(t, "the step is not reached", step)
		}
	}, release
}

func (k *heldKafka) pass(step string) {
	if h := k.next.Load(); h != nil && h.step == step && k.next.CompareAndSwap(h, nil) {
		close(h.reached)
		<-h.released
	}
}

func (k *heldKafka) ConnectTxn(log *slog.Logger, id string, opts *kafka.TxnOptions) (kafka.TxnClient, error) {
	if id == opts.IDs[1] {
		k.pass(beforeSecond)
	}
	k.clients.Add(1)
	cl, err := k.Clients.ConnectTxn(log, id, opts)
	return heldClient{cl, k}, err
}

type heldClient struct {
	kafka.TxnClient
	k *heldKafka
}

func (c heldClient) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if req.Key() == int16(kmsg.TxnOffsetCommit) {
		c.k.pass(beforeOffset)
	}
	return c.TxnClient.Request(ctx, req)
}

func (c heldClient) EndTransaction(ctx context.Context, end kgo.TransactionEndTry) error {
	c.k.pass(beforeCommit)
	err := c.TxnClient.EndTransaction(ctx, end)
	c.k.pass(afterCommit)
	return err
}

// joinFold adds a member to the fold's group, until leave is called.
func (s *system) joinFold() (m kafka.Member, leave func()) {
	assigned := make(chan kafka.Member, 10)
	cl := s.ownClient(kgo.DisableAutoCommit(), kgo.ConsumerGroup(schema.GroupFold),
		kgo.ConsumeTopics(schema.TopicLikes),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, _ map[string][]int32) {
			id, generation := cl.GroupMetadata()
			assigned <- kafka.Member{Group: schema.GroupFold, ID: id, Generation: generation}
		}))
	leave = sync.OnceFunc(cl.Close)
	s.t.Cleanup(leave)
	select {
	case m = <-assigned:
	case <-time.After(time.Minute):
		require.FailNow(s.t, "joining the group took too long")
	}
	return m, leave
}

func (s *system) own(m kafka.Member) *owner {
	broker, _ := s.servers()
	o := &owner{s: s, ctx: s.t.Context(), kafka: &heldKafka{Clients: broker}}
	stores := store.NewSet(s.t.TempDir(), 1<<20, s.log)
	options := processor.DefaultOptions()
	options.TransactionTimeout = transactionTimeout
	workers := processor.NewWorkers(options, o.kafka, stores, nil, s.log, nil)
	a := stream.Assignment{Topic: schema.TopicLikes, Partition: 0,
		Member: func() (kafka.Member, error) { return m, nil }}
	o.Partition = stream.NewPartition(a, workers.Fold, &stream.ProcessorOptions{
		MaxBatch: 1000, TickInterval: time.Minute, ParkInterval: 100 * time.Millisecond,
		SessionTimeout: options.SessionTimeout, ShutdownTimeout: options.ShutdownTimeout,
	}, s.client(), func() {}, s.log)
	s.t.Cleanup(func() { o.Close(); stores.Close() })
	return o
}

func (o *owner) requireState(state, why string) {
	waitFor(o.s.t, soon, why, func() bool {
		if o.Status().State != state {
			o.Step(o.ctx)
		}
		return o.Status().State == state
	})
}

// fetch passes on the records of the log from the owner's position on.
func (o *owner) fetch() {
	if fetch, moved := o.Flow(); moved != nil {
		require.True(o.s.t, fetch)
		o.at = *moved
	}
	cl := o.s.ownClient(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{schema.TopicLikes: {0: kgo.NewOffset().At(o.at.Offset)}}))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(o.ctx, soon)
	defer cancel()
	_, end, err := kafka.Bounds(ctx, cl, schema.TopicLikes, 0)
	require.NoError(o.s.t, err)
	for o.at.Offset < end {
		fetches := cl.PollFetches(ctx)
		require.NoError(o.s.t, fetches.Err())
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			o.at.Offset = p.Records[len(p.Records)-1].Offset + 1
			o.Deliver(&p.FetchPartition)
		})
	}
}

// TestRule2: an owner is paused between its last record and its commit, and another one takes over the partition. What
// the first one began must not count, and nothing that it does later may affect its successor.
func TestRule2(t *testing.T) {
	parallel(t, tier.Test)
	s := newBareSystem(t, 1)
	m, leave := s.joinFold()
	a := s.own(m)
	a.requireState(stream.StateRunning, "the first owner to run")
	s.likeEverywhere(1, 2, 3)
	a.fetch()
	release := a.stepUntil(beforeCommit)

	leave()
	now, _ := s.joinFold()
	b := s.own(now)
	b.requireState(stream.StateRunning,
		"the second owner to run, without waiting for the first one's transaction to time out")
	b.fetch()
	require.True(t, b.Step(b.ctx))
	b.requireState(stream.StateRunning, "the second owner's first commit")

	release()
	require.Equal(t, stream.StateFenced, a.Status().State, "the first owner: %s", a.Status())
	clients := a.kafka.clients.Load()
	for range 10 { // it keeps getting turns
		pause(t, 20*time.Millisecond)
		a.Step(a.ctx)
	}
	require.Equal(t, clients, a.kafka.clients.Load(), "transactional clients of the first owner since it was fenced")
	late := s.own(m) // an old session that starts only now
	late.Step(late.ctx)
	require.Equal(t, stream.StateFenced, late.Status().State, "a late session: %s", late.Status())

	s.likeEverywhere(4)
	b.fetch()
	require.True(t, b.Step(b.ctx))
	require.Equal(t, stream.StateRunning, b.Status().State, "the second owner: %s", b.Status())
	s.requireUpdates(4)
}

// stepUntil makes a step that is held, and returns a function that lets it continue to its end.
func (o *owner) stepUntil(step string) (release func()) {
	reached, goOn := o.kafka.holdAt(o.s.t, step)
	worked := make(chan struct{})
	go func() { defer close(worked); o.Step(o.ctx) }()
	release = sync.OnceFunc(func() { goOn(); <-worked })
	o.s.t.Cleanup(release)
	reached()
	return release
}

func (o *owner) fold() { o.fetch(); o.Step(o.ctx) }

// TestRule2OfBothIDs: the first or the second transaction of an owner, each under another transactional id, is held at
// each of its steps while another owner takes over. All likes count once, whoever committed them.
func TestRule2OfBothIDs(t *testing.T) {
	parallel(t, tier.Test)
	s := newBareSystem(t, 1)
	user := uint64(0)
	like := func() { user++; s.likeEverywhere(user) }
	for _, step := range []string{beforeOffset, beforeCommit, afterCommit} {
		for before := range 2 { // transactions
			m, leave := s.joinFold()
			a := s.own(m)
			a.requireState(stream.StateRunning, "the owner to run")
			for range before {
				like()
				a.fold()
			}
			like()
			a.fetch()
			release := a.stepUntil(step)
			leave()
			m, leave = s.joinFold()
			b := s.own(m)
			b.requireState(stream.StateRunning, "the second owner to run")
			like()
			b.fold()
			b.requireState(stream.StateRunning, "the second owner to work")
			release()
			if step == afterCommit {
				require.Equal(t, stream.StateRunning, a.Status().State, "it has committed: %s", a.Status())
				a.fold()
			}
			require.Equal(t, stream.StateFenced, a.Status().State, "held at %q after %d: %s", step, before, a.Status())
			s.requireUpdates(int64(user))
			leave()
		}
	}
}

// TestRule2BetweenTheIDs: an owner that commits under the second id after its successor has initialized the first one
// has committed before the successor reads, and that is its last transaction.
func TestRule2BetweenTheIDs(t *testing.T) {
	parallel(t, tier.Test)
	s := newBareSystem(t, 1)
	m, leave := s.joinFold()
	a := s.own(m)
	a.requireState(stream.StateRunning, "the first owner to run")
	s.likeEverywhere(1)
	a.fold()
	defer leave()
	b := s.own(m) // by the same membership, so that only the transactional ids decide
	release := b.stepUntil(beforeSecond)
	s.likeEverywhere(2)
	a.fold()
	require.Equal(t, stream.StateRunning, a.Status().State, "the second id is not taken yet: %s", a.Status())
	s.likeEverywhere(3)
	a.fold()
	require.Equal(t, stream.StateFenced, a.Status().State, "the first id is taken: %s", a.Status())
	release()
	require.Equal(t, stream.StateRunning, b.Status().State, "%s", b.Status())
	b.fold()
	s.requireUpdates(3)
}

// requireUpdates checks that the updates, of one partition, have no gap in seq, and that many likes.
func (s *system) requireUpdates(likes int64) {
	var seq uint64
	var sum int64
	s.requireDecided(schema.TopicUpdates)
	s.readAll(schema.TopicUpdates, func(rec *kgo.Record) {
		var u schema.Update
		require.NoError(s.t, schema.DecodeUpdate(rec.Value, &u))
		require.Equal(s.t, seq, u.Seq, "offset %d of like-updates", rec.Offset)
		seq++
		for _, d := range u.Deltas {
			sum += d.Likes
		}
	})
	require.Equal(s.t, likes, sum)
}
