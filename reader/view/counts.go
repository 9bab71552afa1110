package view

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
	"kudos/stream/store"
)

// Counts is the lane of the posts' counts, from like-counts.
type Counts struct {
	*Lane
	watch  func(asOf wire.Position, changes []Change)
	recent *recentCounts
}

func newCounts(opts Options, kafka kafka.Options, log *slog.Logger) *Counts {
	c := &Counts{recent: newRecentCounts(opts.CacheBytes / 4)}
	opts.CacheBytes -= opts.CacheBytes / 4
	part := func(partition int32) stream.Copy {
		return &countsCopy{laneCopy: newLaneCopy(c.Lane, partition), counts: c}
	}
	c.Lane = opts.newLane(schema.TopicCounts, countsDir, actionComplete, &owners{}, kafka, part, log)
	c.leads = true
	return c
}

// actionComplete: the fold adds the counts that like-counts lacks.
const actionComplete = "kudos topics apply, and run a processor, which completes it"

// Watch registers fn for a partition's changes, once they can be read; nil means that anything may have changed. Each
// partition calls fn from its own goroutine. fn must not block, nor keep the slice. Call Watch before Run, once.
func (c *Counts) Watch(fn func(asOf wire.Position, changes []Change)) { c.watch = fn }

// Totals returns the sums over the partitions that can be read.
func (c *Counts) Totals() (sum Totals) {
	n, _ := c.view.Partitions()
	for p := range n {
		var t Totals
		err := c.view.Read(p, func(_ *store.Store, of stream.Copy) error {
			own := of.(*countsCopy)
			_, _, err := own.present()
			t = own.totals
			return err
		}, nil)
		if err == nil {
			sum.Posts += t.Posts
			sum.Likes += t.Likes
			sum.Dislikes += t.Dislikes
		}
	}
	return sum
}

// Counts returns the counts of posts, in the requested order, and the position of each partition that they are in, by
// partition. The counts of a post in several partitions are their sum.
func (c *Counts) Counts(posts []uint64) ([]schema.Counts, []wire.Position, error) {
	n, err := c.view.Partitions()
	if err != nil {
		return nil, nil, err
	}
	counts := make([]schema.Counts, len(posts))
	var few [4]int32
	places, owners := c.owners.now(n), few[:0]
	asked := make([]askedPost, 0, len(posts))
	for i, post := range posts {
		owners = places.append(owners[:0], post)
		for _, partition := range owners {
			asked = append(asked, askedPost{partition, post, i})
		}
	}
	if len(asked) == 1 {
		asOf, err := c.countsOf(asked[0], &counts[0])
		return counts, []wire.Position{asOf}, err
	}
	slices.SortFunc(asked, func(a, b askedPost) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.post, b.post))
	})
	var asOf []wire.Position
	for len(asked) > 0 {
		partition, end := asked[0].partition, 1
		for end < len(asked) && asked[end].partition == partition {
			end++
		}
		position, err := c.countsIn(partition, asked[:end], counts)
		if err != nil {
			return nil, nil, err
		}
		asOf = append(asOf, position)
		asked = asked[end:]
	}
	return counts, asOf, nil
}

// askedPost is a post in one of its partitions, with its index in the request.
type askedPost struct {
	partition int32
	post      uint64
	index     int
}

// countsOf reads the counts of one post, more cheaply than countsIn.
func (c *Counts) countsOf(asked askedPost, counts *schema.Counts) (asOf wire.Position, err error) {
	return c.pin(asked.partition, func(s *store.Store, of stream.Copy) (err error) {
		opened, known := of.(*countsCopy).opened, false
		if *counts, known = c.recent.get(opened, asked.post); known {
			return nil
		}
		var key [9]byte
		_, err = s.Find(appendCountsKey(key[:0], asked.post), func(value []byte) (err error) {
			*counts, err = decodeCounts(value)
			return err
		})
		if err == nil {
			c.recent.put(opened, asked.post, *counts)
		}
		return err
	}, nil)
}

// countsIn adds the counts that one partition has to counts; asked is sorted by post.
func (c *Counts) countsIn(partition int32, asked []askedPost, counts []schema.Counts) (asOf wire.Position, err error) {
	var missed []askedPost
	var found []schema.Counts
	var then countsCopy // as of the pin
	var r *store.Reader
	asOf, err = c.pin(partition, func(s *store.Store, of stream.Copy) (err error) {
		then.opened, then.moved = of.(*countsCopy).opened, of.(*countsCopy).moved
		for _, a := range asked {
			have, known := c.recent.get(then.opened, a.post)
			if counts[a.index] = counts[a.index].Plus(have); !known {
				missed = append(missed, a)
			}
		}
		if len(missed) > 0 {
			r, err = s.NewReader()
		}
		return err
	}, func() error {
		if len(missed) == 0 {
			return nil
		}
		defer r.Close()
		found = make([]schema.Counts, len(missed))
		var key [9]byte
		return r.Lookup(len(missed),
			func(i int) []byte { return appendCountsKey(key[:0], missed[i].post) },
			func(i int, value []byte) (err error) {
				found[i], err = decodeCounts(value)
				counts[missed[i].index] = counts[missed[i].index].Plus(found[i])
				return err
			})
	})
	if err == nil && len(missed) > 0 {
		c.keep(partition, &then, missed, found)
	}
	return asOf, err
}

