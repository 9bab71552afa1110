package kafka

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

const (
	testGroup = "group"
	input     = "input"
	output    = "output"
	txnID     = "txn-0"
)

func txnCluster(t testing.TB, opts ...kfake.Opt) *cluster {
	c := newCluster(t, opts...)
	c.Topic(input, 1)
	c.Topic(output, 2)
	return c
}

// join adds a real member to the group, which stays until leave.
func (c *cluster) join() (m Member, leave func()) {
	id, generation, leave := c.Join(testGroup, input)
	return Member{Group: testGroup, ID: id, Generation: generation}, leave
}

func is(m Member) func() (Member, error) { return func() (Member, error) { return m, nil } }

func (c *cluster) txn(m Member, change func(*TxnOptions)) *Txn {
	o := TxnOptions{IDs: []string{txnID}, Member: is(m), Group: m.Group, Timeout: 30 * time.Second, Kafka: c.kafka,
		Source: LogPartition{Topic: input, TopicID: c.TopicInfo(input).TopicID}}
	if change != nil {
		change(&o)
	}
	tx := NewTxn(o, testkit.Log())
	c.t.Cleanup(tx.Close)
	return tx
}

func (c *cluster) fenced(m Member) *Txn {
	tx := c.txn(m, nil)
	require.NoError(c.t, tx.Fence(testkit.Context(c.t)))
	return tx
}

func fencedCluster(t testing.TB, opts ...kfake.Opt) (c *cluster, m Member, tx *Txn) {
	c = txnCluster(t, opts...)
	m, _ = c.join()
	return c, m, c.fenced(m)
}

// visible returns what read_committed consumers see: the output, and the group's offset (-1: none).
func (c *cluster) visible() (values []string, offset int64) {
	cl := c.Client()
	defer cl.Close()
	offset, ok, err := CommittedOffset(testkit.Context(c.t), cl, testGroup, input, 0)
	require.NoError(c.t, err)
	if !ok {
		offset = -1
	}
	return append(c.values(output, 0), c.values(output, 1)...), offset
}

func (c *cluster) requireVisible(offset int64, values ...string) {
	c.t.Helper()
	have, at := c.visible()
	require.Equal(c.t, values, have)
	require.Equal(c.t, offset, at)
}

func pair(value string) []*kgo.Record {
	return []*kgo.Record{testkit.Record(output, 0, "k", value), testkit.Record(output, 1, "k", value)}
}

func TestTransactionIsAtomic(t *testing.T) {
	c, _, tx := fencedCluster(t)
	c.requireVisible(-1)
	for i := range int64(3) {
		records := pair(fmt.Sprint(i))
		require.NoError(t, tx.Commit(testkit.Context(t), records, Position{Offset: 10 * i, Epoch: 2}))
		require.Equal(t, 2*i, records[0].Offset, "each transaction's marker takes one more offset")
	}
	c.requireVisible(20, "0", "1", "2", "0", "1", "2")
	require.EqualValues(t, 2, c.GroupInfo(testGroup).Commits[input][0].LeaderEpoch)
	for p := range int32(2) {
		require.Equal(t, c.End(output, p), c.PartitionInfo(output, p).LastStableOffset, "no transaction is left open")
	}
}

func TestTransactionNeedsARecord(t *testing.T) {
	c, _, tx := fencedCluster(t)
	require.ErrorContains(t, tx.Commit(testkit.Context(t), nil, Position{Offset: 5}), "needs a record")
	c.requireVisible(-1)
	tx.Close()
	tx.Close()
	require.ErrorContains(t, tx.Commit(testkit.Context(t), pair("a"), Position{Offset: 5}), "must be fenced again")
}

// A takeover aborts what the previous owner left open, and its later attempts fail.
func TestZombieIsFenced(t *testing.T) {
	c, m, zombie := fencedCluster(t)
	require.NoError(t, zombie.Commit(testkit.Context(t), pair("before"), Position{Offset: 1}))
	open, err := zombie.Begin(testkit.Context(t))
	require.NoError(t, err)
	open.Send(pair("left open"))
	require.NoError(t, open.wait())

	owner := c.fenced(m)
	c.requireVisible(1, "before", "before")
	require.Equal(t, c.End(output, 0), c.PartitionInfo(output, 0).LastStableOffset,
		"the takeover aborts the open transaction")
	err = AddOffset(testkit.Context(t), zombie.cls[0], txnID, testGroup, zombie.opts.Source, Position{Offset: 9})
	require.ErrorIs(t, asFenced(err), ErrFenced)
	require.Error(t, zombie.cls[0].EndTransaction(testkit.Context(t), kgo.TryCommit), "it was aborted")
	require.NoError(t, owner.Commit(testkit.Context(t), pair("after"), Position{Offset: 2}))

	c.fenced(m)
	err = owner.Commit(testkit.Context(t), pair("from an idle zombie"), Position{Offset: 9})
	require.ErrorIs(t, err, ErrFenced)
	require.ErrorContains(t, err, "producing in a transaction of "+txnID)
	c.fenced(m) // settles what kfake has left open for a zombie
	c.requireVisible(2, "before", "after", "before", "after")
}

