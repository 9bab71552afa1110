package stream

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// ProcessorOptions describe one goka group.
type ProcessorOptions struct {
	// Group is the consumer group, Input the topic that it reads.
	Group, Input string
	// Table: the group has a state table, the topic <Group>-table.
	Table bool
	// Hasher finds the partition of a table's key, for views; nil: nobody looks.
	Hasher func() hash.Hash32
	// Stores open the table's local copies; needed with Table.
	Stores *store.Set
	// Standby, made of Stores: the partitions of the table that others own are copied
	// there. nil: they are not.
	Standby *store.Set
	// Check is asked before the group is joined; its error keeps the process out of the
	// group, and is asked for again. nil: nothing is to be checked.
	Check func(context.Context, *kgo.Client) error
	// CommitPositions: the group's offsets are committed beside the work, for
	// dashboards. Otherwise they are the Worker's to commit, or nobody's.
	CommitPositions bool
	// LossRemedy is what a person does when records of Input are gone that had not been
	// worked on, or had been and were cut off.
	LossRemedy string

	Kafka    kafka.Options
	MaxBatch int
	// TickInterval is how often a partition with nothing to do gets an empty batch.
	TickInterval time.Duration
	// ParkInterval is how often a parked partition is looked at again.
	ParkInterval time.Duration
	// SessionTimeout is how long the group waits for a silent member.
	SessionTimeout time.Duration
	// ShutdownTimeout bounds the batch in hand when the session ends.
	ShutdownTimeout time.Duration

	// Of the watchdog; tests have others. stalled is called when a partition stands still
	// for no known reason.
	watchInterval, stallTimeout time.Duration
	// heartbeatInterval is how soon a member notices a rebalance; a fifth of SessionTimeout. Tests have less, so that a
	// busy machine still keeps the session.
	heartbeatInterval time.Duration
	stalled           func(why string)
}

// Processor runs one goka group until it is told to stop. goka ends a processor at
// any error and runs it only once; this one is built again then.
type Processor struct {
	opts      ProcessorOptions
	newWorker func(Assignment) Worker
	log       *slog.Logger

	mu struct {
		sync.Mutex
		group *group
		err   error // why there is no goka processor at the moment
	}
}

// NewProcessor makes a processor; newWorker is called for each assigned partition.
func NewProcessor(opts ProcessorOptions, newWorker func(Assignment) Worker, log *slog.Logger) *Processor {
	opts.watchInterval, opts.stallTimeout = cmp.Or(opts.watchInterval, watchInterval), cmp.Or(opts.stallTimeout, stallTimeout)
	opts.heartbeatInterval = cmp.Or(opts.heartbeatInterval, opts.SessionTimeout/5)
	if opts.stalled == nil {
		opts.stalled = die
	}
	p := &Processor{opts: opts, newWorker: newWorker, log: log.With("group", opts.Group)}
	p.mu.err = errors.New("not started")
	return p
}

const (
	restartMin = 100 * time.Millisecond
	restartMax = 10 * time.Second
)

// Run blocks until ctx ends; it goes on over all errors of Kafka.
func (p *Processor) Run(ctx context.Context) error {
	for backoff := restartMin; ; backoff = min(2*backoff, restartMax) {
		began := time.Now()
		err := p.runOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = errors.New("goka ended without an error")
		}
		if time.Since(began) > time.Minute {
			backoff = restartMin
		}
		p.log.Error("the group's processor failed and is started again", "error", err, "remedy", remedyOf(err), "in", backoff)
		p.setRunning(nil, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
	}
}

