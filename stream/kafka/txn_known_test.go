package kafka

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

// slowNotes is a client that blocks, on learning of a topic, between sending the records that waited for it and
// registering its partitions, until asked about those. Its partitioner blocks it, so both records wait for the topic.
type slowNotes struct {
	*kgo.Client
	once  sync.Once
	asked chan struct{}
}

func (c *slowNotes) goOn() { c.once.Do(func() { close(c.asked) }) }

func (c *slowNotes) PartitionLeader(topic string, partition int32) (leader, epoch int32, err error) {
	defer c.goOn()
	return c.Client.PartitionLeader(topic, partition)
}

// A client that learns of its topic in the first transaction must not abort it as empty and report it as committed.
func TestCommitToAnUnknownTopic(t *testing.T) {
	c := txnCluster(t)
	ctx := testkit.Context(t)
	cl := &slowNotes{asked: make(chan struct{})}
	waits := testkit.Record(output, 0, "k", "waits")
	var err error
	cl.Client, err = c.kafka.newTxnClient(testkit.Log(), txnID, &TxnOptions{Timeout: testkit.Patience},
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
			return func(rec *kgo.Record, n int) int {
				if rec != waits {
					return 0
				}
				select {
				case <-cl.asked:
				case <-ctx.Done():
				}
				return n // there is no such partition: it is not sent
			}
		})))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	t.Cleanup(cl.goOn)
	require.NoError(t, cl.BeginTransaction())
	produced := make(chan struct{})
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		select {
		case <-produced:
		case <-ctx.Done():
		}
		return nil, nil, false
	})
	acknowledged := make(chan error, 1)
	cl.Produce(ctx, testkit.Record(output, 0, "k", "1"), func(_ *kgo.Record, err error) { acknowledged <- err })
	cl.Produce(ctx, waits, func(*kgo.Record, error) {})
	close(produced)
	require.NoError(t, <-acknowledged)
	require.NoError(t, CommitTransaction(ctx, cl, output, 0))
	require.Equal(t, []string{"1"}, c.values(output, 0))
}

type neverKnows struct{ TxnClient } // it never learns of a partition

func (neverKnows) PartitionLeader(string, int32) (leader, epoch int32, err error) { return -1, -1, nil }

// If the client does not learn of the partition in time, nothing is committed.
func TestCommitGivesUp(t *testing.T) {
	_, _, tx := fencedCluster(t)
	late := errors.New("too late")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	cancel(late)
	require.ErrorContains(t, CommitTransaction(ctx, neverKnows{tx.cls[0]}, output, 0), "has no metadata of output/0")
}
