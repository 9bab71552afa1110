package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

func refusal(key kmsg.Key, err *kerr.Error) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{key}, Err: err, TopLevel: key == kmsg.EndTxn || key == kmsg.InitProducerID}
}

// Whichever step fails, request or response: after Fence, a transaction is visible whole or not at all; the next works.
func TestFailedCommitLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	lost := func(key kmsg.Key, answer bool) func(*cluster, *testkit.Wire) {
		return func(c *cluster, w *testkit.Wire) {
			done := false
			c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
				if done {
					return nil, nil, false
				}
				done = true
				if answer {
					w.Cut.Store(true)
					return nil, nil, false
				}
				return nil, errors.New("cut"), true
			})
		}
	}
	refused := func(key kmsg.Key, err *kerr.Error) func(*cluster, *testkit.Wire) {
		return func(c *cluster, _ *testkit.Wire) { c.Fault(refusal(key, err)) }
	}
	const produce, offset = kmsg.Produce, kmsg.TxnOffsetCommit
	for name, tc := range map[string]struct {
		break_ func(*cluster, *testkit.Wire)
		// what Commit must say; "": either, since the client may find out
		want error
	}{
		"produce rejected": {func(c *cluster, _ *testkit.Wire) {
			f := refusal(kmsg.Produce, kerr.InvalidRecord)
			f.Partitions = []int32{1}
			c.Fault(f)
		}, kerr.InvalidRecord},
		"produce forbidden":         {refused(produce, kerr.TopicAuthorizationFailed), kerr.TopicAuthorizationFailed},
		"produce fenced":            {refused(produce, kerr.InvalidProducerEpoch), ErrFenced},
		"produce request lost":      {lost(produce, false), nil},
		"produce response lost":     {lost(produce, true), nil},
		"offset rejected":           {refused(offset, kerr.GroupAuthorizationFailed), kerr.GroupAuthorizationFailed},
		"offset of a former member": {refused(offset, kerr.UnknownMemberID), ErrFenced},
		"offset during a rebalance": {refused(offset, kerr.RebalanceInProgress), ErrFenced},
		"offset response lost":      {lost(offset, true), nil},
		"offset request lost":       {lost(offset, false), nil},
		"end fenced":                {refused(kmsg.EndTxn, kerr.ProducerFenced), ErrFenced},
		"end rejected":              {refused(kmsg.EndTxn, kerr.InvalidTxnState), kerr.InvalidTxnState},
		"end unknown error":         {refused(kmsg.EndTxn, kerr.UnknownServerError), kerr.UnknownServerError},
		"end request lost":          {lost(kmsg.EndTxn, false), nil},
		"end response lost":         {lost(kmsg.EndTxn, true), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := &testkit.Wire{}
			c, _, tx := fencedCluster(t, w.Option())
			require.NoError(t, tx.Commit(testkit.Context(t), pair("1"), Position{Offset: 1}))

			tc.break_(c, w)
			err := tx.Commit(testkit.Context(t), pair("2"), Position{Offset: 2})
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
			}
			require.NoError(t, tx.Fence(testkit.Context(t)), "Fence resolves it")
			values, offset := c.visible()
			if err == nil || offset == 2 {
				require.EqualValues(t, 2, offset)
				require.Equal(t, []string{"1", "2", "1", "2"}, values)
			} else {
				require.EqualValues(t, 1, offset)
				require.Equal(t, []string{"1", "1"}, values)
			}
			require.NoError(t, tx.Commit(testkit.Context(t), pair("3"), Position{Offset: 3}))
			after, offset := c.visible()
			require.EqualValues(t, 3, offset)
			require.Len(t, after, len(values)+2)
		})
	}
}

func TestCommitIsRetried(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]kfake.Fault{
		"offset, previous transaction still ending":  refusal(kmsg.TxnOffsetCommit, kerr.ConcurrentTransactions),
		"offset, coordinator loading":                refusal(kmsg.TxnOffsetCommit, kerr.CoordinatorLoadInProgress),
		"offset, coordinator moved":                  refusal(kmsg.TxnOffsetCommit, kerr.NotCoordinator),
		"end, previous transaction still ending":     refusal(kmsg.EndTxn, kerr.ConcurrentTransactions),
		"end, coordinator loading":                   refusal(kmsg.EndTxn, kerr.CoordinatorLoadInProgress),
		"end, coordinator moved":                     refusal(kmsg.EndTxn, kerr.NotCoordinator),
		"produce, previous transaction still ending": refusal(kmsg.Produce, kerr.ConcurrentTransactions),
		"produce, leader moved":                      refusal(kmsg.Produce, kerr.NotLeaderForPartition),
		"produce, too few replicas":                  refusal(kmsg.Produce, kerr.NotEnoughReplicas),
	} {
		t.Run(name, func(t *testing.T) {
			c, _, tx := fencedCluster(t)
			fault := c.Fault(f)
			require.NoError(t, tx.Commit(testkit.Context(t), pair("1"), Position{Offset: 1}))
			require.Equal(t, 1, fault.Hits())
			c.requireVisible(1, "1", "1")
		})
	}
}