// runOnce builds a goka processor on this package's ports and runs it.
func (p *Processor) runOnce(ctx context.Context) error {
	cl, err := p.opts.Kafka.NewClient(p.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := p.check(ctx, cl); err != nil {
		return err
	}
	tm := &topicManager{cl: cl, timeout: p.opts.Kafka.RequestTimeout}
	table := newTableConsumer(cl, p.opts.Stores)
	g := newGroup(&p.opts, p.newWorker, p.log)

	edges := []goka.Edge{goka.Input(goka.Stream(p.opts.Input), batchCodec{}, func(ctx goka.Context, msg any) {
		if s := g.present(); s != nil {
			if c := s.claims[msg.(int32)]; c != nil {
				c.process(ctx.Context())
			}
		}
	})}
	options := []goka.ProcessorOption{
		goka.WithConsumerGroupBuilder(func([]string, string, string) (sarama.ConsumerGroup, error) { return g, nil }),
		goka.WithConsumerSaramaBuilder(func([]string, string) (sarama.Consumer, error) { return table, nil }),
		goka.WithTopicManagerBuilder(func([]string) (goka.TopicManager, error) { return tm, nil }),
		goka.WithProducerBuilder(func([]string, string, func() hash.Hash32) (goka.Producer, error) { return refusingProducer{}, nil }),
		goka.WithLogger(gokaLogger{p.log}),
		goka.WithPartitionChannelSize(1),
	}
	if p.opts.Table {
		edges = append(edges, goka.Persist(batchCodec{}))
		if p.opts.Hasher != nil {
			options = append(options, goka.WithHasher(p.opts.Hasher))
		}
		options = append(options,
			goka.WithUpdateCallback(table.update),
			goka.WithStorageBuilder(p.opts.Stores.Builder(tm.identify)))
	}
	proc, err := goka.NewProcessor(p.opts.Kafka.Brokers, goka.DefineGroup(goka.Group(p.opts.Group), edges...), options...)
	if err != nil {
		return fmt.Errorf("setting up group %s: %w", p.opts.Group, err)
	}
	if g.standby, err = newStandby(ctx, &p.opts, tm, p.log); err != nil {
		return err
	}
	defer g.standby.close()
	p.setRunning(g, nil)
	return proc.Run(ctx)
}

func (p *Processor) check(ctx context.Context, cl *kgo.Client) error {
	if p.opts.Check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Kafka.RequestTimeout)
	defer cancel()
	return p.opts.Check(ctx, cl)
}

// NotYet has Ready say why the group is not joined, before Run.
func (p *Processor) NotYet(why error) { p.setRunning(nil, why) }

func (p *Processor) setRunning(g *group, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.group, p.mu.err = g, err
}

// Status tells how each assigned partition is doing, by partition. The error says why
// there is no assignment.
func (p *Processor) Status() ([]PartitionStatus, error) {
	p.mu.Lock()
	g, err := p.mu.group, p.mu.err
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s := g.present()
	if s == nil {
		return nil, g.waiting()
	}
	statuses := make([]PartitionStatus, 0, len(s.claims))
	for _, c := range s.claims {
		statuses = append(statuses, c.status())
	}
	slices.SortFunc(statuses, func(a, b PartitionStatus) int { return int(a.Partition - b.Partition) })
	return statuses, nil
}

// Ready is nil when all assigned partitions are being worked on, and otherwise names
// those that are not, why, and what helps.
func (p *Processor) Ready() error {
	statuses, err := p.Status()
	if err != nil {
		return fmt.Errorf("group %s: %w%s", p.opts.Group, err, remedyNote(remedyOf(err)))
	}
	return ReadyOf(p.opts.Group, statuses)
}

// batchCodec is goka's goka.Codec for the message that stands for a batch: the bytes
// are the partition.
type batchCodec struct{}

func (batchCodec) Decode(b []byte) (any, error) {
	if len(b) != 4 {
		return nil, fmt.Errorf("stream: a message of %d bytes did not come from the group port", len(b))
	}
	return int32(binary.BigEndian.Uint32(b)), nil
}

func (batchCodec) Encode(any) ([]byte, error) { return nil, errRefused }

// refusingProducer is goka's goka.Producer: output goes through transactions only.
type refusingProducer struct{}

var errRefused = errors.New("stream: goka must not produce; output goes through kafka.Txn")

func (refusingProducer) Emit(string, string, []byte) *goka.Promise {
	return refused()
}

func (refusingProducer) EmitWithHeaders(string, string, []byte, goka.Headers) *goka.Promise {
	return refused()
}

func refused() *goka.Promise {
	promise, finish := goka.NewPromiseWithFinisher()
	finish(nil, errRefused)
	return promise
}

func (refusingProducer) Close() error { return nil }

// gokaLogger turns goka's lines into structured ones. They are of interest only to
// who looks into goka itself: what matters is logged here.
type gokaLogger struct{ log *slog.Logger }

func (l gokaLogger) Print(args ...any)   { l.log.Debug("goka: " + fmt.Sprint(args...)) }
func (l gokaLogger) Println(args ...any) { l.log.Debug("goka: " + fmt.Sprint(args...)) }

func (l gokaLogger) Printf(format string, args ...any) {
	l.log.Debug("goka: " + fmt.Sprintf(format, args...))
}
