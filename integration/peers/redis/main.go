// Command redis is peer (a): likes counted in Redis as most teams do it, at its best.
//
// Each poll batch of the topic likes becomes Lua calls on Redis, which keeps who likes what in 64 sets a post
// (likes:<post>:<user % 64>) and how many those are in a counter next to them (likes:<post>). The counts that changed
// are written to MySQL in the background.
//
//	Kafka ─► read (decode, sort by post, shard and user) ─► execute (pipeline of EVALSHA) ─► peer.Counts ─► MySQL
//
// Within a batch the last action of a user decides, as it would if the actions came to Redis one by one. SADD and SREM
// make redelivery harmless: offsets are committed when the counts are in MySQL, and a batch that is read again ends in
// the same sets, and has its counts written again. What the design cannot hold is a crash of Redis: the append-only
// file is synced once a second, and likes that it lost are behind the committed offsets by then.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"kudos/integration/peers/peer"
)

const (
	group        = "redis-likes"
	batchEvents  = 50_000           // the largest poll batch
	batchTimeout = 30 * time.Second // bounds what Redis may take for a batch, which is tens of milliseconds
)

func main() { peer.Main(count, state) }

func connect(p *peer.Peer) (rueidis.Client, error) {
	if p.Redis == "" {
		return nil, errors.New("this peer needs Redis: set --redis")
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.Redis}, ForceSingleClient: true,
		DisableCache: true})
	if err != nil {
		return nil, fmt.Errorf("connect to redis %s: %w", p.Redis, err)
	}
	return client, nil
}

type work struct {
	batch *peer.Batch
	calls []call
}

// count runs the stages: Redis works on a batch while the next is read. They end in order: what was read is in MySQL.
func count(ctx context.Context, p *peer.Peer) error {
	client, err := connect(p)
	if err != nil {
		return err
	}
	defer client.Close()
	likes, err := p.OpenLikes(group, batchEvents)
	if err != nil {
		return err
	}
	defer likes.Close()
	counts := p.NewCounts()
	g, ctx := errgroup.WithContext(ctx)
	next := make(chan work) // closed by the reader
	flushing, endFlushing := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error {
		defer close(next)
		var planner planner
		for {
			batch, err := likes.Poll(ctx)
			if err != nil {
				return ended(ctx, err)
			}
			select {
			case next <- work{batch, planner.plan(batch.Events)}:
			case <-ctx.Done():
				return nil
			}
		}
	})
	g.Go(func() error {
		defer endFlushing()
		run := newRunner(client)
		for w := range next {
			changed, err := run.run(ctx, w.calls)
			if err != nil {
				return err
			}
			if err := counts.Set(ctx, changed, w.batch.Covers, w.batch.Done); err != nil {
				return ended(ctx, err)
			}
		}
		return nil
	})
	g.Go(func() error { return counts.Run(flushing) })
	return g.Wait()
}

// ended makes the end that was asked for no error.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// state is what Redis holds beyond an empty one, counters included. The sets' members are the counts' sum.
func state(ctx context.Context, p *peer.Peer) (bytes, pairs int64, err error) {
	client, err := connect(p)
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	info, err := client.Do(ctx, client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory usage of redis: %w", err)
	}
	used, err := infoNumber(info, "used_memory")
	empty, err2 := infoNumber(info, "used_memory_startup")
	if err := errors.Join(err, err2); err != nil {
		return 0, 0, err
	}
	if err := p.DB.GetContext(ctx, &pairs, "SELECT COALESCE(SUM(count), 0) FROM like_count"); err != nil {
		return 0, 0, fmt.Errorf("sum the counts: %w", err)
	}
	return used - empty, pairs, nil
}

func infoNumber(info, name string) (int64, error) {
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("redis does not report %s", name)
}
