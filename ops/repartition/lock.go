package repartition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

const (
	lockTries = 10
	lockPause = 100 * time.Millisecond
	// maxBuffered is more than the records of a transaction.
	maxBuffered = 1 << 20
	// visibleTimeout is how long what was committed, or made, may take to be seen.
	visibleTimeout = time.Minute
	visiblePause   = 20 * time.Millisecond
)

// lock has nobody fold from here on, partition by partition. Those that still do fold by the layout before, whose
// homes are all theirs: none is folded by the new one before all are locked.
func (r *Repartition) lock(ctx context.Context, p *plan) error {
	phase := r.opts.Progress.Begin("stopping the fold", "partitions", int64(len(p.progress)))
	defer phase.End()
	return r.each(ctx, int32(len(p.progress)), func(ctx context.Context, partition int32) error {
		defer phase.Add(1)
		if now := p.progress[partition]; now == nil || now.Moving {
			return nil
		}
		for try := 1; ; try++ {
			err := r.lockOnce(ctx, partition, p.layouts)
			if err == nil || try == lockTries || !takenOver(err) {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Duration(try) * lockPause):
			}
		}
	})
}

// takenOver: a worker that looks at its partition again takes the transactional id, and finds no lock yet.
func takenOver(err error) bool {
	return errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced) ||
		errors.Is(err, kerr.InvalidTxnState) || errors.Is(err, kerr.ConcurrentTransactions)
}

// lockOnce works under the partition's transactional id: that fences whoever folds it, and what it had committed is
// there to be read.
func (r *Repartition) lockOnce(ctx context.Context, partition int32, layouts uint32) error {
	t, err := r.begin(ctx, schema.FoldTransactionalID(partition))
	if err != nil {
		return err
	}
	defer t.close()
	p, err := table.LastProgress(ctx, r.cl, partition)
	switch {
	case err != nil:
		return err
	case p == nil:
		return fmt.Errorf("partition %d of the state table has lost its progress record", partition)
	case p.Moving:
		return nil
	}
	if err := r.belongs(partition, p); err != nil {
		return err
	}
	p.Partitions, p.UserBuckets, p.Layouts, p.Moving = r.layout.Partitions, r.layout.UserBuckets(), layouts, true
	if err := t.start(); err != nil {
		return err
	}
	t.progress(partition, p)
	if err := t.commit(ctx); err != nil {
		return err
	}
	return t.visible(ctx)
}

// grow adds the partitions in Kafka. Rankings keep their topics as they are.
func (r *Repartition) grow(ctx context.Context) error {
	want := r.layout.Partitions
	adm := kadm.NewClient(r.cl)
	for _, name := range growing {
		if have := r.topics.ByName[name].Partitions; have < want {
			responses, err := adm.UpdatePartitions(ctx, int(want), name)
			if err == nil {
				err = responses.Error()
			}
			if err != nil {
				return fmt.Errorf("adding partitions to topic %s: %w", name, err)
			}
			if err := r.say("topic %s: %d partitions, of %d", name, want, have); err != nil {
				return err
			}
		}
		if err := r.waitFor(ctx, "the partitions of "+name+" to have leaders", func() (bool, error) {
			topics, err := kafka.LookUpTopics(ctx, r.cl, name)
			t := topics.ByName[name]
			return err == nil && t.Partitions == want && t.HasLeaders(), nil
		}); err != nil {
			return err
		}
	}
	return r.lookUp(ctx)
}

// addProgress begins the partitions that were added, locked as the others are.
func (r *Repartition) addProgress(ctx context.Context, p *plan) error {
	return r.each(ctx, r.layout.Partitions, func(ctx context.Context, partition int32) error {
		if int(partition) < len(p.progress) && p.progress[partition] != nil {
			return nil
		}
		if err := topics.AddFirstProgress(ctx, r.kafka, r.topics, partition, r.layout, p.layouts, r.log); err != nil {
			return err
		}
		return r.waitFor(ctx, fmt.Sprintf("the first record of partition %d to be seen", partition), func() (bool, error) {
			first, err := table.LastProgress(ctx, r.cl, partition)
			return first != nil, err
		})
	})
}

