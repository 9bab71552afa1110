// Package archive brings like-updates into Parquet files, by hour, for whoever wants to ask
// questions of every change: a second sink of the stream, beside MySQL.
//
// A row is one net change of a post in a region and minute. Each is in exactly one file, over
// crashes and restarts: a file says in its name which offsets it covers, comes into being whole
// by a rename, and the next one begins where it ends. There is no other position.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
	"kudos/stream"
)

// Archive is the role.
type Archive struct {
	opts  Options
	kafka stream.KafkaOptions
	log   *slog.Logger

	rows, files prometheus.Counter

	mu struct {
		sync.Mutex
		trouble map[int32]error // by partition; -1: of all
	}
}

// New makes an archive; it starts nothing.
func New(opts Options, kafka stream.KafkaOptions, log *slog.Logger, reg prometheus.Registerer) (*Archive, error) {
	if err := errors.Join(opts.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	f := promauto.With(reg)
	a := &Archive{
		opts: opts, kafka: kafka, log: log.With("role", "archive"),
		rows:  f.NewCounter(prometheus.CounterOpts{Namespace: "kudos", Name: "archive_rows_total", Help: "Rows of files that were finished."}),
		files: f.NewCounter(prometheus.CounterOpts{Namespace: "kudos", Name: "archive_files_total", Help: "Files that were finished."}),
	}
	a.mu.trouble = map[int32]error{-1: errors.New("not started")}
	return a, nil
}

// Ready is nil when every partition is being written, and otherwise says why one is not.
func (a *Archive) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, err := range a.mu.trouble {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *Archive) setTrouble(partition int32, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		delete(a.mu.trouble, partition)
		return
	}
	a.mu.trouble[partition] = err
}

// retryPause is how long a partition in trouble waits before it is tried again.
const retryPause = 2 * time.Second

// Run writes until ctx ends, and then finishes the files in hand. Over Kafka's troubles it
// does not end; it does where going on would leave something out.
func (a *Archive) Run(ctx context.Context) error {
	cl, err := a.kafka.NewClient(a.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := a.lookUp(ctx, cl)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if err := prepare(a.opts.Dir, identityOf(topics)); err != nil {
		return err
	}
	lock := flock.New(lockPath(a.opts.Dir))
	switch held, err := lock.TryLock(); {
	case err != nil:
		return fmt.Errorf("archive.dir: %w", err)
	case !held:
		return fmt.Errorf("archive.dir: another process writes to %s", a.opts.Dir)
	}
	defer lock.Close()
	a.setTrouble(-1, nil)
	g, ctx := errgroup.WithContext(ctx)
	for p := range topics.ByName[schema.TopicUpdates].Partitions {
		g.Go(func() error { return a.runPartition(ctx, cl, p) })
	}
	return g.Wait()
}

// lookUp waits for Kafka and for the topic.
func (a *Archive) lookUp(ctx context.Context, cl *kgo.Client) (stream.Topics, error) {
	for {
		topics, err := stream.LookUpTopics(ctx, cl, schema.TopicUpdates)
		if err == nil || ctx.Err() != nil {
			return topics, nil
		}
		a.setTrouble(-1, err)
		a.log.Warn("waits for the topic", "topic", schema.TopicUpdates, "error", err)
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(retryPause):
	}
}

// runPartition writes one partition's files until ctx ends.
func (a *Archive) runPartition(ctx context.Context, cl *kgo.Client, partition int32) error {
	w, err := openWriter(a.opts, partition)
	if err != nil {
		return err
	}
	for {
		err := a.follow(ctx, cl, w)
		var lost *lostError
		switch {
		case ctx.Err() != nil:
			return a.flush(w) // rather than reading it again
		case errors.As(err, &lost):
			return fmt.Errorf("partition %d: %w", partition, err)
		}
		a.setTrouble(partition, err)
		a.log.Warn("tries again", "partition", partition, "offset", w.next, "error", err)
		pause(ctx)
	}
}

// follow reads on from where the writer is.
func (a *Archive) follow(ctx context.Context, cl *kgo.Client, w *writer) error {
	topics, err := stream.LookUpTopics(ctx, cl, schema.TopicUpdates)
	if err != nil {
		return err
	}
	if err := checkIdentity(a.opts.Dir, identityOf(topics)); err != nil {
		return err
	}
	start, end, err := stream.Bounds(ctx, cl, schema.TopicUpdates, w.partition)
	if err != nil {
		return err
	}
	switch {
	case w.next < 0:
		w.begin(start)
		a.log.Info("begins", "partition", w.partition, "offset", start)
	case w.next < start || w.next > end:
		return &lostError{fmt.Errorf("offset %d is next, but like-updates/%d holds %d to %d", w.next, w.partition, start, end)}
	}
	return stream.ReadLog(ctx, cl, schema.TopicUpdates, w.partition, w.next, func(c stream.LogChunk) (bool, error) {
		a.setTrouble(w.partition, nil)
		for _, rec := range c.Records {
			if w.mustFlushBefore(rec) {
				if err := a.flush(w); err != nil {
					return false, err
				}
			}
			if err := w.add(rec); err != nil {
				return false, err
			}
		}
		w.next = max(w.next, c.Next)
		if w.due(time.Now()) {
			return true, a.flush(w)
		}
		return true, nil
	})
}

func (a *Archive) flush(w *writer) error {
	rows, err := w.flush()
	if err != nil {
		return err
	}
	if rows > 0 {
		a.rows.Add(float64(rows))
		a.files.Inc()
		a.log.Debug("file finished", "partition", w.partition, "rows", rows, "next_offset", w.next)
	}
	return nil
}

// lostError is what no retry mends: the archive would have a hole.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }
