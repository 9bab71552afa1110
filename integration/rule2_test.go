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

// heldKafka connects to the broker, counts the transactional clients, and can hold commits.
type heldKafka struct {
	kafka.Clients
	clients atomic.Int64
	hold    atomic.Bool
	held    chan struct{} // a commit is being held
	release chan struct{}
}

func (k *heldKafka) ConnectTxn(log *slog.Logger, opts *kafka.TxnOptions) (kafka.TxnClient, error) {
	k.clients.Add(1)
	cl, err := k.Clients.ConnectTxn(log, opts)
	return heldClient{cl, k}, err
}

type heldClient struct {
	kafka.TxnClient
	k *heldKafka
}

func (c heldClient) EndTransaction(ctx context.Context, end kgo.TransactionEndTry) error {
	if c.k.hold.Load() {
		close(c.k.held)
		<-c.k.release
	}
	return c.TxnClient.EndTransaction(ctx, end)
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

// own returns an owner with an empty local state.
func (s *system) own(m kafka.Member) *owner {
	broker, _ := s.servers()
	o := &owner{s: s, ctx: s.t.Context(),
		kafka: &heldKafka{Clients: broker, held: make(chan struct{}), release: make(chan struct{})}}
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

// requireState steps the owner until it is in a state.
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
	a.kafka.hold.Store(true)
	worked := make(chan struct{})
	go func() { defer close(worked); a.Step(a.ctx) }()
	<-a.kafka.held
	release := sync.OnceFunc(func() { close(a.kafka.release); <-worked })
	defer release()

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
