// Command goka is peer (b): likes counted with stock goka (lovoo/goka, on sarama), as its users write it and at its
// best: one message a callback, SetValue, stores on LevelDB.
//
// The topic likes is keyed by post. SetValue writes the message's key only, so an action is first keyed by its pair:
//
//	likes ─► goka-pairs ──loop──► goka-pairs ─► goka-deltas ─► goka-counts ─► peer.Counts ─► MySQL
//	          re-keys             latest action   +1, −1        count
//	                              of each pair    by post       of each post
//
// The loop topic of goka-pairs does what a processor of its own for re-keying would do, with one group, producer and
// consumer less. Every message is acknowledged by all replicas and offsets are committed after that; those of
// goka-deltas after the count is in MySQL. A crash between SetValue's local write and the commit can still lose or
// repeat a delta, which is the design's: a message is delivered at least once, and a delta is not idempotent.
package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/storage"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"
	"golang.org/x/sync/errgroup"

	"kudos/integration/peers/peer"
)

// startTimeout bounds joining a group and recovering its table.
const startTimeout = 5 * time.Minute

func main() { peer.Main(count, state) }

// count runs both groups until ctx is done. MySQL is written to until they have ended, since they wait for it.
func count(ctx context.Context, p *peer.Peer) error {
	configure()
	if err := createDeltas(p.Brokers); err != nil {
		return err
	}
	c := &callbacks{lines: p.Lines, counts: p.NewCounts(), next: map[place]int64{}}
	g, ctx := errgroup.WithContext(ctx)
	flushing, endFlushing := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return c.counts.Run(flushing) })
	g.Go(func() error { defer endFlushing(); return c.process(ctx, p.Options) })
	return g.Wait()
}

// createDeltas makes the topic between the groups, with as many partitions as likes. The others are made by goka.
func createDeltas(brokers []string) error {
	manager, err := goka.TopicManagerBuilderWithTopicManagerConfig(topicConfig(len(brokers)))(brokers)
	if err != nil {
		return fmt.Errorf("topic manager: %w", err)
	}
	defer manager.Close()
	partitions, err := manager.Partitions(string(likes))
	if err == nil {
		err = manager.EnsureStreamExists(string(deltas), len(partitions))
	}
	if err != nil {
		return fmt.Errorf("create %s like %s: %w", deltas, likes, err)
	}
	return nil
}

// process runs the last group first, so that the clock starts when all are ready.
func (c *callbacks) process(ctx context.Context, o peer.Options) error {
	counting, err := newProcessor(o, c.counting())
	if err != nil {
		return err
	}
	pairs, err := newProcessor(o, c.pairs(), goka.WithRebalanceCallback(func(goka.Assignment) { c.lines.FirstPoll() }))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return counting.Run(ctx) })
	ready, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := counting.WaitForReadyContext(ready); err != nil && ctx.Err() == nil {
		g.Go(func() error { return fmt.Errorf("start group %s: %w", groupCounts, err) })
		return g.Wait()
	}
	g.Go(func() error { return pairs.Run(ctx) })
	return g.Wait()
}

func newProcessor(o peer.Options, graph *goka.GroupGraph, options ...goka.ProcessorOption) (*goka.Processor, error) {
	options = append(options,
		goka.WithStorageBuilder(storage.DefaultBuilder(o.StateDir)),
		goka.WithTopicManagerBuilder(goka.TopicManagerBuilderWithTopicManagerConfig(topicConfig(len(o.Brokers)))),
		goka.WithPartitionChannelSize(partitionChannel),
	)
	p, err := goka.NewProcessor(o.Brokers, graph, options...)
	if err != nil {
		return nil, fmt.Errorf("processor of group %s: %w", graph.Group(), err)
	}
	return p, nil
}

// state is what the table of pairs takes on disk, compacted, and how many pairs are in it. The processors have ended.
func state(_ context.Context, p *peer.Peer) (bytes, pairs int64, err error) {
	stores, err := filepath.Glob(filepath.Join(p.StateDir, string(goka.GroupTable(groupPairs))+".*")) // one a partition
	if err != nil {
		return 0, 0, err
	}
	for _, store := range stores {
		n, err := compact(store)
		if err != nil {
			return 0, 0, fmt.Errorf("compact %s: %w", store, err)
		}
		pairs += n
		err = filepath.WalkDir(store, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				bytes += info.Size()
			}
			return err
		})
		if err != nil {
			return 0, 0, fmt.Errorf("measure %s: %w", store, err)
		}
	}
	return bytes, pairs, nil
}

func compact(store string) (pairs int64, err error) {
	db, err := leveldb.OpenFile(store, nil)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if err := db.CompactRange(util.Range{}); err != nil {
		return 0, err
	}
	all := db.NewIterator(nil, nil)
	defer all.Release()
	for all.Next() {
		if len(all.Key()) == pairKeySize {
			pairs++
		}
	}
	return pairs, all.Error()
}

// partitionChannel is how many messages wait for a callback: goka has none. Meanwhile the consumer decodes.
const partitionChannel = 1000

// configure replaces what goka has for all its clients. See README.md for what each gave.
func configure() {
	config := goka.DefaultConfig()
	config.Version = sarama.V3_9_1_0 // newest requests: fewer conversions at the broker

	// From the beginning of the topic, which is full when the peer starts.
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Fetch.Default = 4 << 20
	config.ChannelBufferSize = 4096

	// Durable and in order, whatever is sent again: goka's default of one acknowledgement is neither.
	config.Producer.RequiredAcks, config.Producer.Idempotent = sarama.WaitForAll, true
	config.Net.MaxOpenRequests = 1 // which idempotence wants
	// One request at a time fills the next batch meanwhile; goka waits for 100 ms or 64 KiB, in each of three hops.
	config.Producer.Flush.Frequency, config.Producer.Flush.Bytes = time.Millisecond, 512<<10
	config.Producer.Compression = sarama.CompressionSnappy
	goka.ReplaceGlobalConfig(config)
}

// topicConfig is for the topics that goka makes. Its defaults are two replicas, which a broker alone cannot have, and
// an hour of streams, after which a processor that was away would have lost likes.
func topicConfig(brokers int) *goka.TopicManagerConfig {
	config := goka.NewTopicManagerConfig()
	replicas := 1
	if brokers >= 3 {
		replicas = 3
	}
	config.Table.Replication, config.Stream.Replication = replicas, replicas
	config.Stream.Retention = 7 * 24 * time.Hour
	return config
}
