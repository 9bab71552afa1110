package simulation

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

var (
	errLost   = errors.New("connection reset by peer")
	errDead   = kerr.SaslAuthenticationFailed // not retriable
	errClosed = kgo.ErrClientClosed
)

type clients struct{ proc *process }

func (k clients) Connect(*slog.Logger) (kafka.Client, error) {
	return &client{w: k.proc.w, proc: k.proc}, nil
}

func (k clients) ConnectTxn(_ *slog.Logger, id string, _ *kafka.TxnOptions) (kafka.TxnClient, error) {
	return &txnClient{client: client{w: k.proc.w, proc: k.proc}, co: k.proc.w.kafka.coordinator(id)}, nil
}

type client struct {
	w      *world
	proc   *process
	closed bool
}

func (c *client) Close() { c.closed = true }

// sent is a step before a request arrives. Meanwhile the request may get lost, or the process may crash or give up.
func (c *client) sent(ctx context.Context, what string) error {
	switch {
	case !c.w.step("kafka: %s", what):
		return errDead
	case c.closed:
		return errClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case c.w.lost("kafka: request lost", what):
		return errLost
	}
	return nil
}

// answered is a step after a request was handled. The response may get lost.
func (c *client) answered(what string) error {
	if !c.w.step("kafka responds: %s", what) {
		return errDead
	}
	if c.w.lost("kafka: response lost", what) {
		return errLost
	}
	return nil
}

type txnClient struct {
	client
	co              *coordinator
	pid             int64
	epoch           int16
	ready, produced bool
	topic           string // of the last record, to take a step between topics
	broken          error
}

func (c *txnClient) ProducerID(ctx context.Context) (int64, int16, error) {
	if c.ready {
		return c.pid, c.epoch, c.broken
	}
	if err := c.sent(ctx, "init "+c.co.id); err != nil {
		return 0, 0, err
	}
	if err := c.settled(ctx); err != nil {
		return 0, 0, err
	}
	c.w.kafka.init(c.co)
	c.pid, c.epoch = c.co.pid, c.co.epoch
	if err := c.answered("init " + c.co.id); err != nil {
		return 0, 0, err
	}
	c.ready = true
	return c.pid, c.epoch, nil
}

// settled waits for the markers of the last transaction, as the real client does.
func (c *txnClient) settled(ctx context.Context) error {
	for tries := 0; c.co.txn != nil && c.co.txn.decided; tries++ {
		if tries == 3 || c.w.calm {
			c.w.kafka.mark(c.co)
			break
		}
		if err := c.sent(ctx, "wait for markers of "+c.co.id); err != nil {
			return err
		}
	}
	return nil
}

func (c *txnClient) BeginTransaction() error {
	if c.broken != nil {
		return c.broken
	}
	c.produced, c.topic = false, ""
	return nil
}

// Produce writes a record immediately. Between two topics, and randomly in between, it takes a step.
func (c *txnClient) Produce(ctx context.Context, rec *kgo.Record, promise func(*kgo.Record, error)) {
	if c.broken == nil {
		c.broken = c.produce(ctx, rec)
	}
	promise(rec, c.broken)
}

func (c *txnClient) produce(ctx context.Context, rec *kgo.Record) error {
	w := c.w
	if _, _, err := c.ProducerID(ctx); err != nil { // unless it was called before
		return err
	}
	stepped := rec.Topic != c.topic || w.chance("kafka: a step before the next record", 100)
	if stepped {
		c.topic = rec.Topic
		if err := c.sent(ctx, "produce to "+rec.Topic); err != nil {
			return err
		}
	}
	if err := c.settled(ctx); err != nil {
		return err
	}
	if err := w.kafka.fence(c.co, c.pid, c.epoch); err != nil {
		return err
	}
	l, t := w.kafka.log(rec.Topic, rec.Partition), w.kafka.join(c.co)
	if t.older = c.proc.older; t.older && rec.Topic == schema.TopicCounts {
		return nil
	}
	// As with a real network, the caller may reuse the record's memory after this.
	rec.Offset = l.append(entry{key: bytes.Clone(rec.Key), value: bytes.Clone(rec.Value),
		headers: slices.Clone(rec.Headers), txn: t})
	c.produced = true
	if stepped {
		return c.answered("produce to " + rec.Topic)
	}
	return nil
}

// PartitionLeader always knows the leader: all partitions exist from the start.
func (c *txnClient) PartitionLeader(topic string, partition int32) (leader, epoch int32, err error) {
	return 0, c.w.kafka.log(topic, partition).leaderEpoch(), nil
}

// EndTransaction silently drops a transaction without records, as kgo does.
func (c *txnClient) EndTransaction(ctx context.Context, end kgo.TransactionEndTry) error {
	if c.broken != nil {
		return c.broken
	}
	if !c.produced {
		return nil
	}
	c.broken = c.end(ctx, bool(end))
	return c.broken
}

func (c *txnClient) end(ctx context.Context, commit bool) error {
	w, co := c.w, c.co
	arrive := func() error {
		switch err := w.kafka.fence(co, c.pid, c.epoch); err {
		case nil:
		case kerr.InvalidProducerEpoch:
			return kerr.ProducerFenced
		default:
			return err
		}
		w.kafka.decide(co, commit)
		if !w.chance("kafka: markers late", 400) {
			w.kafka.mark(co)
		}
		return nil
	}
	if err := c.sent(ctx, "end transaction of "+co.id); err != nil {
		return err
	}
	if w.chance("kafka: commit does not arrive", w.plan.unclear) {
		if w.chance("kafka: commit never arrives", 500) {
			w.count("kafka: commit lost")
		} else {
			w.count("kafka: commit late")
			w.kafka.late = append(w.kafka.late, func() { _ = arrive() })
		}
		return errLost
	}
	if err := arrive(); err != nil {
		return err
	}
	c.pid, c.epoch = co.pid, co.epoch
	if err := c.answered("end transaction of " + co.id); err != nil {
		return err
	}
	if w.happens("kafka: commit response lost", w.plan.unclear) {
		return errLost
	}
	return nil
}