func TestFenceIsRetried(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator} {
		t.Run(e.Message, func(t *testing.T) {
			c := txnCluster(t)
			m, _ := c.join()
			fault := c.Fault(refusal(kmsg.InitProducerID, e))
			tx := c.fenced(m)
			require.Equal(t, 1, fault.Hits())
			require.NoError(t, tx.Commit(testkit.Context(t), pair("1"), Position{Offset: 1}))
		})
	}
}

// After the transaction timeout the broker aborts a transaction, and we give up.
func TestRetriesAreBoundedInTime(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]kfake.Fault{
		"init":    refusal(kmsg.InitProducerID, kerr.ConcurrentTransactions),
		"produce": refusal(kmsg.Produce, kerr.NotEnoughReplicas),
		"offset":  refusal(kmsg.TxnOffsetCommit, kerr.ConcurrentTransactions),
		"end":     refusal(kmsg.EndTxn, kerr.ConcurrentTransactions),
	} {
		t.Run(name, func(t *testing.T) {
			c := txnCluster(t)
			m, _ := c.join()
			f.Count = -1
			c.Fault(f)
			tx := c.txn(m, func(o *TxnOptions) { o.Timeout = 1500 * time.Millisecond })
			began := time.Now()
			err := tx.Fence(testkit.Context(t))
			if err == nil {
				err = tx.Commit(testkit.Context(t), pair("1"), Position{Offset: 1})
			}
			require.Error(t, err)
			require.Less(t, time.Since(began), testkit.Patience/2)
		})
	}
}

// Commit ends with its context even if the broker never answers; the client would wait forever for records in flight.
func TestCommitEndsWithItsContext(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.EndTxn} {
		t.Run(key.Name(), func(t *testing.T) {
			w := &testkit.Wire{}
			c, _, tx := fencedCluster(t, w.Option())
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
				w.Mute.Store(true)
				cancel()
				return nil, nil, false
			})
			began := time.Now()
			require.ErrorIs(t, tx.Commit(ctx, pair("1"), Position{Offset: 1}), context.Canceled)
			tx.Close()
			require.Less(t, time.Since(began), testkit.Patience/2)
			w.Mute.Store(false)
			require.NoError(t, tx.Fence(testkit.Context(t)))
			values, offset := c.visible()
			if offset < 0 {
				require.Empty(t, values)
			} else {
				require.Equal(t, []string{"1", "1"}, values)
			}
		})
	}
}

func TestErrorsAreClassified(t *testing.T) {
	for _, e := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.FencedInstanceID,
		kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress} {
		err := asFenced(e)
		require.ErrorIs(t, err, ErrFenced)
		require.ErrorIs(t, err, e)
	}
	// Unclear, but not proof of another owner: Fence asks the group first.
	for _, e := range []error{nil, kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.TransactionAbortable,
		context.Canceled} {
		require.Equal(t, e, asFenced(e))
	}
}

// slowClient answers after the transaction timeout.
type slowClient struct {
	TxnClient
	answer error
}

func (c slowClient) BeginTransaction() error { return nil }
func (c slowClient) Close()                  {}
func (c slowClient) Produce(ctx context.Context, rec *kgo.Record, promise func(*kgo.Record, error)) {
	<-ctx.Done()
	promise(rec, c.answer)
}

// A fenced worker must not take the timeout for an unknown outcome, after which it would initialize the id again. (If
// both happen at once, a select decides by chance, so the test repeats this.)
func TestLateRejectionCountsAsMissed(t *testing.T) {
	for range 20 {
		commit := func(answer error) error {
			tx := NewTxn(TxnOptions{IDs: []string{"a"}, Timeout: time.Millisecond}, testkit.Log())
			tx.cls = []*idClient{{TxnClient: slowClient{answer: answer}}}
			return tx.Commit(context.Background(), pair("a"), Position{Offset: 5})
		}
		require.ErrorIs(t, commit(kerr.InvalidProducerEpoch), ErrFenced)
		require.ErrorIs(t, commit(kgo.ErrClientClosed), context.DeadlineExceeded)
		require.ErrorIs(t, commit(nil), context.DeadlineExceeded)
	}
}
