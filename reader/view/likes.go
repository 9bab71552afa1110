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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Likes has both lanes. What is known of a like is in like-counts first: few records a transaction.
type Likes struct {
	Counts    *Counts
	Reactions *Reactions // nil: not kept
	History   *History   // nil: not kept

	opts  Options
	kafka kafka.Options
	log   *slog.Logger
	ends  *logEnds

	client atomic.Pointer[kgo.Client] // while Run runs
}

// NewLikes returns the lanes; it starts nothing.
func NewLikes(opts Options, kafka kafka.Options, log *slog.Logger) *Likes {
	l := &Likes{opts: opts, kafka: kafka, log: log, ends: newLogEnds(), Counts: newCounts(opts, kafka, log)}
	if opts.Reactions {
		l.Reactions = newReactions(opts, l.Counts.owners, kafka, log)
	}
	if opts.History > 0 {
		l.History = newHistory(opts, l.Counts.owners, kafka, log)
	}
	return l
}

// Collectors return the metrics of the stores and of the partitions.
func (l *Likes) Collectors() []prometheus.Collector {
	collectors := l.Counts.collectors("reader-counts")
	if l.Reactions != nil {
		collectors = append(collectors, l.Reactions.collectors("reader-reactions")...)
	}
	if l.History != nil {
		collectors = append(collectors, l.History.collector())
	}
	return collectors
}

// Run maintains the lanes until ctx ends. Call it once.
func (l *Likes) Run(ctx context.Context) error {
	if err := l.cleanUp(); err != nil {
		return fmt.Errorf("directory of the views (reader.state_dir): %w", err)
	}
	cl, err := l.kafka.NewClient(l.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	l.client.Store(cl)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.Counts.run(ctx, cl) })
	if l.Reactions != nil {
		g.Go(func() error { return l.Reactions.run(ctx, cl) })
	}
	if l.History != nil {
		g.Go(func() error { return l.History.run(ctx) })
	}
	g.Go(func() error { return l.ends.run(ctx, cl) })
	return g.Wait()
}

// The directories of the views: each format has its own.
var (
	countsDir    = fmt.Sprintf("counts-%d", countsVersion)
	reactionsDir = fmt.Sprintf("reactions-%d", reactionsVersion)
	dirForm      = regexp.MustCompile(`^(counts|reactions|history)-\d{1,3}$`) // of all formats so far
)

// cleanUp deletes views in other formats, which would never be used again.
func (l *Likes) cleanUp() error {
	entries, err := os.ReadDir(l.opts.StateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		used := e.Name() == countsDir || e.Name() == reactionsDir && l.opts.Reactions ||
			e.Name() == historyDir && l.opts.History > 0
		// Anything else in the directory stays.
		if used || !e.IsDir() || !dirForm.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(l.opts.StateDir, e.Name())
		l.log.Info("deleting views in another format", "dir", dir)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// Ready returns nil when all partitions of both lanes can be read.
func (l *Likes) Ready() error {
	err := l.Counts.Ready()
	if l.Reactions != nil {
		err = errors.Join(err, l.Reactions.Ready())
	}
	return err
}

// CheckEnds returns a *BeyondEndError if likes has no event before one of the positions, and nil if Kafka is silent.
func (l *Likes) CheckEnds(ctx context.Context, want []wire.Position) error {
	return l.ends.check(ctx, want)
}

// owners tracks the partition layout, which progress records name.
type owners struct {
	present atomic.Pointer[presentLayout] // nil: no progress record yet

	mu    sync.Mutex
	heard map[int32]*schema.Progress // by partition: its first progress record with the current layout
}

// presentLayout is the newest layout that any partition has named.
type presentLayout struct {
	schema.Layout
	number uint32
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
	present := &presentLayout{Layout: newest.Layout(), number: newest.Layouts}
	for _, other := range h.heard {
		present.migrating = present.migrating || other.Migrating || other.Layouts != newest.Layouts
	}
	h.present.Store(present)
}

// now returns where posts are in n partitions.
func (h *owners) now(n int32) places { return places{h.present.Load(), n} }

// places says which partitions may have what, by one layout.
type places struct {
	present    *presentLayout // nil: not known, so the first one
	partitions int32
}

// Layout identifies a layout: a partition may lack reactions that it owns until it has reached it.
type Layout struct {
	Number  uint32 // of the layouts before it
	Settled bool   // nothing moves any more
}

func (p places) layout() Layout {
	if p.present == nil {
		return Layout{}
	}
	return Layout{p.present.number, !p.present.migrating}
}

// append appends the partitions that may have a post's reactions, in order: one, unless the post has user buckets or
// the layout is migrating.
func (p places) append(to []int32, post uint64) []int32 {
	switch {
	case p.present == nil:
		return append(to, schema.PartitionFor(post, p.partitions))
	case p.present.migrating:
		for n := range p.partitions {
			to = append(to, n)
		}
		return to
	case p.present.Buckets(post) == 1:
		return append(to, schema.PartitionFor(post, p.present.Partitions))
	}
	return append(to, p.present.PartitionsOf(post)...)
}

// appendOfUser appends the partitions that may have a user's reaction to a post.
func (p places) appendOfUser(to []int32, post, user uint64) []int32 {
	if p.present != nil && !p.present.migrating {
		return append(to, p.present.PartitionOf(post, user))
	}
	return p.append(to, post)
}
