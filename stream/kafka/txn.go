package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Member is a membership of a group, in one generation.
type Member struct {
	Group, ID  string
	Generation int32
}

// Txn runs the transactions of one partition: records and the consumer offset are committed atomically. A partition has
// transactional ids of its own, so that initializing them fences the previous owner and aborts its open transaction.
//
//	Fence ──► Commit ──► Commit ──► … ──► Close
//	  ▲          │ any error
//	  └──Close───┘
//
// With two ids, used in turn, a transaction does not wait until the broker has completed the previous one, which it
// does some 20 ms after the commit. That keeps the order because a transaction begins only once the commit of the
// previous one was acknowledged: then it is decided, and completed before any owner that initializes all ids reads.
//
//	first id   │ 1 ─► commit, acknowledged │ …markers │ 3 ─► commit …
//	second id                              │ 2 ─► commit, acknowledged │ …markers
//
// After any error of Commit the outcome may be unknown, and the Txn is closed: both ids, since the other one must not
// continue. Fence settles it on the broker, before position and state are read again. (Aborting would initialize the id
// behind our back.)
type Txn struct {
	opts TxnOptions
	log  *slog.Logger
	cls  []*idClient // one for each id; empty when closed

	fencedIn int32  // the generation when Fence began
	inUse    int    // how many of the ids are used
	next     int    // the id of the next transaction
	outputs  Topics // that are written to
}

type idClient struct {
	TxnClient
	id      string
	checked bool // that it writes to the outputs, not to others of the same name
}

// TxnOptions configures the transactions of one partition.
type TxnOptions struct {
	IDs []string // the transactional ids, all initialized in this order, by every owner
	// Member returns the membership that the partition is assigned to, or ErrFenced after it was assigned to another.
	Member func() (Member, error)
	// Group is the group whose offset of Source is committed. Fence looks up the topic id of Source.
	Group  string
	Source LogPartition
	// Timeout is how long a dead owner's open transaction blocks read_committed consumers, unless it is fenced.
	Timeout time.Duration
	// BatchMaxBytes is a topic's largest record batch, if smaller than Kafka's default; nil or 0: the default.
	BatchMaxBytes func(topic string) int32
	Kafka         Clients
}

// LogPartition is a partition of one particular topic.
type LogPartition struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// NewTxn returns a Txn, which sends nothing yet.
func NewTxn(opts TxnOptions, log *slog.Logger) *Txn { return &Txn{opts: opts, log: log} }

// Fence initializes all transactional ids; transactions use the first one, until Alternate is called. It returns
// ErrFenced if the member has lost its membership: a process that was unavailable must not take the partition from its
// new owner.
func (t *Txn) Fence(ctx context.Context) error {
	m, _ := t.opts.Member() // CheckMember returns the error
	t.fencedIn = m.Generation
	t.Close()
	for _, id := range t.opts.IDs {
		if err := t.fence(ctx, id); err != nil {
			t.Close()
			return fmt.Errorf("initializing transactional id %s: %w", id, err)
		}
	}
	t.inUse, t.next = 1, 0
	return nil
}

