package ranker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// table is the common part of local and trending: it commits state table, output and position in one transaction.
type table struct {
	group, input, state, output string
	grows                       bool // partitions may be added to the input and the state table, but not to the output
	partition                   int32
	member                      func() (kafka.Member, error)
	opts                        *Options
	config                      *window.Config
	kafka                       kafka.Clients
	stores                      *store.Set
	metrics                     *metrics
	log                         *slog.Logger

	txn        *kafka.Txn
	store      *store.Store
	progress   schema.Progress
	tx         transaction
	outputs    int32 // number of partitions of the output
	milestones int32 // number of partitions of milestones-local
	exclusions *exclusions
	emitted    int64 // emit interval of the last lists or rankings
}

const (
	// actionReset is for state that does not match its input. It can all be rebuilt from like-updates.
	actionReset = "stop the rankers, then: kudos ranker reset, and kudos topics apply (rankings are rebuilt from " +
		schema.TopicUpdates + ")"
	// actionUpgrade is for records in a version that this program does not know.
	actionUpgrade = "run the version of kudos that wrote it, or a later one"
)

func (t table) of(a stream.Assignment, group, output string) table {
	t.group, t.input, t.state, t.output = group, a.Topic, group+"-table", output
	t.partition, t.member = a.Partition, a.Member
	t.log = t.log.With("group", group)
	t.store = t.stores.New(t.state, t.partition)
	return t
}

// Fence initializes the partition's transactional id before anything is read.
func (t *table) Fence(ctx context.Context) error {
	t.txn = kafka.NewTxn(kafka.TxnOptions{
		// One id: rankings are emitted once a second, and do not wait for the previous transaction's completion.
		IDs: []string{schema.TransactionalID(t.group, t.partition)}, Timeout: t.opts.TransactionTimeout,
		Member: t.member, Group: t.group,
		Source: kafka.LogPartition{Topic: t.input, Partition: t.partition}, Kafka: t.kafka,
	}, t.log)
	return t.txn.Fence(ctx)
}

// Close closes the transactional client. The next Fence aborts a transaction that is still open.
func (t *table) Close() {
	if t.txn != nil {
		t.txn.Close()
	}
}

// Leave closes the local store of the state table.
func (t *table) Leave() { store.Leave(t.store) }

// open catches up the state table, verifies its progress record, calls load to read the rows and then poll to read the
// exclusions, and returns the position.
func (t *table) open(ctx context.Context, load func() error, poll func(context.Context) error) (kafka.Position, error) {
	t.exclusions, t.emitted = newExclusions(), -1
	if _, err := t.store.CatchUp(ctx, t.txn.Client(), store.Hooks{}); err != nil {
		return kafka.Position{}, err
	}
	if err := t.readProgress(ctx); err != nil {
		// A mismatch may also come from a new owner that has committed since Fence.
		if taken := t.txn.CheckMember(ctx); taken != nil {
			return kafka.Position{}, taken
		}
		return kafka.Position{}, err
	}
	t.begin()
	if err := load(); err != nil {
		return kafka.Position{}, err
	}
	return kafka.Position{Offset: t.progress.NextOffset, Epoch: t.progress.LeaderEpoch}, poll(ctx)
}

// topics are all that the worker reads and writes.
func (t *table) topics() []string {
	names := []string{t.input, t.state, t.output, schema.TopicExclusions}
	if len(t.opts.Milestones) > 0 {
		names = append(names, schema.TopicMilestonesLocal)
	}
	return names
}

// readProgress reads the progress record, or begins at the input's start. It parks if topics or offsets do not match.
func (t *table) readProgress(ctx context.Context) error {
	cl := t.txn.Client()
	topics, err := kafka.LookUpTopics(ctx, cl, t.topics()...)
	if err != nil {
		return err
	}
	input := topics.ByName[t.input]
	for _, name := range []string{t.state, t.output} {
		if n := topics.ByName[name].Partitions; n != input.Partitions && !t.grows {
			return stream.Park(stream.CauseTopics, actionReset, "topic %s has %d partitions, %s has %d",
				name, n, t.input, input.Partitions)
		}
	}
	t.txn.Outputs(topics)
	t.outputs = topics.ByName[t.output].Partitions
	t.milestones = topics.ByName[schema.TopicMilestonesLocal].Partitions
	now := schema.Progress{LeaderEpoch: -1, ClusterID: topics.ClusterID, Partitions: input.Partitions,
		SourceID: input.ID, StateID: topics.ByName[t.state].ID, UpdatesID: topics.ByName[t.output].ID}
	start, end, err := kafka.Bounds(ctx, cl, t.input, t.partition)
	if err != nil {
		return err
	}
	var p schema.Progress
	found, err := t.store.Find([]byte(schema.StateProgressKey), func(value []byte) error {
		return t.readable(schema.DecodeProgress(value, &p))
	})
	if err != nil {
		return err
	}
	if !found {
		t.log.Info("starting at the first offset", "topic", t.input, "partition", t.partition, "offset", start)
		now.NextOffset = start
		t.progress = now
		return nil
	}
	now.NextOffset, now.LeaderEpoch, now.NextSeq = p.NextOffset, p.LeaderEpoch, p.NextSeq
	now.Layouts, now.Migrating = p.Layouts, p.Migrating
	if t.grows && p.Partitions < now.Partitions {
		p.Partitions = now.Partitions
	}
	if now != p {
		return stream.Park(stream.CauseTopics, actionReset,
			"%s, %s or %s was recreated, or has another number of partitions, "+
				"since the rankings were computed", t.input, t.state, t.output)
	}
	committed, ok, err := kafka.CommittedOffset(ctx, cl, t.group, t.input, t.partition)
	switch {
	case err != nil:
		return err
	case ok && committed != p.NextOffset:
		return stream.Park(stream.CauseState, actionReset,
			"%s is at offset %d of %s/%d, but the group has committed %d",
			t.state, p.NextOffset, t.input, t.partition, committed)
	case p.NextOffset < start || p.NextOffset > end:
		return stream.Park(stream.CauseLoss, actionReset, "offset %d is next, but %s/%d holds %d to %d",
			p.NextOffset, t.input, t.partition, start, end)
	}
	t.progress = p
	return nil
}

func (t *table) parkAt(rec *kgo.Record, action string, err error) error {
	return stream.Park(stream.CauseRecord, action, "%s/%d offset %d: %w", t.input, t.partition, rec.Offset, err)
}

// readable parks the partition if err is not nil: a state table row cannot be decoded. Don't use it for store errors.
func (t *table) readable(err error) error {
	if err == nil || errors.As(err, new(*stream.ParkError)) {
		return err
	}
	return stream.Park(stream.CauseRecord, actionUpgrade, "%s/%d: %w", t.state, t.partition, err)
}

// scan calls each for the rows whose keys start with prefix, up to the key limit (nil means all). An error of each
// parks the partition, so each must not access the store. Keys and values are valid during the call only.
func (t *table) scan(prefix, limit []byte, each func(key, value []byte) error) error {
	if limit == nil {
		limit = store.PrefixEnd(prefix)
	}
	return store.Scan(t.store, prefix, limit, func(key, value []byte) (more bool, err error) {
		return true, t.readable(each(key, value))
	})
}

// rows are the rows of one kind. load gets the key without the kind.
type rows struct {
	kind string
	load func(key, value []byte) error
}

func (t *table) loadRows(kinds ...rows) error {
	for _, k := range kinds {
		each := func(key, value []byte) error { return k.load(key[len(k.kind):], value) }
		if err := t.scan([]byte(k.kind), nil, each); err != nil {
			return err
		}
	}
	return nil
}

// interval is the number of the emit interval that contains a time.
func (t *table) interval(at time.Time) int64 { return at.UnixNano() / int64(t.opts.EmitInterval) }

// transaction collects what is written together with the next position.
type transaction struct {
	rows    []*kgo.Record // rows of the state table
	output  []*kgo.Record
	nextSeq uint64 // sequence number after the transaction, in the input
}

func (t *table) begin() { t.tx = transaction{nextSeq: t.progress.NextSeq} }

// set writes a row of the state table; a nil value deletes it. The caller must not change key and value afterwards.
func (t *table) set(key, value []byte) {
	t.tx.rows = append(t.tx.rows, &kgo.Record{Topic: t.state, Partition: t.partition, Key: key, Value: value})
}

func (t *table) emit(partition int32, key, value []byte) {
	t.tx.output = append(t.tx.output, &kgo.Record{Topic: t.output, Partition: partition, Key: key, Value: value})
}

// commit commits in Kafka, then writes the rows to the local store. After an error the worker must be reopened.
func (t *table) commit(ctx context.Context, next kafka.Position) error {
	progress := t.progress
	progress.NextOffset, progress.LeaderEpoch, progress.NextSeq = next.Offset, next.Epoch, t.tx.nextSeq
	t.set([]byte(schema.StateProgressKey), schema.AppendProgress(nil, &progress))
	rows := t.tx.rows
	epoch := t.txn.LeaderEpoch(t.state, t.partition)
	if err := t.txn.Commit(ctx, append(rows, t.tx.output...), next); err != nil {
		return err
	}
	// Not earlier: the store is a copy of what is committed, and must never be ahead of it.
	write := t.store.NewWrite()
	for _, rec := range rows {
		if err := write.Set(rec.Key, rec.Value); err != nil {
			write.Discard()
			return err
		}
	}
	write.SetEpoch(epoch)
	if err := write.Commit(rows[len(rows)-1].Offset); err != nil {
		return err
	}
	t.progress = progress
	t.begin()
	return nil
}
