package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options configures how this process connects to Kafka. All its clients are built from it.
type Options struct {
	Brokers        []string      `mapstructure:"brokers"`         // bootstrap addresses, host:port
	ClientID       string        `mapstructure:"client_id"`       // the clients' name in the brokers' logs and quotas
	DialTimeout    time.Duration `mapstructure:"dial_timeout"`    // bounds one connection attempt
	RequestTimeout time.Duration `mapstructure:"request_timeout"` // bounds one request, including its retries

	// TLS encrypts connections and verifies brokers, by the certificates in TLSCA or else the system's. TLSCert and
	// TLSKey are the client's own, for brokers that require one. All are PEM files, read again for each connection.
	TLS           bool   `mapstructure:"tls"`
	TLSCA         string `mapstructure:"tls_ca"`
	TLSCert       string `mapstructure:"tls_cert"`
	TLSKey        string `mapstructure:"tls_key"`
	SASLMechanism string `mapstructure:"sasl_mechanism"` // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty: none
	SASLUser      string `mapstructure:"sasl_user"`
	// SASLPassword must never be printed. Package config reads it from SASLPasswordFile, if that is set.
	SASLPassword     string `mapstructure:"sasl_password"`
	SASLPasswordFile string `mapstructure:"sasl_password_file"`

	Hooks []kgo.Hook `mapstructure:"-"` // observe the clients; not a setting
}

// DefaultOptions are for a broker on this machine.
func DefaultOptions() Options {
	return Options{Brokers: []string{"127.0.0.1:9092"}, ClientID: "kudos", DialTimeout: 5 * time.Second,
		RequestTimeout: 30 * time.Second}
}

// Validate returns all that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if len(o.Brokers) == 0 {
		errs = append(errs, errors.New("kafka.brokers: at least one host:port is needed"))
	}
	for _, b := range o.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			errs = append(errs, fmt.Errorf("kafka.brokers: %q is not host:port: %w", b, err))
		}
	}
	if o.DialTimeout <= 0 || o.RequestTimeout <= 0 {
		errs = append(errs, errors.New("kafka.dial_timeout and kafka.request_timeout must be above zero"))
	}
	return errors.Join(append(errs, o.files().Validate(o.TLS), o.validateSASL())...)
}

// NewClient returns a client with these options and extra ones. It connects on first use; Close it.
func (o Options) NewClient(log *slog.Logger, extra ...kgo.Opt) (*kgo.Client, error) {
	if err := o.CheckFiles(); err != nil {
		return nil, err
	}
	clientLog := newClientLog(log.With("component", "kafka"))
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID(o.ClientID),
		kgo.WithLogger(clientLog),
		kgo.DisableClientMetrics(),
		kgo.WithHooks(append(o.Hooks[:len(o.Hooks):len(o.Hooks)], clientLog)...),
		kgo.Dialer(o.dial),
		kgo.RetryTimeout(o.RequestTimeout),
		// This is how soon a new leader is found; the client's default of 5 s would be as long an outage.
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	if mechanism := o.mechanism(); mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client for %v: %w", o.Brokers, err)
	}
	return cl, nil
}

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

func (o Options) newTxnClient(log *slog.Logger, id string, opts *TxnOptions, extra ...kgo.Opt) (*kgo.Client, error) {
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