// keep caches the counts found, unless the partition has moved since then.
func (c *Counts) keep(partition int32, then *countsCopy, posts []askedPost, found []schema.Counts) {
	_, _ = c.pin(partition, func(_ *store.Store, of stream.Copy) error { // not readable any more: nothing to keep
		if of.(*countsCopy).moved == then.moved {
			for i, p := range posts {
				c.recent.put(then.opened, p.post, found[i])
			}
		}
		return nil
	}, nil)
}

// countsCopy is one partition of Counts.
type countsCopy struct {
	laneCopy
	counts *Counts
	totals Totals
	opened uint64 // under which its recent counts are

	// next is what Apply stages and Applied makes visible.
	next struct {
		totals  Totals
		changes []Change
		spans   []trace.Span // of its traced likes
		unknown bool         // anything may have changed
	}
}

// Open reads the state that is not in memory.
func (c *countsCopy) Open(s *store.Store) error {
	if err := c.laneCopy.Open(s); err != nil {
		return err
	}
	c.totals, c.next.changes, c.opened = Totals{}, nil, c.counts.recent.opened.Add(1)
	_, err := s.Find([]byte(totalsKey), func(value []byte) (err error) {
		c.totals, err = decodeTotals(value)
		return err
	})
	return err
}

// Apply stages the records. Only the last counts of each post matter.
func (c *countsCopy) Apply(s *store.Store, w *store.Write, records []*kgo.Record) error {
	c.stage()
	c.next.changes, c.next.totals = c.next.changes[:0], c.totals
	counts := map[uint64]schema.Counts{}
	c.next.spans = tracing.Follow(records, "reader", time.Now())
	for _, rec := range records {
		post, ok := schema.ParseCountsKey(rec.Key)
		var err error
		switch {
		case !ok:
			err = c.apply(w, rec)
		case rec.Value == nil:
			counts[post] = schema.Counts{}
		default:
			counts[post], err = schema.DecodeCounts(rec.Value)
		}
		if err != nil {
			return fmt.Errorf("record at offset %d: %w", rec.Offset, err)
		}
	}
	relaid := c.state.known && !sameLayout(&c.state.progress, &c.staged.progress) // posts are in other partitions
	c.next.unknown = c.staged.known && (relaid || !c.state.known)
	return c.applyCounts(s, w, counts)
}

func (c *countsCopy) applyCounts(s *store.Store, w *store.Write, counts map[uint64]schema.Counts) error {
	if len(counts) == 0 {
		return nil
	}
	posts := slices.Sorted(maps.Keys(counts))
	before := make([]schema.Counts, len(posts))
	var missed []int
	for i, post := range posts {
		var known bool
		if before[i], known = c.counts.recent.get(c.opened, post); !known {
			missed = append(missed, i)
		}
	}
	var key, value []byte
	err := s.Lookup(len(missed),
		func(i int) []byte { key = appendCountsKey(key[:0], posts[missed[i]]); return key },
		func(i int, value []byte) (err error) { before[missed[i]], err = decodeCounts(value); return err })
	if err != nil {
		return err
	}
	for i, post := range posts {
		after := counts[post]
		if after == before[i] {
			continue
		}
		c.next.totals.add(before[i], after)
		c.next.changes = append(c.next.changes, Change{post, after})
		key, value = appendCountsKey(key[:0], post), appendCounts(value[:0], after)
		if after == (schema.Counts{}) {
			value = nil
		}
		if err := w.Set(key, value); err != nil {
			return err
		}
	}
	return w.Set([]byte(totalsKey), appendTotals(nil, c.next.totals))
}

// Applied makes the new state visible and wakes whoever waits for it.
func (c *countsCopy) Applied() {
	c.totals = c.next.totals
	for _, change := range c.next.changes {
		c.counts.recent.put(c.opened, change.PostID, change.Counts)
	}
	c.applied()
	tracing.End(c.next.spans, nil)
}

// Published reports the changes.
func (c *countsCopy) Published(restarted bool) {
	if c.counts.watch == nil || !c.state.known {
		return
	}
	asOf := c.state.asOf(c.partition)
	switch {
	case restarted || c.next.unknown:
		c.counts.watch(asOf, nil)
	case len(c.next.changes) > 0:
		c.counts.watch(asOf, c.next.changes)
	}
}
