package stream

import (
	"context"
	"errors"
	"hash"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/codec"
	"github.com/lovoo/goka/storage"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

func TestTopicManager(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic("three", 3)
	tm := topicManager{ctx: testkit.Context(t), cl: c.Client(), timeout: testkit.Patience}
	partitions, err := tm.Partitions("three")
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2}, partitions)
	require.NoError(t, tm.EnsureTableExists("three", 3))
	require.ErrorContains(t, tm.EnsureTableExists("three", 4), "topic three has 3 partitions, its input has 4")
	err = tm.EnsureTableExists("none", 3)
	require.True(t, parks(err), err)
	require.Nil(t, c.TopicInfo("none"), "it verifies and never creates")

	for _, at := range []int64{sarama.OffsetOldest, sarama.OffsetNewest} {
		offset, err := tm.GetOffset("three", 1, at)
		require.NoError(t, err)
		require.Zero(t, offset, "goka has nothing to recover")
	}
}

// Behavior of goka 1.1.17 that this package must work around: each test pins a trap, so that a change in goka shows.

type oneShotGroup struct {
	sarama.ConsumerGroup
	consumed atomic.Int32
	err      error
}

func (g *oneShotGroup) Errors() <-chan error { return nil }
func (g *oneShotGroup) Close() error         { return nil }
func (g *oneShotGroup) Consume(context.Context, []string, sarama.ConsumerGroupHandler) error {
	g.consumed.Add(1)
	return g.err
}

// gokaOn returns a goka processor with this package's implementations of goka's other interfaces.
func (c *cluster) gokaOn(group sarama.ConsumerGroup, edge goka.Edge, opts ...goka.ProcessorOption) *goka.Processor {
	tm := topicManager{ctx: testkit.Context(c.t), cl: c.Client(), timeout: testkit.Patience}
	edges := []goka.Edge{goka.Input(input, new(codec.Bytes), func(goka.Context, any) {})}
	if edge != nil {
		edges = append(edges, edge)
	}
	p, err := goka.NewProcessor(c.kafka.Brokers, goka.DefineGroup(testGroup, edges...), append(opts,
		goka.WithConsumerGroupBuilder(func([]string, string, string) (sarama.ConsumerGroup, error) {
			return group, nil
		}),
		goka.WithConsumerSaramaBuilder(func([]string, string) (sarama.Consumer, error) { return noConsumer{}, nil }),
		goka.WithTopicManagerBuilder(func([]string) (goka.TopicManager, error) { return tm, nil }),
		goka.WithProducerBuilder(refuse),
		goka.WithLogger(slog.NewLogLogger(testkit.Log().Handler(), slog.LevelDebug)))...)
	require.NoError(c.t, err)
	return p
}

// goka's Run can be called once only: our Processor builds a new goka processor each time.
func TestTrapRunIsOnceOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 1)
	p := c.gokaOn(&oneShotGroup{err: context.DeadlineExceeded}, nil)
	require.ErrorContains(t, p.Run(testkit.Context(t)), "error consuming from group consumer")
	require.ErrorContains(t, p.Run(testkit.Context(t)), "Run can only be called once")
}

// goka waits 5 seconds after each return of Consume: ours returns at the end only (see TestMembersComeAndGo).
func TestTrapPauseAfterConsume(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 1)
	g := &oneShotGroup{}
	require.NoError(t, c.gokaOn(g, nil).Run(testkit.Within(t, 3*time.Second)))
	require.EqualValues(t, 1, g.consumed.Load())
}

// A decode error ends the processor, again after each restart: our messages are this package's own and always decode.
// A message without a value would not reach the callback.
func TestTrapDecodeErrorIsFatal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	claim := gokaClaim{p: newPartition(Assignment{Topic: input, Partition: 1 << 20}, newLab(t).worker, nil, nil,
		selfDriven{}, testkit.Log()), messages: make(chan *sarama.ConsumerMessage)}
	go claim.offer(ctx)
	m := <-claim.Messages()
	cancel()
	require.EqualValues(t, 1<<20, m.Partition)
	require.NotNil(t, m.Value)
	_, err := new(codec.Bytes).Decode(m.Value)
	require.NoError(t, err)
}

