package view

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Options of the local copies.
type Options struct {
	// StateDir holds them, a folder per partition. It is a cache.
	StateDir string
	// CacheBytes is the memory of the block cache, for all partitions.
	CacheBytes int64
	// Reactions: keep who likes what, and not only counts.
	Reactions bool
}

// memtableBytes is what a partition may hold in memory before it goes to disk. Small,
// for a reader has all partitions, and hot posts are written again and again.
const memtableBytes = 8 << 20

// Likes is the local copy of the state table.
type Likes struct {
	opts   Options
	kafka  kafka.Options
	log    *slog.Logger
	stores *store.Set
	view   *stream.View
	watch  func(asOf wire.Position, changes []Change)
	lag    *lagProbe
	ends   *logEnds
	homes  homes
}

// ErrNoReactions says that who likes what is not kept (reader.reactions).
var ErrNoReactions = errors.New("who likes what is not kept here (reader.reactions is false)")

// NewLikes makes the copy; it starts nothing.
func NewLikes(opts Options, kafka kafka.Options, log *slog.Logger) *Likes {
	l := &Likes{opts: opts, kafka: kafka, log: log, ends: newLogEnds()}
	l.stores = store.NewSet(filepath.Join(opts.StateDir, opts.folder()), opts.CacheBytes, log)
	l.stores.FitMemtables(memtableBytes, opts.CacheBytes)
	l.view = stream.NewView(stream.ViewOptions{Kafka: kafka, Topic: schema.TopicState, Stores: l.stores, Copy: l.copy}, log)
	l.lag = &lagProbe{log: log, partitions: l.Partitions, asOf: l.AsOf, wait: l.Wait}
	return l
}

// Sizes makes a Prometheus collector of what the copy takes.
func (l *Likes) Sizes() prometheus.Collector { return store.NewCollector("reader", l.stores) }

// copy makes a partition's part.
func (l *Likes) copy(partition int32) stream.Copy {
	return &likesCopy{partition: partition, reactions: l.opts.Reactions, watch: l.watch, homes: &l.homes}
}

// Watch has fn called with what has changed in a partition, after it can be read, from
// a goroutine for each partition; nil changes: anything may have. fn must not block,
// nor keep the slice. Call it before Run, once.
func (l *Likes) Watch(fn func(asOf wire.Position, changes []Change)) { l.watch = fn }

// Run keeps the copy until ctx ends. Run it once.
func (l *Likes) Run(ctx context.Context) error {
	defer l.stores.Close()
	if err := l.cleanUp(); err != nil {
		return fmt.Errorf("folder of the local copies (reader.state_dir): %w", err)
	}
	cl, err := l.kafka.NewClient(l.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.view.Run(ctx) })
	g.Go(func() error { return l.lag.run(ctx, cl) })
	g.Go(func() error { return l.ends.run(ctx, cl) })
	return g.Wait()
}

// folder is of the layout: what is laid out otherwise is another copy.
func (o Options) folder() string {
	kind := "counts"
	if o.Reactions {
		kind = "reactions"
	}
	return fmt.Sprintf("%s-%d", kind, layoutVersion)
}

// folderForm is that of the folders of all layouts so far.
var folderForm = regexp.MustCompile(`^(counts|reactions)-\d{1,3}$`)

// cleanUp deletes copies of other layouts, which nobody would ever use again.
func (l *Likes) cleanUp() error {
	entries, err := os.ReadDir(l.opts.StateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		// Only what this made is deleted: the folder may have others' things too.
		if e.Name() == l.opts.folder() || !e.IsDir() || !folderForm.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(l.opts.StateDir, e.Name())
		l.log.Info("deleting local copies of another layout", "dir", dir)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// Ready is nil when all partitions can be read.
func (l *Likes) Ready() error {
	n, err := l.view.Partitions()
	if err != nil {
		return err
	}
	var errs []error
	for p := range n {
		_, err := l.AsOf(p)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Partitions returns how many there are.
func (l *Likes) Partitions() (int32, error) { return l.view.Partitions() }

// Homes returns the partitions that a post's reactions are in, in order: one, unless it
// has user buckets. While partitions are being added, they may be in any.
func (l *Likes) Homes(post uint64) ([]int32, error) {
	n, err := l.view.Partitions()
	if err != nil {
		return nil, err
	}
	return l.homes.of(post, n), nil
}

// HomesOfUser is Homes of one user's reaction.
func (l *Likes) HomesOfUser(post, user uint64) ([]int32, error) {
	n, err := l.view.Partitions()
	if err != nil {
		return nil, err
	}
	return l.homes.ofUser(post, user, n), nil
}

// AsOf returns the place in likes that a partition's answers are as of.
func (l *Likes) AsOf(partition int32) (wire.Position, error) {
	state, _, err := l.state(partition)
	return state.asOf(partition), err
}

// state returns what is known of a partition, and what is closed when it has moved on.
func (l *Likes) state(partition int32) (state likesState, moved <-chan struct{}, err error) {
	err = l.view.Read(partition, func(_ *store.Store, c stream.Copy) error {
		state, moved = c.(*likesCopy).present()
		return nil
	}, nil)
	if err == nil && !state.known {
		err = noProgress(partition)
	}
	return state, moved, err
}

// noProgress is said of a partition that the fold could not use either.
func noProgress(partition int32) error {
	return &NotReadyError{Topic: schema.TopicState, Partition: partition, Behind: -1,
		Reason: "it has no progress record", Remedy: "kudos topics apply"}
}

// Wait waits until a partition's answers cover a position, or returns ctx's error.
func (l *Likes) Wait(ctx context.Context, want wire.Position) error {
	return wait(ctx, want.Offset, func() (int64, <-chan struct{}, error) {
		state, moved, err := l.state(want.Partition)
		return state.progress.NextOffset, moved, err
	})
}

// CheckEnds asks Kafka whether the events before these positions are in likes. It returns a *BeyondEndError if
// one is not, and nil if all are, or if Kafka does not say by the end of ctx.
func (l *Likes) CheckEnds(ctx context.Context, want []wire.Position) error {
	return l.ends.check(ctx, want)
}

// Epoch names the log that a partition's positions are of: 8 hex digits, others when
// likes was deleted and made anew.
func (l *Likes) Epoch(partition int32) (string, error) {
	state, _, err := l.state(partition)
	return epoch(state.progress.SourceID), err
}

func epoch(id [16]byte) string { return fmt.Sprintf("%x", id[:4]) }

// Totals are of the partitions that can be read.
func (l *Likes) Totals() (sum Totals) {
	n, _ := l.view.Partitions()
	for p := range n {
		if state, _, err := l.state(p); err == nil {
			sum.Posts += state.totals.Posts
			sum.Likes += state.totals.Likes
			sum.Dislikes += state.totals.Dislikes
		}
	}
	return sum
}

// Lag returns how many events of likes are not in here yet, and how long ago all that
// is in here was all there was, at most; as of the last look. known is false before the
// first.
func (l *Likes) Lag() (events int64, behind time.Duration, known bool) { return l.lag.present() }
