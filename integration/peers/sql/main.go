package main

import (
	"context"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/errgroup"

	"kudos/integration/peers/peer"
)

const (
	group = "sql-likes"
	// workers, a connection each: see README.md for how the number was found.
	workers = 64
	// batchEvents is the largest poll batch. A small one, since offsets are those of whole batches.
	batchEvents = 500
	// batches under way, so that no worker waits for the slowest one of a batch.
	batches = 8
	// queueTasks is how many likes wait for a worker. The reader waits where the queue is full.
	queueTasks = 64
)

func main() { peer.Main(run) }

func run(ctx context.Context, o peer.Options, lines *peer.Lines) error {
	db, err := peer.OpenDatabase(ctx, o.MySQLDSN)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := createTables(ctx, db); err != nil {
		return err
	}
	likes, err := peer.OpenLikes(o, group, batchEvents, lines)
	if err != nil {
		return err
	}
	defer likes.Close()
	if err := count(ctx, db, likes, lines); err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), peer.CloseTimeout)
	defer cancel()
	return state(last, db, lines)
}

// batch is a poll batch that workers have parts of.
type batch struct {
	*peer.Batch
	left     atomic.Int64
	finished chan struct{} // closed by whoever finishes the last event
}

func (b *batch) finishOne() {
	if b.left.Add(-1) == 0 {
		close(b.finished)
	}
}

// count reads until ctx is done.
func count(ctx context.Context, db *sqlx.DB, likes *peer.Likes, lines *peer.Lines) error {
	g, ctx := errgroup.WithContext(ctx)
	var team []*worker
	defer func() {
		for _, w := range team {
			w.close() // of a connection that may be broken: nothing is left to lose
		}
	}()
	for range workers {
		w, err := newWorker(ctx, db)
		if err != nil {
			return err
		}
		team = append(team, w)
	}
	for _, w := range team {
		g.Go(func() error { return w.run(ctx) })
	}
	underWay := make(chan *batch, batches) // closed by the reader
	g.Go(func() error {
		defer close(underWay)
		defer func() {
			for _, w := range team {
				close(w.queue)
			}
		}()
		return read(ctx, likes, team, underWay)
	})
	g.Go(func() error { return finish(ctx, underWay, lines) })
	return g.Wait()
}

// read hands out what it reads: all of a pair to one worker, so that it stays in order.
func read(ctx context.Context, likes *peer.Likes, team []*worker, underWay chan<- *batch) error {
	for {
		polled, err := likes.Poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		b := &batch{Batch: polled, finished: make(chan struct{})}
		b.left.Store(int64(len(polled.Events)))
		select {
		case underWay <- b:
		case <-ctx.Done():
			return nil
		}
		for _, e := range polled.Events {
			select {
			case team[workerOf(e)].queue <- task{e, b}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// workerOf spreads pairs evenly.
func workerOf(e peer.Event) uint64 {
	h := (e.Post*0x9e3779b97f4a7c15 ^ e.User) * 0xff51afd7ed558ccd
	return h >> 32 % workers
}

// finish waits for the batches, in order.
func finish(ctx context.Context, underWay <-chan *batch, lines *peer.Lines) error {
	var events int64
	for b := range underWay {
		select {
		case <-b.finished:
		case <-ctx.Done():
			return nil
		}
		b.Done()
		events += b.Covers
		if err := lines.Committed(events); err != nil {
			return err
		}
	}
	return nil
}
