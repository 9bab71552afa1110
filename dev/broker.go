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

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BrokerOptions of the embedded Kafka broker.
type BrokerOptions struct {
	// Address to listen on, host:port; port 0 takes a free one. It is also what
	// clients are told to connect to, so its host must be one that they can reach.
	Address string `mapstructure:"address"`
	// ClusterID is what the broker calls its cluster. Empty: a new one every time, as
	// the data is new every time.
	ClusterID string `mapstructure:"cluster_id"`
	// SegmentBytes is the size of a log segment. The space of deleted records comes back
	// by whole segments.
	SegmentBytes int `mapstructure:"segment_bytes"`
	// DataDir is the directory of topics, logs, offsets and transactional ids. A broker
	// that was closed comes up with all of it. One that was killed may have lost a part of
	// the transaction that it was ending. Empty: everything is in memory.
	DataDir string `mapstructure:"data_dir"`
}

// DefaultBrokerOptions listen on Kafka's port, on this machine only.
func DefaultBrokerOptions() BrokerOptions {
	return BrokerOptions{Address: "127.0.0.1:9092", SegmentBytes: 256 << 10}
}

// Validate says what is wrong with the options, all of it.
func (o BrokerOptions) Validate() error {
	var errs []error
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		errs = append(errs, fmt.Errorf("address %q is not host:port: %w", o.Address, err))
	} else if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		errs = append(errs, fmt.Errorf("address %q names no host; Kafka tells it to its clients, so give one that they can reach", o.Address))
	}
	if o.SegmentBytes < 1<<10 {
		errs = append(errs, fmt.Errorf("segment_bytes is %d; it must be at least 1024", o.SegmentBytes))
	}
	return errors.Join(errs...)
}

// Broker is a Kafka cluster of one node in this process: franz-go's kfake. It has no
// topics until somebody creates them (replication factor 1).
//
// It has transactions as Kafka has them since transaction.version 2, classic groups,
// topic ids, control records and the last stable offset. Not as a real broker:
//   - Records keep the time that their producer gave them, also where a topic says
//     LogAppendTime. Producer and broker share a clock here, and no part of kudos sets
//     the time of a record.
//   - It compacts nothing, and applies no retention: kfake would compact records of open
//     transactions and what is younger than min.compaction.lag.ms, would keep every
//     commit marker for good, and would delete what nobody has read. Trimmer and
//     Compactor take their place.
//   - A producer that comes back with an old epoch is given a new one, rather than
//     fenced.
type Broker struct {
	options BrokerOptions
	log     *slog.Logger
	cluster *kfake.Cluster
	address string
	held    atomic.Pointer[hold] // nil: no partition is held
}

// never is, in milliseconds, an interval that does not pass.
const never = int64(365 * 24 * time.Hour / time.Millisecond)

// NewBroker makes the broker; nothing listens yet.
func NewBroker(o BrokerOptions, log *slog.Logger) *Broker {
	return &Broker{options: o, log: log}
}

// Start listens and serves. After it, Run must be called, which ends what Start has
// started.
func (b *Broker) Start() error {
	if err := b.options.Validate(); err != nil {
		return fmt.Errorf("embedded Kafka: %w", err)
	}
	id := b.options.ClusterID
	if id == "" {
		id = newClusterID()
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID(id),
		kfake.WithLogger(brokerLogger{b.log.With("component", "embedded kafka")}),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return net.Listen("tcp", b.options.Address) }),
		kfake.BrokerConfigs(map[string]string{
			"log.segment.bytes": strconv.Itoa(b.options.SegmentBytes),
			// The pass that compacts and applies retention.
			"log.cleaner.backoff.ms": strconv.FormatInt(never, 10),
		}),
	}
	if b.options.DataDir != "" {
		opts = append(opts, kfake.DataDir(b.options.DataDir))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return fmt.Errorf("embedded Kafka cannot listen on %s: %w (give another address, or port 0 for any free one)", b.options.Address, err)
	}
	b.cluster = cluster
	cluster.ControlKey(int16(kmsg.Produce), b.waitWhileHeld)
	b.address = cluster.ListenAddrs()[0]
	return nil
}

// newClusterID makes an id of the form that Kafka's own have.
func newClusterID() string {
	var id [16]byte
	rand.Read(id[:])
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Address is where the broker listens, host:port. Known after Start.
func (b *Broker) Address() string { return b.address }

// size is how many bytes a partition's log has.
func (b *Broker) size(topic string, partition int32) int64 {
	p := b.cluster.PartitionInfo(topic, partition)
	if p == nil {
		return 0
	}
	return p.NumBytes
}

// Run serves until ctx ends, and closes the broker. Its connections are cut; their
// goroutines end right after.
func (b *Broker) Run(ctx context.Context) error {
	<-ctx.Done()
	b.cluster.Close()
	return nil
}

// brokerLogger takes what kfake says. It warns of what is a client's right (a
// transaction that timed out), so that nothing of it is above information.
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
