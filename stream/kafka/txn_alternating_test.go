package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

var bothIDs = []string{txnID, txnID + "-second"}

// alternating returns a Txn with two ids, fenced.
func (c *cluster) alternating(m Member) *Txn {
	tx := c.txn(m, func(o *TxnOptions) { o.IDs = bothIDs })
	require.NoError(c.t, tx.Fence(testkit.Context(c.t)))
	return tx
}

// seen lists the transactional ids of requests of a kind, in order of arrival.
func (c *cluster) seen(key kmsg.Key) func() []string {
	var mu sync.Mutex
	var ids []string
	c.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		switch r := req.(type) {
		case *kmsg.EndTxnRequest:
			ids = append(ids, r.TransactionalID)
		case *kmsg.InitProducerIDRequest:
			if r.TransactionalID != nil {
				ids = append(ids, *r.TransactionalID)
			}
		}
		return nil, nil, false
	})
	return func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(ids) }
}

// All ids are initialized in order. The first transaction uses the first one, whatever was used before.
func TestIDsAreUsedInTurn(t *testing.T) {
	c := txnCluster(t)
	m, _ := c.join()
	inits, ends := c.seen(kmsg.InitProducerID), c.seen(kmsg.EndTxn)
	tx, n := c.alternating(m), int64(0)
	commit := func(times int) {
		for range times {
			n++
			require.NoError(t, tx.Commit(testkit.Context(t), pair(fmt.Sprint(n)), Position{Offset: n}))
		}
	}
	require.Equal(t, bothIDs, inits())
	commit(2)
	tx.Alternate(true)
	commit(3)
	require.NoError(t, tx.Fence(testkit.Context(t)))
	tx.Alternate(true)
	commit(2)
	tx.Alternate(false)
	require.Equal(t, append(bothIDs, bothIDs...), inits())
	first, second := bothIDs[0], bothIDs[1]
	require.Equal(t, []string{first, first, first, second, first, first, second}, ends())
	c.requireVisible(7, "1", "2", "3", "4", "5", "6", "7", "1", "2", "3", "4", "5", "6", "7")
}

// A takeover aborts what was left open under the second id too, and that cannot be committed any more.
func TestSecondIDIsFenced(t *testing.T) {
	c := txnCluster(t)
	m, _ := c.join()
	zombie := c.alternating(m)
	zombie.Alternate(true)
	require.NoError(t, zombie.Commit(testkit.Context(t), pair("before"), Position{Offset: 1}))
	open, err := zombie.Begin(testkit.Context(t))
	require.NoError(t, err)
	open.Send(pair("left open"))

	owner := c.alternating(m)
	c.requireVisible(1, "before", "before")
	require.ErrorIs(t, open.Commit(Position{Offset: 9}), ErrFenced)
	require.NoError(t, owner.Commit(testkit.Context(t), pair("after"), Position{Offset: 2}))
	c.requireVisible(2, "before", "after", "before", "after")
}

// A tool takes both ids from the owner, like another owner.
func TestToolFencesAllIDs(t *testing.T) {
	c := txnCluster(t)
	m, _ := c.join()
	for n := range 2 {
		owner := c.alternating(m)
		owner.Alternate(true)
		for i := range n {
			require.NoError(t, owner.Commit(testkit.Context(t), pair("a"), Position{Offset: int64(i)}))
		}
		tool, err := c.kafka.NewFencingClient(testkit.Context(t), testkit.Log(), bothIDs)
		require.NoError(t, err)
		defer tool.Close()
		require.ErrorIs(t, owner.Commit(testkit.Context(t), pair("b"), Position{Offset: 9}), ErrFenced)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: bothIDs[1], Err: kerr.InvalidTransactionTimeout})
	_, err := c.kafka.NewFencingClient(testkit.Context(t), testkit.Log(), bothIDs)
	require.ErrorContains(t, err, "initializing transactional id "+bothIDs[1])
}

// What follows a transaction of unknown outcome must not be committed: the Txn is closed, both ids of it.
func TestErrorClosesAllIDs(t *testing.T) {
	c := txnCluster(t)
	m, _ := c.join()
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.EndTxn} {
		tx := c.alternating(m)
		tx.Alternate(true)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.UnknownServerError})
		require.Error(t, tx.Commit(testkit.Context(t), pair("a"), Position{Offset: 1}), key)
		require.Empty(t, tx.cls)
		require.ErrorContains(t, tx.Commit(testkit.Context(t), pair("b"), Position{Offset: 2}), "must be fenced again")
	}
	tx := c.alternating(m)
	tx.Alternate(true)
	x, err := tx.Begin(testkit.Context(t))
	require.NoError(t, err)
	x.Drop()
	require.ErrorContains(t, tx.Commit(testkit.Context(t), pair("b"), Position{Offset: 2}), "must be fenced again")
	c.requireVisible(-1)
}

// leavingKafka leaves the group before the client of the second id connects.
type leavingKafka struct {
	Clients
	leave func()
}

func (k leavingKafka) ConnectTxn(log *slog.Logger, id string, opts *TxnOptions) (TxnClient, error) {
	if id == bothIDs[1] {
		k.leave()
	}
	return k.Clients.ConnectTxn(log, id, opts)
}

// The membership is checked before each id: one that ends in between must not take the second id from the new owner.
func TestMembershipEndsBetweenTheIDs(t *testing.T) {
	c := txnCluster(t)
	m, leave := c.join()
	inits := c.seen(kmsg.InitProducerID)
	late := c.txn(m, func(o *TxnOptions) { o.IDs, o.Kafka = bothIDs, leavingKafka{c.kafka, leave} })
	require.ErrorIs(t, late.Fence(testkit.Context(t)), ErrFenced)
	require.Equal(t, bothIDs[:1], inits())
	require.ErrorContains(t, late.Commit(context.Background(), pair("a"), Position{Offset: 1}), "must be fenced again")
}

// The version of transactions may be downgraded while the owner runs.
func TestFenceAfterADowngrade(t *testing.T) {
	_, _, tx := fencedCluster(t)
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{
		{Feature: "transaction.version", MaxVersionLevel: 1, UpgradeType: 2}}
	_, err := req.RequestWith(testkit.Context(t), tx.Client())
	require.NoError(t, err)
	require.ErrorContains(t, tx.Fence(testkit.Context(t)), "the cluster's transaction.version is below 2")
}

// Kafka forgets an id that was not used for long. Nobody else has taken the partition: it is fenced again.
func TestExpiredIDIsNotFenced(t *testing.T) {
	c, m, tx := fencedCluster(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidProducerIDMapping})
	err := tx.Commit(testkit.Context(t), pair("a"), Position{Offset: 1})
	require.ErrorIs(t, err, kerr.InvalidProducerIDMapping)
	require.NotErrorIs(t, err, ErrFenced)
	require.NoError(t, c.fenced(m).Commit(testkit.Context(t), pair("b"), Position{Offset: 1}))
	c.requireVisible(1, "b", "b")
}