func (t *Txn) fence(ctx context.Context, id string) error {
	cl, err := t.opts.Kafka.ConnectTxn(t.log, id, &t.opts)
	if err != nil {
		return err
	}
	t.cls = append(t.cls, &idClient{TxnClient: cl, id: id})
	if len(t.cls) == 1 {
		topics, err := LookUpTopics(ctx, cl, t.opts.Source.Topic)
		if err != nil {
			return err
		}
		t.opts.Source.TopicID = topics.ByName[t.opts.Source.Topic].ID
	}
	if err := t.CheckMember(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	return fence(ctx, cl)
}

// Alternate makes transactions use all ids in turn, or only the first. Call it between Fence and the first transaction,
// which uses the first id in any case: an owner that knows only this one then finds out that there are others.
func (t *Txn) Alternate(on bool) {
	t.inUse = 1
	if on {
		t.inUse = len(t.cls)
	}
}

// Outputs tells which topics are written to. A client learns of a topic when it first writes to it: one that has been
// recreated since the owner looked it up is an error (ErrRecreated) of that transaction, not another topic to write to.
func (t *Txn) Outputs(topics Topics) { t.outputs = topics }

// CheckMember checks the membership with a heartbeat. It returns ErrFenced if it has ended, or is of a later generation
// than Fence's. A rebalance in progress is no error: until it ends, the partition is still ours.
func (t *Txn) CheckMember(ctx context.Context) error {
	m, err := t.opts.Member()
	if err == nil && m.Generation != t.fencedIn { // another member may have had the partition between
		err = ErrFenced
	}
	if err != nil {
		return err
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = m.Group, m.ID, m.Generation
	resp, err := req.RequestWith(ctx, t.Client())
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
		return fmt.Errorf("checking membership in group %s: %w", m.Group, asFenced(err))
	}
	return nil
}

// Client returns the partition's own client, for reading what Fence has settled.
func (t *Txn) Client() Client { return t.cls[0] }

// Commit publishes the records, which must name partitions, and commits next as the group's position in the source, in
// one transaction. On success each has its offset. It gives up after the transaction timeout, like the broker.
func (t *Txn) Commit(ctx context.Context, records []*kgo.Record, next Position) error {
	x, err := t.Begin(ctx)
	if err != nil {
		return err
	}
	x.Send(records)
	return x.Commit(next)
}

// LeaderEpoch returns the leader epoch to which the next transaction will write, or a lower one, such as -1.
func (t *Txn) LeaderEpoch(topic string, partition int32) int32 {
	if t.next >= len(t.cls) {
		return -1
	}
	_, epoch, _ := t.cls[t.next].PartitionLeader(topic, partition) // an error says that it has no leader now
	return epoch
}

// Begin opens a transaction, for one goroutine; Commit or Drop ends it. It fails when the broker aborts it by timeout.
func (t *Txn) Begin(ctx context.Context) (*Transaction, error) {
	if len(t.cls) < len(t.opts.IDs) {
		return nil, fmt.Errorf("transactional id %s is closed; it must be fenced again", t.opts.IDs[0])
	}
	x := &Transaction{t: t, cl: t.cls[t.next], sent: make(chan struct{})}
	if err := x.cl.BeginTransaction(); err != nil {
		return nil, fmt.Errorf("beginning a transaction of %s: %w", x.cl.id, asFenced(err))
	}
	x.ctx, x.cancel = context.WithTimeout(ctx, t.opts.Timeout)
	x.left.Store(1) // until nothing more is sent
	return x, nil
}

// Transaction is an open transaction.
type Transaction struct {
	t      *Txn
	cl     *idClient
	ctx    context.Context
	cancel context.CancelFunc
	any    *kgo.Record // any that was sent

	left  atomic.Int64  // records that are not acknowledged yet, plus 1 while more may be sent
	sent  chan struct{} // closed when left is 0
	first struct {
		sync.Once
		err error // of a record
	}
}

// Send passes records to the client, which owns them until Commit returns, or forever if Commit fails.
func (x *Transaction) Send(records []*kgo.Record) {
	x.left.Add(int64(len(records)))
	now, acknowledged := time.Now(), x.acknowledged // bound once, not for each record
	for _, rec := range records {
		x.any = rec
		if rec.Timestamp.IsZero() {
			rec.Timestamp = now // the client would read the clock for each
		}
		x.cl.Produce(x.ctx, rec, acknowledged)
	}
}

func (x *Transaction) acknowledged(_ *kgo.Record, err error) {
	if err != nil {
		x.first.Do(func() { x.first.err = err })
	}
	if x.left.Add(-1) == 0 {
		close(x.sent)
	}
}

// Commit waits for the records and commits them, with next as the group's position. At least one record is needed: a
// transaction of offsets alone is silently dropped by the client. On success each has its offset. The next transaction
// must not begin before: what follows a transaction of unknown outcome could be committed without it.
func (x *Transaction) Commit(next Position) error {
	defer x.cancel()
	t := x.t
	if x.any == nil {
		return errors.New("a transaction needs a record")
	}
	if err := x.commit(next); err != nil {
		t.Close()
		return err
	}
	t.next = (t.next + 1) % t.inUse
	return nil
}

func (x *Transaction) commit(next Position) error {
	if err := x.wait(); err != nil {
		return fmt.Errorf("producing in a transaction of %s: %w", x.cl.id, asFenced(err))
	}
	if err := x.cl.check(x.ctx, x.t.outputs); err != nil {
		return err
	}
	if err := AddOffset(x.ctx, x.cl, x.cl.id, x.t.opts.Group, x.t.opts.Source, next); err != nil {
		return fmt.Errorf("committing the offset in a transaction of %s: %w", x.cl.id, asFenced(err))
	}
	if err := CommitTransaction(x.ctx, x.cl, x.any.Topic, x.any.Partition); err != nil {
		return fmt.Errorf("committing a transaction of %s: %w", x.cl.id, asFenced(err))
	}
	return nil
}

// check compares the outputs with the topics that exist, after the client has first written to them. From then on the
// client itself sticks to their ids.
func (c *idClient) check(ctx context.Context, outputs Topics) error {
	if c.checked || len(outputs.ByName) == 0 {
		return nil
	}
	now, err := LookUpTopics(ctx, c, slices.Collect(maps.Keys(outputs.ByName))...)
	if err != nil {
		return err
	}
	for name, topic := range outputs.ByName {
		if now.ByName[name].ID != topic.ID {
			return fmt.Errorf("writing to %s: %w", name, ErrRecreated)
		}
	}
	c.checked = true
	return nil
}

// Drop abandons the transaction. The Txn is closed then, as after an error of Commit.
func (x *Transaction) Drop() {
	x.cancel()
	x.t.Close()
	_ = x.wait() // returns when the client has released all records
}

// wait waits until all records are acknowledged or failed. For a record in flight the client waits even if ctx ends
// (its sequence number is used), so that giving up means closing the client, which fails the rest.
func (x *Transaction) wait() error {
	x.acknowledged(nil, nil) // nothing more is sent
	select {
	case <-x.sent:
	case <-x.ctx.Done():
		x.t.Close()
		<-x.sent
	}
	if err := x.ctx.Err(); err != nil && !errors.Is(asFenced(x.first.err), ErrFenced) {
		return err
	}
	return x.first.err // fencing takes precedence, however late it was reported
}

// CommitTransaction commits a transaction in which a record was produced to a partition.
//
// A client that has just learned of a topic sends the records that waited for it, and only then registers the topic's
// partitions (kgo 1.22.3, storePartitionsUpdate). If the records are acknowledged before that, EndTransaction finds no
// partition that was written to, aborts, and reports success. So it is called only once the client knows the partition.
func CommitTransaction(ctx context.Context, cl TxnClient, topic string, partition int32) error {
	for {
		if leader, _, err := cl.PartitionLeader(topic, partition); leader >= 0 || err != nil {
			return cl.EndTransaction(ctx, kgo.TryCommit)
		}
		if !Sleep(ctx, time.Millisecond) {
			return fmt.Errorf("the client has no metadata of %s/%d: %w", topic, partition, ctx.Err())
		}
	}
}

// AddOffset adds the group's position to the open transaction of id. It is a raw request, since the client only commits
// for its own group. Under transaction.version 2 this adds the group to the transaction too. It names no member: the
// partition outlives generations, and the transactional id fences. Kafka accepts that while the group has members.
func AddOffset(ctx context.Context, cl TxnClient, id, group string, source LogPartition, next Position) error {
	producerID, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = id, group
	req.ProducerID, req.ProducerEpoch = producerID, epoch
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = source.Topic, source.TopicID
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch = source.Partition, next.Offset, next.Epoch
	if next.Metadata != "" {
		rp.Metadata = &next.Metadata
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	for backoff := 10 * time.Millisecond; ; backoff = min(2*backoff, time.Second) {
		err := txnOffsetAnswer(req.RequestWith(ctx, cl))
		// The previous transaction may be completing (which kerr does not call retriable), or the coordinator moving.
		retry := kerr.IsRetriable(err) || errors.Is(err, kerr.ConcurrentTransactions)
		if !retry || !Sleep(ctx, backoff) {
			return err
		}
	}
}

func txnOffsetAnswer(resp *kmsg.TxnOffsetCommitResponse, err error) error {
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("the response to an offset commit of one partition has %d topics", len(resp.Topics))
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// Close closes the clients without ending an open transaction, and waits for that. It may be called again.
func (t *Txn) Close() {
	for _, cl := range t.cls {
		cl.Close()
	}
	t.cls = nil
}
