package ranker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// table is what both workers stand on: a partition of a group whose state table, output
// and position are one transaction.
type table struct {
	group, input, output string
	// grows: partitions may be added to the input, and to the table with it, while the output keeps its number.
	grows     bool
	partition int32
	member    kafka.Member
	opts      *Options
	kafka     kafka.Clients
	stores    *store.Set
	log       *slog.Logger

	txn      *kafka.Txn
	store    *store.Store
	progress schema.Progress
	// outputs is how many partitions the output has.
	outputs int32
}

func (t *table) topic() string { return t.group + "-table" }

// Fence initialises the partition's transactional id, before anything is read.
func (t *table) Fence(ctx context.Context) error {
	cl, err := t.kafka.Connect(t.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kafka.LookUpTopics(ctx, cl, t.input)
	if err != nil {
		return err
	}
	t.txn = kafka.NewTxn(kafka.TxnOptions{
		ID:      schema.TransactionalID(t.group, t.partition),
		Member:  t.member,
		Source:  kafka.LogPartition{Topic: t.input, TopicID: topics.ByName[t.input].ID, Partition: t.partition},
		Timeout: t.opts.TransactionTimeout,
		Kafka:   t.kafka,
	}, t.log)
	return t.txn.Fence(ctx)
}

// open brings the state table up to date and takes the position from the progress record in
// it; a table without one begins where the input does.
func (t *table) open(ctx context.Context) (kafka.Position, error) {
	t.store = t.stores.Get(t.topic(), t.partition)
	if err := t.store.CatchUp(ctx, t.txn.Client(), t.topic(), t.partition); err != nil {
		return kafka.Position{}, err
	}
	position, err := t.position(ctx)
	if err == nil {
		return position, nil
	}
	// What another process did since Fence is no damage.
	if taken := t.txn.CheckMember(ctx); taken != nil {
		return kafka.Position{}, taken
	}
	return kafka.Position{}, err
}

func (t *table) position(ctx context.Context) (kafka.Position, error) {
	cl := t.txn.Client()
	topics, err := kafka.LookUpTopics(ctx, cl, t.input, t.topic(), t.output)
	if err != nil {
		return kafka.Position{}, err
	}
	input := topics.ByName[t.input]
	for _, name := range []string{t.topic(), t.output} {
		if n := topics.ByName[name].Partitions; n != input.Partitions && !t.grows {
			return kafka.Position{}, stream.Park(stream.CauseTopics, makeAnew, "topic %s has %d partitions, %s has %d", name, n, t.input, input.Partitions)
		}
	}
	t.outputs = topics.ByName[t.output].Partitions
	now := schema.Progress{
		LeaderEpoch: -1, ClusterID: topics.ClusterID, Partitions: input.Partitions,
		SourceID: input.ID, StateID: topics.ByName[t.topic()].ID, UpdatesID: topics.ByName[t.output].ID,
	}
	start, end, err := kafka.Bounds(ctx, cl, t.input, t.partition)
	if err != nil {
		return kafka.Position{}, err
	}
	value, err := t.store.Get(schema.StateProgressKey)
	if err != nil {
		return kafka.Position{}, err
	}
	if value == nil {
		t.log.Info("begins at the start of its input", "topic", t.input, "partition", t.partition, "offset", start)
		now.NextOffset = start
		t.progress = now
		return kafka.Position{Offset: start, Epoch: -1}, nil
	}
	p := schema.Progress{}
	if err := schema.DecodeProgress(value, &p); err != nil {
		return kafka.Position{}, stream.Park(stream.CauseRecord, laterVersion, "%s/%d: %w", t.topic(), t.partition, err)
	}
	now.NextOffset, now.LeaderEpoch, now.NextSeq = p.NextOffset, p.LeaderEpoch, p.NextSeq
	now.Layouts, now.Moving = p.Layouts, p.Moving
	if t.grows && p.Partitions < now.Partitions {
		p.Partitions = now.Partitions
	}
	if now != p {
		return kafka.Position{}, stream.Park(stream.CauseTopics, makeAnew, "%s, %s or %s was deleted and created again, or has another number of partitions, since the rankings were made", t.input, t.topic(), t.output)
	}
	committed, ok, err := kafka.CommittedOffset(ctx, cl, t.group, t.input, t.partition)
	switch {
	case err != nil:
		return kafka.Position{}, err
	case ok && committed != p.NextOffset:
		return kafka.Position{}, stream.Park(stream.CauseState, makeAnew, "%s stands at offset %d of %s/%d, but the group has committed %d", t.topic(), p.NextOffset, t.input, t.partition, committed)
	case p.NextOffset < start || p.NextOffset > end:
		return kafka.Position{}, stream.Park(stream.CauseLoss, makeAnew, "offset %d is next, but %s/%d holds %d to %d", p.NextOffset, t.input, t.partition, start, end)
	}
	t.progress = p
	return kafka.Position{Offset: p.NextOffset, Epoch: p.LeaderEpoch}, nil
}

// commit writes state records, output and the position in one transaction, and then the
// state to the local store.
func (t *table) commit(ctx context.Context, out *output, next kafka.Position) error {
	progress := t.progress
	progress.NextOffset, progress.LeaderEpoch, progress.NextSeq = next.Offset, next.Epoch, out.nextSeq
	out.set([]byte(schema.StateProgressKey), schema.AppendProgress(nil, &progress))
	if err := t.txn.Commit(ctx, append(out.state, out.records...), next); err != nil {
		return err
	}
	// Only now: the store is a copy of what is committed, never ahead of it.
	write := t.store.NewWrite()
	last := int64(-1)
	for _, rec := range out.state {
		if err := write.Set(rec.Key, rec.Value); err != nil {
			write.Discard()
			return err
		}
		last = max(last, rec.Offset)
	}
	if last < 0 {
		write.Discard()
		return errors.New("committed records have no offset")
	}
	if err := write.Commit(last); err != nil {
		return err
	}
	t.progress = progress
	return nil
}

// scan walks over the state table's rows whose keys begin with prefix.
func (t *table) scan(prefix string, each func(key, value []byte) error) error {
	return t.scanUntil(prefix, nil, each)
}

// scanUntil is scan up to, but not including, the key limit; nil: all.
func (t *table) scanUntil(prefix string, limit []byte, each func(key, value []byte) error) error {
	it, err := t.store.IteratorWithRange([]byte(prefix), limit)
	if err != nil {
		return err
	}
	defer it.Release()
	for it.Next() {
		value, err := it.Value()
		if err != nil {
			return err
		}
		if err := each(it.Key()[len(prefix):], value); err != nil {
			return &rowError{err}
		}
	}
	return it.Err()
}

// rowError is of a row that this program cannot read, and not of the store.
type rowError struct{ error }

func (e *rowError) Unwrap() error { return e.error }

// parkRows parks for a row that cannot be read; any other error may pass.
func (t *table) parkRows(err error) error {
	var row *rowError
	if errors.As(err, &row) {
		return stream.Park(stream.CauseRecord, laterVersion, "%s/%d: %w", t.topic(), t.partition, err)
	}
	return err
}

// Close closes the transactional client; an open transaction is left to the next Fence.
func (t *table) Close() {
	if t.txn != nil {
		t.txn.Close()
	}
}

// output is what a batch writes.
type output struct {
	table     string
	partition int32
	state     []*kgo.Record // for the state table
	records   []*kgo.Record // for other topics
	nextSeq   uint64
}

// set writes a row of the state table; nil deletes it. Key and value must not be used
// again.
func (o *output) set(key, value []byte) {
	o.state = append(o.state, &kgo.Record{Topic: o.table, Partition: o.partition, Key: key, Value: value})
}

func (t *table) newOutput() *output {
	return &output{table: t.topic(), partition: t.partition, nextSeq: t.progress.NextSeq}
}

const (
	// makeAnew is for state that does not belong to its input any more. All of it comes
	// from like-updates.
	makeAnew = "stop the rankers, then: kudos ranker reset (rankings are made anew from " + schema.TopicUpdates + ")"
	// laterVersion is for records that this program does not know.
	laterVersion = "run the version of kudos that wrote it, or a later one"
)
