package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"kudos/integration/peers/peer"
)

const (
	group = "redis-likes"
	// batchEvents is the largest poll batch.
	batchEvents = 50_000
	// flushEvery is how often MySQL is written to under load. Redis has the newest counts meanwhile.
	flushEvery = 50 * time.Millisecond
	// batchTimeout bounds what Redis may take for a batch, which is tens of milliseconds.
	batchTimeout = 30 * time.Second
)

func main() { peer.Main(run) }

func run(ctx context.Context, o peer.Options, lines *peer.Lines) error {
	if o.Redis == "" {
		return errors.New("this peer needs a Redis: give --redis")
	}
	db, err := peer.OpenDatabase(ctx, o.MySQLDSN)
	if err != nil {
		return err
	}
	defer db.Close()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{o.Redis}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		return fmt.Errorf("connect to redis %s: %w", o.Redis, err)
	}
	defer client.Close()
	likes, err := peer.OpenLikes(o, group, batchEvents, lines)
	if err != nil {
		return err
	}
	defer likes.Close()
	if err := count(ctx, likes, client, peer.NewCounts(db, lines, flushEvery)); err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), peer.CloseTimeout)
	defer cancel()
	return state(last, client, db, lines)
}

// work is a batch and what Redis is to do for it.
type work struct {
	batch *peer.Batch
	calls []call
}

// count runs the stages until ctx is done: the next batch is read and sorted while Redis works on this one. They end in
// order, so that what was read is in MySQL.
func count(ctx context.Context, likes *peer.Likes, client rueidis.Client, counts *peer.Counts) error {
	g, ctx := errgroup.WithContext(ctx)
	next := make(chan work) // closed by the reader
	flushing, endFlushing := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error {
		defer close(next)
		var p planner
		for {
			batch, err := likes.Poll(ctx)
			if err != nil {
				return ended(ctx, err)
			}
			select {
			case next <- work{batch, p.plan(batch.Events)}:
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

// state prints what Redis holds beyond an empty one, counters included. The sets' members are the counts' sum.
func state(ctx context.Context, client rueidis.Client, db *sqlx.DB, lines *peer.Lines) error {
	info, err := client.Do(ctx, client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return fmt.Errorf("ask redis for its memory: %w", err)
	}
	used, err := infoNumber(info, "used_memory")
	if err != nil {
		return err
	}
	empty, err := infoNumber(info, "used_memory_startup")
	if err != nil {
		return err
	}
	var pairs int64
	if err := db.GetContext(ctx, &pairs, "SELECT COALESCE(SUM(count), 0) FROM like_count"); err != nil {
		return fmt.Errorf("sum the counts: %w", err)
	}
	return lines.State(used-empty, pairs)
}

// infoNumber finds a number in what INFO answers.
func infoNumber(info, name string) (int64, error) {
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("redis does not tell its %s", name)
}
