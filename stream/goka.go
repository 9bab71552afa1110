package stream

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/codec"
	"github.com/lovoo/goka/storage"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// This file is the adapter between goka and the partition runtime.
//
//	group ──► a goka.Processor for each assigned partition: goka starts and stops those of a processor together
//	  │         DefineGroup: one input, and the table <group>-table, with as many partitions (copartition check)
//	  │
//	  ├─ Run ──► gokaGroup.Consume
//	  │            ├─► Setup
//	  │            ├─► ConsumeClaim ◄── messages: one at a time, as often as goka takes one
//	  │            │     └► callback ──► Partition.Step: all work on the partition happens here
//	  │            └─► Cleanup
//	  └─ no longer assigned: ctx ends
//
// goka does not read Kafka, recover or keep a table, keep positions or produce: a Worker uses transactions, which goka
// does not know. The topic manager says that the table is empty, so goka takes it for recovered at once; the worker
// opens its store and brings it up to date after it has fenced the partition (see store.Store.CatchUp). Embedded
// interfaces are nil: goka 1.1.17 calls none of their other methods.

// runGoka has goka run a partition until ctx ends.
func runGoka(ctx context.Context, o *ProcessorOptions, cl *kgo.Client, log *slog.Logger, p *Partition) error {
	proc, err := newGoka(ctx, o, cl, log, p)
	if err != nil {
		return err
	}
	if err := proc.Run(ctx); err != nil {
		return fmt.Errorf("goka ended unexpectedly: %w", err)
	}
	return nil
}

func newGoka(ctx context.Context, o *ProcessorOptions, cl *kgo.Client, log *slog.Logger, p *Partition,
) (*goka.Processor, error) {
	tm := topicManager{ctx: ctx, cl: cl, timeout: o.Kafka.RequestTimeout}
	step := func(goka.Context, any) {
		if !p.Step(ctx) {
			p.Wait(ctx)
		}
	}
	messages := slog.NewLogLogger(log.Handler(), slog.LevelDebug) // this package logs what matters
	messages.SetPrefix("goka: ")
	edges := []goka.Edge{goka.Input(goka.Stream(o.Input), new(codec.Bytes), step)}
	options := []goka.ProcessorOption{
		goka.WithConsumerGroupBuilder(func([]string, string, string) (sarama.ConsumerGroup, error) {
			return gokaGroup{p: p}, nil
		}),
		goka.WithConsumerSaramaBuilder(func([]string, string) (sarama.Consumer, error) { return noConsumer{}, nil }),
		goka.WithTopicManagerBuilder(func([]string) (goka.TopicManager, error) { return tm, nil }),
		goka.WithProducerBuilder(func([]string, string, func() hash.Hash32) (goka.Producer, error) {
			return refusingProducer{}, nil
		}),
		goka.WithLogger(messages),
		goka.WithPartitionChannelSize(1),
	}
	if o.Table {
		edges = append(edges, goka.Persist(new(codec.Bytes)))
		options = append(options, goka.WithStorageBuilder(func(string, int32) (storage.Storage, error) {
			return storage.NewNull(), nil
		}))
	}
	proc, err := goka.NewProcessor(o.Kafka.Brokers, goka.DefineGroup(goka.Group(o.Group), edges...), options...)
	if err != nil {
		return nil, fmt.Errorf("setting up group %s: %w", o.Group, err)
	}
	return proc, nil
}

func tableOf(group string) string { return string(goka.GroupTable(goka.Group(group))) }

type gokaGroup struct {
	sarama.ConsumerGroup
	p *Partition
}

// Consume runs the partition until ctx ends or goka fails: goka waits 5 s after it returned without an error.
func (g gokaGroup) Consume(ctx context.Context, _ []string, h sarama.ConsumerGroupHandler) error {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	s := gokaSession{ctx: work, p: g.p}
	err := h.Setup(s)
	if err == nil {
		c := gokaClaim{p: g.p, messages: make(chan *sarama.ConsumerMessage)}
		var wg sync.WaitGroup
		wg.Go(func() { c.offer(work) })
		err = h.ConsumeClaim(s, c)
		cancel()
		wg.Wait()
	}
	if err = errors.Join(err, h.Cleanup(s)); err == nil && ctx.Err() == nil {
		err = errors.New("it stopped the partition")
	}
	return err
}

