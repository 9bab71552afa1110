//go:build !nodev

package dev

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// BrokerAddress is the default address of the embedded broker: Kafka's port, on the loopback interface.
const BrokerAddress = "127.0.0.1:9092"

// Broker is a single-node Kafka in this process (franz-go's kfake), at first without topics. Replication factor is 1.
//
// It has transactions as in Kafka since transaction.version 2, classic groups, topic ids, control records and the last
// stable offset. It differs from a real broker:
//   - Records keep the producer's timestamp, even in topics with LogAppendTime. Producer and broker share a clock here,
//     and no part of kudos sets the timestamp of a record.
//   - kfake's compaction and retention are off: they would compact records of open transactions and records younger
//     than min.compaction.lag.ms, keep every commit marker forever, and delete unread records. A cleaner replaces both.
//   - A producer that returns with an old epoch gets a new one; it is not fenced.
type Broker struct {
	log     *slog.Logger
	cluster *kfake.Cluster
	address string
	held    atomic.Pointer[hold] // nil: no partition is held
}

const (
	// segmentBytes is small because the space of deleted records is freed segment by segment.
	segmentBytes = 256 << 10
	never        = int64(365 * 24 * time.Hour / time.Millisecond) // an interval in milliseconds that does not elapse
)

// StartBroker listens on address (port 0: any free port) and serves; call Run to shut it down. Clients are told to
// connect to the same host. dataDir has topics, logs, offsets and transactional ids ("": all in memory): a closed
// broker restarts with all of it, a killed one may have lost part of the transaction that it was ending.
func StartBroker(address, dataDir string, log *slog.Logger) (*Broker, error) {
	if host, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("embedded Kafka: address %q is not host:port: %w", address, err)
	} else if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return nil, fmt.Errorf("embedded Kafka: address %q names no host; "+
			"Kafka advertises it to clients, so use one that they can reach", address)
	}
	var id [16]byte // a new one each time, in Kafka's format
	rand.Read(id[:])
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID(base64.RawURLEncoding.EncodeToString(id[:])),
		kfake.WithLogger(brokerLogger{log.With("component", "embedded kafka")}),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return net.Listen("tcp", address) }),
		kfake.BrokerConfigs(map[string]string{
			"log.segment.bytes": strconv.Itoa(segmentBytes),
			// Turns compaction and retention off.
			"log.cleaner.backoff.ms": strconv.FormatInt(never, 10),
		}),
	}
	if dataDir != "" {
		opts = append(opts, kfake.DataDir(dataDir))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		const help = "(use another address, or port 0 for any free port)"
		return nil, fmt.Errorf("embedded Kafka cannot listen on %s: %w %s", address, err, help)
	}
	b := &Broker{log: log, cluster: cluster, address: cluster.ListenAddrs()[0]}
	cluster.ControlKey(int16(kmsg.Produce), b.waitWhileHeld)
	return b, nil
}

// Address is where the broker listens, host:port.
func (b *Broker) Address() string { return b.address }

// Run serves until ctx ends, and trims and compacts the logs. Then it closes the broker and its connections; their
// goroutines end shortly after.
func (b *Broker) Run(ctx context.Context) error {
	defer b.cluster.Close()
	c, err := newCleaner(b)
	if err == nil {
		c.run(ctx, cleanInterval)
	}
	return err
}

func (b *Broker) kafka() kafka.Options {
	o := kafka.DefaultOptions()
	o.Brokers = []string{b.address}
	return o
}

// EndKilledTransactions writes abort markers for the transactions that were open when the broker was killed. Call it
// before anybody writes. kfake aborts the records of such a transaction when it loads them, but does not persist that:
// after another kill it would take them for part of the next transaction of the same id, and commit them with it.
func (b *Broker) EndKilledTransactions(ctx context.Context) error {
	cl, err := b.kafka().NewClient(b.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	transactions, err := admin.DescribeTransactions(ctx) // all
	if err != nil {
		return fmt.Errorf("listing transactional ids: %w", err)
	}
	var markers []kadm.TxnMarkers
	for _, t := range transactions.Sorted() {
		if t.Err != nil {
			return fmt.Errorf("transactional id %s: %w", t.TxnID, t.Err)
		}
		// A marker has no effect if nothing is open.
		markers = append(markers, kadm.TxnMarkers{ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch,
			Topics: topics.TopicsSet()})
	}
	if len(markers) == 0 {
		return nil
	}
	written, err := admin.WriteTxnMarkers(ctx, markers...)
	if err != nil {
		return fmt.Errorf("writing abort markers: %w", err)
	}
	var errs []error
	written.EachPartition(func(p kadm.TxnMarkersPartitionResponse) {
		if p.Err != nil {
			errs = append(errs, fmt.Errorf("writing an abort marker to %s/%d: %w", p.Topic, p.Partition, p.Err))
		}
	})
	return errors.Join(errs...)
}

// brokerLogger caps kfake's log lines at info: kfake warns of normal events, such as a transaction that times out.
type brokerLogger struct{ log *slog.Logger }

func (l brokerLogger) Logf(level kfake.LogLevel, format string, args ...any) {
	to := slog.LevelDebug
	if level == kfake.LogLevelError || level == kfake.LogLevelWarn {
		to = slog.LevelInfo
	}
	if l.log.Enabled(context.Background(), to) {
		l.log.Log(context.Background(), to, fmt.Sprintf(format, args...))
	}
}