// goka commits only the largest offset, so a failed message is lost if a later one is marked: here a mark only means
// that the current message is done, and the Worker keeps the position.
func TestTrapMarksAreNotPositions(t *testing.T) {
	p, _, _, handed := opened(t, 5)
	s := gokaSession{p: p}
	p.Deliver(fetchOf(5, nil, "a", "b", "c"))
	s.MarkOffset(input, 0, 999, "")
	s.MarkMessage(&sarama.ConsumerMessage{Topic: input, Offset: 12345}, "")
	require.EqualValues(t, 5, p.Status().Position.Offset)
	require.True(t, p.Step(t.Context()))
	require.EqualValues(t, 7, (*handed)[0].Next.Offset)
}

// goka sends each table write to its producer: ours returns an error, which reaches the caller of Emit.
func TestTrapProducerRefuses(t *testing.T) {
	p, err := refuse(nil, "", nil)
	require.NoError(t, err)
	for _, promise := range []*goka.Promise{p.Emit("t", "k", nil), p.EmitWithHeaders("t", "k", nil, nil)} {
		told := false
		promise.Then(func(err error) { told = true; require.ErrorIs(t, err, errRefused) })
		require.True(t, told)
	}
	require.NoError(t, p.Close())
}

// goka uses sarama (acks=1, newest, its own connections) for each interface that is not given. sarama's connections
// show on the wire, by which TestProcessorWithATable checks that there are none.
func TestTrapDefaultsAreSaramas(t *testing.T) {
	t.Parallel()
	w := &testkit.Wire{}
	consumer, err := goka.DefaultSaramaConsumerBuilder(newCluster(t, w.Option()).kafka.Brokers, "a-test")
	require.NoError(t, err)
	defer func() { require.NoError(t, consumer.Close()) }()
	testkit.WaitFor(t, "sarama's connection", func() bool { return len(w.Seen()) > 0 })
	require.NotContains(t, w.Seen(), "kgo")
}

// setupGroup is a consumer group that is assigned a partition once, and keeps the result of goka's Setup.
type setupGroup struct {
	oneShotGroup
	lab   *lab
	setup chan error
}

func (g *setupGroup) Consume(ctx context.Context, _ []string, h sarama.ConsumerGroupHandler) error {
	p := newPartition(Assignment{Topic: input}, g.lab.worker, &ProcessorOptions{}, nil, selfDriven{}, testkit.Log())
	s := gokaSession{ctx: ctx, p: p}
	err := h.Setup(s)
	g.setup <- err
	return errors.Join(err, h.Cleanup(s))
}

// goka's hot standby sets up the replicas together with the assigned partitions: a partition waits for the partitions
// that others own, and fails with them. Our replicas run separately (standby.go).
func TestTrapHotStandbyHoldsUpWhatIsOwned(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 2)
	c.Topic(testkit.Table, 2)
	g := &setupGroup{lab: newLab(t), setup: make(chan error, 1)}
	p := c.gokaOn(g, goka.Persist(new(codec.Bytes)), goka.WithHotStandby(),
		goka.WithStorageBuilder(func(topic string, partition int32) (storage.Storage, error) {
			if partition == 1 {
				return nil, errors.New("the copy's disk is full")
			}
			return storage.NewNull(), nil
		}))
	require.Error(t, p.Run(testkit.Context(t)))
	require.ErrorContains(t, <-g.setup, "the copy's disk is full", "only partition 0 was assigned")
}

func refuse([]string, string, func() hash.Hash32) (goka.Producer, error) {
	return refusingProducer{}, nil
}