// waitFor waits until something is so; an error ends it.
func (r *Repartition) waitFor(ctx context.Context, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; run this again", what, ctx.Err())
		case <-time.After(visiblePause):
		}
	}
}

// transaction writes to several partitions under one transactional id. After any error close is all there is to do:
// the next one that begins settles what became of it.
type transaction struct {
	r  *Repartition
	id string
	cl *kgo.Client

	records []*kgo.Record
}

// begin fences whoever else has the id.
func (r *Repartition) begin(ctx context.Context, id string) (*transaction, error) {
	cl, err := r.kafka.NewClient(r.log,
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(r.opts.TransactionTimeout),
		kgo.RecordDeliveryTimeout(r.opts.TransactionTimeout*2/3),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedRecords(maxBuffered),
		kgo.ProducerBatchCompression(kgo.SnappyCompression(), kgo.NoCompression()),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.kafka.RequestTimeout)
	defer cancel()
	if _, _, err := cl.ProducerID(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("initialising transactional id %s: %w", id, err)
	}
	return &transaction{r: r, id: id, cl: cl}, nil
}

func (t *transaction) start() error {
	t.records = t.records[:0]
	if err := t.cl.BeginTransaction(); err != nil {
		return fmt.Errorf("beginning a transaction of %s: %w", t.id, err)
	}
	return nil
}

func (t *transaction) add(topic string, partition int32, key, value []byte) {
	t.records = append(t.records, &kgo.Record{Topic: topic, Partition: partition, Key: key, Value: value})
}

// update adds an update with the next number.
func (t *transaction) update(partition int32, p *schema.Progress, key []byte, u schema.Update) {
	u.Seq, u.SourceOffset = p.NextSeq, p.NextOffset
	p.NextSeq++
	t.add(schema.TopicUpdates, partition, key, schema.AppendUpdate(nil, &u))
}

// progress ends a partition's part of a transaction, in both topics, as the fold does. In like-updates it says that
// reactions are on their way, and how many layouts there were before this one.
func (t *transaction) progress(partition int32, p *schema.Progress) {
	t.update(partition, p, []byte(schema.ProgressKey), schema.ProgressUpdate(p.Layouts, p.Moving))
	t.add(schema.TopicState, partition, []byte(schema.StateProgressKey), schema.AppendProgress(nil, p))
}

// commit sends and commits all that was added.
func (t *transaction) commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.r.opts.TransactionTimeout)
	defer cancel()
	if err := t.cl.ProduceSync(ctx, t.records...).FirstErr(); err != nil {
		return fmt.Errorf("writing under transactional id %s: %w", t.id, t.explain(err))
	}
	last := t.records[len(t.records)-1]
	if err := kafka.CommitTransaction(ctx, t.cl, last.Topic, last.Partition); err != nil {
		return fmt.Errorf("committing under transactional id %s, which may have been done or not; run this again, which finds out: %w", t.id, t.explain(err))
	}
	return nil
}

var errAnother = errors.New("another `kudos topics repartition` was started and goes on with it")

func (t *transaction) explain(err error) error {
	if t.id == schema.RepartitionTransactionalID && takenOver(err) {
		return errors.Join(errAnother, err)
	}
	return err
}

// visible waits until the last records can be read.
func (t *transaction) visible(ctx context.Context) error {
	last := map[kafka.LogPartition]int64{}
	for _, rec := range t.records {
		last[kafka.LogPartition{Topic: rec.Topic, Partition: rec.Partition}] = rec.Offset
	}
	for at, offset := range last {
		err := t.r.waitFor(ctx, fmt.Sprintf("what was committed to %s/%d to be seen", at.Topic, at.Partition), func() (bool, error) {
			_, end, err := kafka.Bounds(ctx, t.r.cl, at.Topic, at.Partition)
			return end > offset, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends what was not committed, and may be called after commit.
func (t *transaction) close() { t.cl.Close() }
