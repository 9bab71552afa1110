package view

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Likes is the materialized view of the state table.
type Likes struct {
	opts   Options
	kafka  kafka.Options
	log    *slog.Logger
	stores *store.Set
	view   *stream.View
	watch  func(asOf wire.Position, changes []Change)
	lag    *lagProbe
	ends   *logEnds
	owners owners
}

// ErrNoReactions means that this reader does not keep who likes what (reader.reactions).
var ErrNoReactions = errors.New("this reader does not keep reactions (reader.reactions is false)")

// NewLikes returns the view; it starts nothing.
func NewLikes(opts Options, kafka kafka.Options, log *slog.Logger) *Likes {
	l := &Likes{opts: opts, kafka: kafka, log: log, ends: newLogEnds()}
	part := func(partition int32) stream.Copy { return newLikesCopy(l, partition) }
	l.stores, l.view = opts.newView(schema.TopicState, opts.dir(), opts.CacheBytes, kafka, part, log)
	l.lag = &lagProbe{log: log, partitions: l.Partitions, asOf: l.AsOf, wait: l.Wait}
	return l
}

// Collectors return the metrics of the view's stores and of its partitions.
func (l *Likes) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		store.NewCollector("reader", l.stores), stream.NewRoleCollector("reader", l.view.Status),
	}
}

// Watch registers fn for a partition's changes, once they can be read; nil means that anything may have changed. Each
// partition calls fn from its own goroutine. fn must not block, nor keep the slice. Call Watch before Run, once.
func (l *Likes) Watch(fn func(asOf wire.Position, changes []Change)) { l.watch = fn }

// Run maintains the view until ctx ends. Call it once.
func (l *Likes) Run(ctx context.Context) error {
	defer l.stores.Close()
	if err := l.cleanUp(); err != nil {
		return fmt.Errorf("directory of the views (reader.state_dir): %w", err)
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

// dir returns the directory of the format: each format has its own view.
func (o Options) dir() string {
	kind := "counts"
	if o.Reactions {
		kind = "reactions"
	}
	return fmt.Sprintf("%s-%d", kind, layoutVersion)
}

var dirForm = regexp.MustCompile(`^(counts|reactions)-\d{1,3}$`) // of all formats so far

// cleanUp deletes views in other formats, which would never be used again.
func (l *Likes) cleanUp() error {
	entries, err := os.ReadDir(l.opts.StateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		// Anything else in the directory stays.
		if e.Name() == l.opts.dir() || !e.IsDir() || !dirForm.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(l.opts.StateDir, e.Name())
		l.log.Info("deleting views in another format", "dir", dir)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// Ready returns nil when all partitions can be read.
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

// Partitions returns the number of partitions.
func (l *Likes) Partitions() (int32, error) { return l.view.Partitions() }

// PartitionsOf returns the partitions that have a post's reactions, in order: one, unless the post has user buckets.
// While partitions are being added, it returns all.
func (l *Likes) PartitionsOf(post uint64) ([]int32, error) {
	n, err := l.view.Partitions()
	if err != nil {
		return nil, err
	}
	return l.owners.append(nil, post, n), nil
}

// PartitionsOfUser is PartitionsOf for one user's reaction.
func (l *Likes) PartitionsOfUser(post, user uint64) ([]int32, error) {
	n, err := l.view.Partitions()
	if err != nil {
		return nil, err
	}
	return l.owners.ofUser(post, user, n), nil
}

// state returns the state of a partition, and a channel that is closed when there is a newer one.
func (l *Likes) state(partition int32) (state likesState, moved <-chan struct{}, err error) {
	err = l.view.Read(partition, func(_ *store.Store, c stream.Copy) (err error) {
		state, moved, err = c.(*likesCopy).present()
		return err
	}, nil)
	return state, moved, err
}

// AsOf returns the position in likes that reads of a partition reflect.
func (l *Likes) AsOf(partition int32) (wire.Position, error) {
	state, _, err := l.state(partition)
	return state.asOf(partition), err
}

// Epoch identifies the log that a partition's positions are in.
func (l *Likes) Epoch(partition int32) (string, error) {
	state, _, err := l.state(partition)
	return epoch(state.progress.SourceID), err
}

const readyPoll = 20 * time.Millisecond // how often Wait checks whether a partition has become ready

// Wait waits until reads of a partition cover a position, or returns ctx's error.
func (l *Likes) Wait(ctx context.Context, want wire.Position) error {
	for {
		state, moved, err := l.state(want.Partition)
		if err == nil && state.progress.NextOffset >= want.Offset {
			return nil
		}
		var again <-chan time.Time
		if err != nil {
			if _, notReady := errors.AsType[*NotReadyError](err); !notReady {
				return err
			}
			moved, again = nil, time.After(readyPoll)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-again:
		}
	}
}

// CheckEnds returns a *BeyondEndError if likes has no event before one of the positions, and nil if Kafka is silent.
func (l *Likes) CheckEnds(ctx context.Context, want []wire.Position) error {
	return l.ends.check(ctx, want)
}

// Totals returns the sums over the partitions that can be read.
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

// Lag returns how many events of likes are not in the view yet, and how long ago, at most, the view had all that there
// were, as of the last measurement. known is false before the first.
func (l *Likes) Lag() (events int64, behind time.Duration, known bool) { return l.lag.present() }

// owners tracks the partition layout, which progress records name.
type owners struct {
	present atomic.Pointer[presentLayout] // nil: no progress record yet

	mu    sync.Mutex
	heard map[int32]*schema.Progress // by partition: its first progress record with the current layout
}

// presentLayout is the newest layout that any partition has named.
type presentLayout struct {
	schema.Layout
	// migrating: not all partitions have reported that everything is where it belongs. A reaction may be in any then.
	migrating bool
}

// sameLayout reports whether two progress records have the same layout and the same state of migrating to it.
func sameLayout(a, b *schema.Progress) bool {
	return a.Layouts == b.Layouts && a.Migrating == b.Migrating &&
		a.Partitions == b.Partitions && a.UserBuckets == b.UserBuckets
}

// tell takes a partition's progress record, after each of its transactions.
func (h *owners) tell(partition int32, p *schema.Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.heard[partition]; last != nil && sameLayout(last, p) {
		return
	}
	if h.heard == nil {
		h.heard = map[int32]*schema.Progress{}
	}
	own := *p
	h.heard[partition] = &own
	newest := &own
	for _, other := range h.heard {
		if other.Layouts > newest.Layouts {
			newest = other
		}
	}
	present := &presentLayout{Layout: newest.Layout()}
	for _, other := range h.heard {
		present.migrating = present.migrating || other.Migrating || other.Layouts != newest.Layouts
	}
	h.present.Store(present)
}

// append appends the partitions, of n, that may have a post's reactions, in order: one, unless the post has user
// buckets or the layout is migrating.
func (h *owners) append(to []int32, post uint64, n int32) []int32 {
	present := h.present.Load()
	switch {
	case present == nil:
		return append(to, schema.PartitionFor(post, n))
	case present.migrating:
		for p := range n {
			to = append(to, p)
		}
		return to
	case present.Buckets(post) == 1:
		return append(to, schema.PartitionFor(post, present.Partitions))
	}
	return append(to, present.PartitionsOf(post)...)
}

// ofUser returns the partitions that may have a user's reaction to a post.
func (h *owners) ofUser(post, user uint64, n int32) []int32 {
	if present := h.present.Load(); present != nil && !present.migrating {
		return []int32{present.PartitionOf(post, user)}
	}
	return h.append(nil, post, n)
}
