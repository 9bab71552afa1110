package repartition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// transaction runs transactions over several partitions, one after the other, under one transactional id. After an
// error only close is allowed: the next transaction with this id resolves the outcome.
type transaction struct {
	r       *repartition
	id      string
	cl      *kgo.Client    // closing it aborts what was not committed
	records []*kgo.Record  // of the next transaction
	counted map[int32]bool // partitions of like-counts that have all counts
}

const (
	transactionTimeout = 30 * time.Second // how long Kafka keeps the transaction of a dead run open
	maxBuffered        = 1 << 20          // higher than the number of records in a transaction
)

// begin fences any other owner of the ids. Transactions use the first.
func (r *repartition) begin(ctx context.Context, ids ...string) (*transaction, error) {
	cl, err := r.kafka.NewFencingClient(ctx, r.log, ids, kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordDeliveryTimeout(transactionTimeout*2/3), kgo.MaxBufferedRecords(maxBuffered))
	if err != nil {
		return nil, err
	}
	return &transaction{r: r, id: ids[0], cl: cl, counted: map[int32]bool{}}, nil
}

func (t *transaction) add(topic string, partition int32, key, value []byte) {
	t.records = append(t.records, &kgo.Record{Topic: topic, Partition: partition, Key: key, Value: value})
}

// counts adds a post's counts to both topics that have them; nil: it has none any more.
func (t *transaction) counts(partition int32, post uint64, value []byte) {
	key := schema.AppendCountsKey(nil, post)
	t.add(schema.TopicState, partition, key, value)
	t.add(schema.TopicCounts, partition, key, value)
}

// update adds an update with the next sequence number.
func (t *transaction) update(partition int32, p *schema.Progress, key []byte, u schema.Update) {
	u.Seq, u.SourceOffset = p.NextSeq, p.NextOffset
	p.NextSeq++
	t.add(schema.TopicUpdates, partition, key, schema.AppendUpdate(nil, &u))
}

// locate finds out whether like-counts has all counts as of a partition's progress. If not, the fold completes it.
func (t *transaction) locate(ctx context.Context, partition int32, p *schema.Progress) (err error) {
	t.counted[partition], err = table.HasAllCounts(ctx, t.r.cl, partition, p)
	return err
}

// progress ends a partition's part of a transaction in all topics, as the fold does. In like-updates it says whether
// reactions are migrating, and how many layouts there were before.
func (t *transaction) progress(partition int32, p *schema.Progress) {
	t.update(partition, p, []byte(schema.ProgressKey), schema.ProgressUpdate(p.Layouts, p.Migrating))
	key, value := []byte(schema.StateProgressKey), schema.AppendProgress(nil, p)
	t.add(schema.TopicState, partition, key, value)
	if !t.counted[partition] {
		value = nil
	}
	t.add(schema.TopicCounts, partition, key, value)
}

func (t *transaction) commit(ctx context.Context) (sent []*kgo.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	sent, t.records = t.records, nil
	if err := t.cl.BeginTransaction(); err != nil {
		return nil, fmt.Errorf("beginning a transaction of %s: %w", t.id, err)
	}
	if err := t.cl.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return nil, fmt.Errorf("writing under transactional id %s: %w", t.id, t.explain(err))
	}
	last := sent[len(sent)-1]
	if err := kafka.CommitTransaction(ctx, t.cl, last.Topic, last.Partition); err != nil {
		return nil, fmt.Errorf("committing under transactional id %s: the outcome is unknown; "+
			"run this again to resolve it: %w", t.id, t.explain(err))
	}
	return sent, nil
}

var errAnother = errors.New("another `kudos topics repartition` was started and has taken over")

func (t *transaction) explain(err error) error {
	if t.id == schema.RepartitionTransactionalID && kafka.IsTakenOver(err) {
		return errors.Join(errAnother, err)
	}
	return err
}
