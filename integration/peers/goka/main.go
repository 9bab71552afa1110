package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lovoo/goka"
	"github.com/lovoo/goka/storage"
	"golang.org/x/sync/errgroup"

	"kudos/integration/peers/peer"
)

const (
	// flushEvery is how often MySQL is written to under load. goka has the newest counts meanwhile.
	flushEvery = 50 * time.Millisecond
	// startTimeout bounds joining a group and recovering its table.
	startTimeout = 5 * time.Minute
)

func main() { peer.Main(run) }

func run(ctx context.Context, o peer.Options, lines *peer.Lines) error {
	db, err := peer.OpenDatabase(ctx, o.MySQLDSN)
	if err != nil {
		return err
	}
	defer db.Close()
	configure()
	if err := createDeltas(o.Brokers); err != nil {
		return err
	}
	c := &callbacks{lines: lines, counts: peer.NewCounts(db, lines, flushEvery), progress: newProgress()}
	if err := c.run(ctx, o); err != nil {
		return err
	}
	return state(o.StateDir, lines)
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
		return fmt.Errorf("create %s as %s is: %w", deltas, likes, err)
	}
	return nil
}

// run runs both groups until ctx is done: the last one first, so that the clock starts when all are ready. MySQL is
// written to until they have ended, since they wait for it.
func (c *callbacks) run(ctx context.Context, o peer.Options) error {
	g, ctx := errgroup.WithContext(ctx)
	flushing, endFlushing := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return c.counts.Run(flushing) })
	g.Go(func() error {
		defer endFlushing()
		return c.process(ctx, o)
	})
	return g.Wait()
}

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

// tables are the stores of a group, one a partition.
func tables(dir string, group goka.Group) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, string(goka.GroupTable(group))+".*"))
}
