package kafka

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Clients creates the clients of workers. Options does so for real brokers.
type Clients interface {
	Connect(log *slog.Logger) (Client, error) // for requests of any kind
	// ConnectTxn is for one of the transactional ids of the options.
	ConnectTxn(log *slog.Logger, id string, opts *TxnOptions) (TxnClient, error)
}

// Client is the part of a *kgo.Client that workers use for requests. Close it.
type Client interface {
	kmsg.Requestor
	Close()
}

// TxnClient is the part of a transactional *kgo.Client that Txn uses.
type TxnClient interface {
	Client
	ProducerID(ctx context.Context) (id int64, epoch int16, err error)
	BeginTransaction() error
	Produce(ctx context.Context, rec *kgo.Record, promise func(*kgo.Record, error))
	EndTransaction(ctx context.Context, end kgo.TransactionEndTry) error
	PartitionLeader(topic string, partition int32) (leader, epoch int32, err error)
}

var _ Clients = Options{}

// Connect returns a client with these options. After an error it is not to be used, though not nil.
func (o Options) Connect(log *slog.Logger) (Client, error) { return o.NewClient(log) }

// ConnectTxn returns a client for the transactions of one transactional id. After an error it is as of Connect.
func (o Options) ConnectTxn(log *slog.Logger, id string, opts *TxnOptions) (TxnClient, error) {
	return o.newTxnClient(log, id, opts)
}

func (o Options) newTxnClient(
	log *slog.Logger, id string, opts *TxnOptions, extra ...kgo.Opt,
) (*kgo.Client, error) {
	return o.NewClient(log, append([]kgo.Opt{
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(opts.Timeout),
		// An undeliverable record fails before the broker aborts the transaction, not after.
		kgo.RecordDeliveryTimeout(opts.Timeout * 2 / 3),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0),
		// A transaction that begins before the previous one of its id is complete is rejected, briefly. The client's
		// default waits for 250 ms.
		kgo.RetryBackoffFn(func(fails int) time.Duration {
			return min(10*time.Millisecond<<min(max(fails-1, 0), 7), time.Second)
		}),
		kgo.MaxBufferedRecords(1 << 30), // a batch of the worker is one transaction: all of it is buffered
		// Not lz4: its writer allocates a buffer of 4 MiB for every batch.
		kgo.ProducerBatchCompression(kgo.SnappyCompression(), kgo.NoCompression()),
		kgo.ProducerBatchMaxBytesFn(opts.batchMaxBytes),
	}, extra...)...)
}

const defaultBatchMaxBytes = 1_000_000 // below the default max.message.bytes

func (o *TxnOptions) batchMaxBytes(topic string) int32 {
	if o.BatchMaxBytes != nil {
		if n := o.BatchMaxBytes(topic); n > 0 {
			return n
		}
	}
	return defaultBatchMaxBytes
}