func (gokaGroup) Errors() <-chan error { return nil } // Consume returns its errors
func (gokaGroup) Close() error         { return nil }

type gokaSession struct {
	sarama.ConsumerGroupSession
	ctx context.Context
	p   *Partition
}

func (g gokaSession) Claims() map[string][]int32 {
	return map[string][]int32{g.p.assignment.Topic: {g.p.assignment.Partition}}
}

func (g gokaSession) GenerationID() int32                       { return g.p.generation() }
func (g gokaSession) Context() context.Context                  { return g.ctx }
func (gokaSession) MarkOffset(string, int32, int64, string)     {} // the worker commits positions
func (gokaSession) MarkMessage(*sarama.ConsumerMessage, string) {}

type gokaClaim struct {
	sarama.ConsumerGroupClaim
	p        *Partition
	messages chan *sarama.ConsumerMessage
}

func (c gokaClaim) Topic() string                            { return c.p.assignment.Topic }
func (c gokaClaim) Partition() int32                         { return c.p.assignment.Partition }
func (c gokaClaim) InitialOffset() int64                     { return c.p.Status().Position.Offset }
func (c gokaClaim) Messages() <-chan *sarama.ConsumerMessage { return c.messages }

// offer sends goka a message whenever it takes one. Each message triggers a Step; goka drops those without a value.
func (c gokaClaim) offer(ctx context.Context) {
	defer close(c.messages)
	for {
		msg := &sarama.ConsumerMessage{Topic: c.Topic(), Partition: c.Partition(), Offset: c.InitialOffset(),
			Timestamp: time.Now(), Value: []byte{}}
		select {
		case c.messages <- msg:
		case <-ctx.Done():
			return
		}
	}
}

type noConsumer struct{ sarama.Consumer } // goka would recover tables with it

func (noConsumer) HighWaterMarks() map[string]map[int32]int64 { return nil }
func (noConsumer) Close() error                               { return nil }

// topicManager is goka's goka.TopicManager. It verifies topics and never creates them (`kudos topics apply` does).
type topicManager struct {
	goka.TopicManager
	ctx     context.Context // goka passes none
	cl      *kgo.Client
	timeout time.Duration
}

func (m topicManager) EnsureTableExists(topic string, partitions int) error {
	have, err := m.Partitions(topic)
	if err != nil {
		return err
	}
	if len(have) != partitions {
		return fmt.Errorf("topic %s has %d partitions, its input has %d: they must be the same (`kudos topics "+
			"repartition` adds partitions to all of them)", topic, len(have), partitions)
	}
	return nil
}

func (m topicManager) Partitions(topic string) ([]int32, error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.timeout)
	defer cancel()
	topics, err := kafka.LookUpTopics(ctx, m.cl, topic)
	if err != nil {
		return nil, err
	}
	partitions := make([]int32, topics.ByName[topic].Partitions)
	for i := range partitions {
		partitions[i] = int32(i)
	}
	return partitions, nil
}

// GetOffset says that the table is empty, so that goka takes it for recovered.
func (topicManager) GetOffset(string, int32, int64) (int64, error) { return 0, nil }

// Close leaves the client to its owner.
func (topicManager) Close() error { return nil }

type refusingProducer struct{} // goka's goka.Producer: output uses transactions only

var errRefused = errors.New("stream: goka must not produce; output goes through kafka.Txn")

func (refusingProducer) Close() error { return nil }

func (refusingProducer) Emit(string, string, []byte) *goka.Promise {
	_, finish := goka.NewPromiseWithFinisher()
	return finish(nil, errRefused)
}

func (p refusingProducer) EmitWithHeaders(topic, key string, value []byte, _ goka.Headers) *goka.Promise {
	return p.Emit(topic, key, value)
}