// Fencing needs the member id and the generation of the current assignment. A commit does not: the next owner fences.
func TestPastMembershipCannotFence(t *testing.T) {
	c := txnCluster(t)
	m, leave := c.join()
	tx := c.fenced(m)
	require.NoError(t, tx.Commit(testkit.Context(t), pair("a"), Position{Offset: 1}))
	past := m
	past.Generation--
	t.Run("generation", func(t *testing.T) {
		err := c.txn(past, nil).Fence(testkit.Context(t))
		require.ErrorIs(t, err, ErrFenced)
		require.ErrorIs(t, err, kerr.IllegalGeneration)
		tx.opts.Member = is(past)
		require.NoError(t, tx.Commit(testkit.Context(t), pair("b"), Position{Offset: 2}), "nobody else has fenced")
	})
	t.Run("not assigned", func(t *testing.T) {
		err := c.txn(m, func(o *TxnOptions) {
			o.Member = func() (Member, error) { return m, ErrFenced }
		}).Fence(testkit.Context(t))
		require.ErrorIs(t, err, ErrFenced)
	})
	t.Run("member", func(t *testing.T) {
		tx := c.fenced(m)
		leave()
		err := tx.Fence(testkit.Context(t))
		require.ErrorIs(t, err, ErrFenced)
		require.ErrorContains(t, err, "checking membership in group "+testGroup)
	})
	m, _ = c.join()
	c.fenced(m)
	c.requireVisible(2, "a", "b", "a", "b")
}

// A member that was unavailable does not fence the new owner.
func TestRefusedFenceTakesNothing(t *testing.T) {
	c := txnCluster(t)
	m, leave := c.join()
	leave()
	now, _ := c.join()
	owner := c.fenced(now)
	require.ErrorIs(t, c.txn(m, nil).Fence(testkit.Context(t)), ErrFenced)
	require.NoError(t, owner.Commit(testkit.Context(t), pair("a"), Position{Offset: 1}))
}

// Until a rebalance ends, the partition is still ours.
func TestFenceDuringARebalance(t *testing.T) {
	c := txnCluster(t)
	m, _ := c.join()
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.RebalanceInProgress, Count: -1, Group: testGroup})
	c.fenced(m)
}

func TestBatchMaxBytesByTopic(t *testing.T) {
	c := txnCluster(t)
	small, largest := "8192", int32(8000)
	require.NoError(t, c.CreateTopic("small", 1, map[string]string{"max.message.bytes": small}))
	m, _ := c.join()
	noise := rand.NewChaCha8([32]byte{})
	incompressible := func(topic string) (recs []*kgo.Record) {
		for range 100 {
			value := make([]byte, 1000)
			noise.Read(value)
			recs = append(recs, &kgo.Record{Topic: topic, Value: value})
		}
		return recs
	}
	tx := c.fenced(m)
	require.ErrorIs(t, tx.Commit(testkit.Context(t), incompressible("small"), Position{}), kerr.MessageTooLarge)

	var asked []string
	tx = c.txn(m, func(o *TxnOptions) {
		o.BatchMaxBytes = func(topic string) int32 {
			asked = append(asked, topic)
			if topic == "small" {
				return largest
			}
			return 0
		}
	})
	require.NoError(t, tx.Fence(testkit.Context(t)))
	counts := c.CountRequests()
	require.NoError(t, tx.Commit(testkit.Context(t), incompressible("small"), Position{}))
	require.GreaterOrEqual(t, counts.Of(kmsg.Produce), int64(13))
	large := []*kgo.Record{{Topic: output, Value: make([]byte, 2*largest)}}
	noise.Read(large[0].Value)
	require.NoError(t, tx.Commit(testkit.Context(t), large, Position{}), "other topics have the default limit")
	require.Contains(t, asked, "small")
}

// The broker aborts an abandoned transaction after the given timeout, not after the client's default.
func TestTransactionTimeoutIsTheOneGiven(t *testing.T) {
	c := txnCluster(t)
	m, _ := c.join()
	asked := make(chan time.Duration, 1)
	c.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		asked <- time.Duration(req.(*kmsg.InitProducerIDRequest).TransactionTimeoutMillis) * time.Millisecond
		return nil, nil, false
	})
	const timeout = 12_345 * time.Millisecond
	require.NoError(t, c.txn(m, func(o *TxnOptions) { o.Timeout = timeout }).Fence(testkit.Context(t)))
	require.Equal(t, timeout, <-asked)
}
