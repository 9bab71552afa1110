package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/schema/kudosv1"
)

// ReaderLeft says what the reader at base (http://host:port) has not read yet, "" if it has read all of likes. Like
// Left, it asks for what is folded before it asks for the end of the log.
func (o *Oracle) ReaderLeft(ctx context.Context, base string) (string, error) {
	a := newAsker(base)
	defer a.close()
	s, err := a.stats(ctx)
	if err != nil {
		return "the reader does not respond: " + err.Error(), ctx.Err()
	}
	likes, err := o.LastRecords(ctx, topicLikes)
	if err != nil {
		return "", err
	}
	if len(likes) == 0 {
		return "no events", nil
	}
	var left []string
	for _, p := range slices.Concat(s.Partitions, s.Reactions) {
		last := int64(-1)
		if rec := likes[p.AsOf.Partition]; rec != nil {
			last = rec.Offset
		}
		if !p.Ready || p.AsOf.Offset <= last {
			left = append(left, fmt.Sprintf("partition %d: ready %t, as of %d of %d", p.AsOf.Partition, p.Ready,
				p.AsOf.Offset, last+1))
		}
	}
	return strings.Join(left, "; "), nil
}

// Kept returns how many of these readers keep the reactions of each partition. It fails unless all can be read.
func Kept(ctx context.Context, bases ...string) (readers map[int32]int, err error) {
	readers = map[int32]int{}
	for _, base := range bases {
		a := newAsker(base)
		defer a.close()
		s, err := a.stats(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range s.Reactions {
			if !p.Ready {
				return nil, fmt.Errorf("%s keeps partition %d, but is not ready", base, p.AsOf.Partition)
			}
			readers[p.AsOf.Partition]++
		}
	}
	return readers, nil
}

// ReaderResult is the result of a check of a reader.
type ReaderResult struct {
	// Answers that were compared, and the distinct as_of positions in likes among them.
	Answers, Places int
	Kinds           map[string]int // answers by kind
	Differences     Differences
}

func (v *ReaderResult) took(a *answer) {
	if v.Kinds == nil {
		v.Kinds = map[string]int{}
	}
	v.Answers++
	v.Kinds[a.kind()]++
}

// Depth is how much is checked. The counts of every post are checked at every depth.
type Depth int

const (
	Everything Depth = iota // the likers of every post
	Sample                  // the likers of some posts
	CountsOnly              // the reader keeps only counts, and must reject queries for reactions
)

// Reader reads likes to its end and compares what the reader at base says. ReaderLeft must be "", and nobody may write.
func (o *Oracle) Reader(ctx context.Context, base string, depth Depth) (*ReaderResult, error) {
	if err := o.begin(ctx); err != nil {
		return nil, err
	}
	v := &ReaderResult{}
	ends, err := o.ends(ctx, topicLikes)
	if err != nil {
		return nil, err
	}
	err = o.readTo(ctx, topicLikes, o.fold.next, ends, func(rec *kgo.Record) { o.check(rec, &v.Differences) })
	if err != nil {
		return nil, err
	}
	last, err := o.LastRecords(ctx, topicLikes)
	if err != nil {
		return nil, err
	}
	c := newComparison(base, o.fold, v)
	defer c.asker.close()
	for p, rec := range last {
		c.covered[p] = span{rec.Offset + 1, ends[p]}
	}
	return v, c.run(ctx, depth)
}

// span is where a reader that has read everything may be: from the last event to the end, since markers have offsets.
type span struct{ from, to int64 }

type comparison struct {
	asker   *asker
	fold    *Fold
	want    map[uint64]*expected
	posts   []uint64       // in order
	covered map[int32]span // by partition; 0 for one without events

	mu struct {
		sync.Mutex
		result *ReaderResult
		places map[position]bool
	}
}

func newComparison(base string, f *Fold, v *ReaderResult) *comparison {
	c := &comparison{asker: newAsker(base), fold: f, want: f.expected(), covered: map[int32]span{}}
	c.posts = slices.Sorted(maps.Keys(c.want))
	c.mu.result, c.mu.places = v, map[position]bool{}
	return c
}

const (
	askers     = 4   // concurrent requests
	sampled    = 400 // pairs of each kind
	neverLiked = 1 << 62
)

func (c *comparison) run(ctx context.Context, depth Depth) error {
	kept := depth != CountsOnly
	step := max(1, len(c.posts)/sampled)
	if err := c.totals(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(askers)
	for batch := range slices.Chunk(c.posts, askBatch) {
		g.Go(func() error {
			answers, err := c.asker.manyCounts(ctx, batch, 0, c.fold.partitions)
			c.check(answers...)
			return err
		})
	}
	for i, post := range c.posts {
		if i%step == 0 {
			g.Go(func() error { return c.single(ctx, post) })
		}
	}
	for i := range uint64(20) {
		g.Go(func() error { return c.single(ctx, neverLiked+i) })
	}
	for i, post := range append(slices.Clone(c.posts), neverLiked) {
		if depth == Everything || i%step == 0 {
			g.Go(func() error { return c.likers(ctx, post, pageSize(post), kept) })
		}
	}
	if kept {
		g.Go(func() error { return c.pages(ctx) })
	}
	for _, k := range c.pairs() {
		g.Go(func() error {
			ans, err := c.asker.reaction(ctx, k.Post, k.User)
			return c.take(ans, err, kept)
		})
	}
	return g.Wait()
}

// pages checks what some users see on pages of posts.
func (c *comparison) pages(ctx context.Context) error {
	const viewers, page = 20, 50
	for i, k := range c.pairs() {
		if i == viewers {
			break
		}
		at, _ := slices.BinarySearch(c.posts, k.Post)
		posts := c.posts[at:min(at+page, len(c.posts))]
		if len(posts) == 0 {
			continue
		}
		for _, ask := range []func(context.Context, []uint64, uint64, int32) ([]*answer, error){
			c.asker.manyCounts, c.asker.manyReactions} {
			answers, err := ask(ctx, posts, k.User, c.fold.partitions)
			if err != nil {
				return err
			}
			c.check(answers...)
		}
	}
	return nil
}

func pageSize(post uint64) int { return []int{1000, 100, 20, 3}[post%4] }

func (c *comparison) single(ctx context.Context, post uint64) error {
	ans, err := c.asker.counts(ctx, post)
	return c.take(ans, err, true)
}

// take checks an answer. A reader that does not keep the data must reject the request.
func (c *comparison) take(ans *answer, err error, kept bool) error {
	switch {
	case kept && err == nil:
		c.check(ans)
		return nil
	case !kept && refused(err, http.StatusNotFound, "no-reactions"):
		return nil
	case !kept && err == nil:
		return fmt.Errorf("%s: a reader that keeps only counts must reject the request", ans.path)
	}
	return err
}

func (c *comparison) likers(ctx context.Context, post uint64, size int, kept bool) error {
	token, after := "", uint64(0)
	listed := 0
	want := c.wanted(post)
	for range len(want.reactions) + 1 { // each page except the last has at least one
		ans, next, err := c.asker.likers(ctx, post, size, token, after)
		if err := c.take(ans, err, kept); err != nil || !kept {
			return err
		}
		if ans.page.wrong(want.likers) != "" {
			return nil // check reports it
		}
		if n := len(ans.page.likers); n > 0 {
			after = ans.page.likers[n-1].user
			listed += n
		}
		if token = next; token == "" {
			if listed != len(want.likers) {
				c.add("%s: %d likers listed, want %d", ans.path, listed, len(want.likers))
			}
			return nil
		}
	}
	c.add("/v1/posts/%d/likers?page_size=%d: the pages do not end; %d likers listed, want %d", post, size,
		listed, len(want.likers))
	return nil
}

// pairs returns a sample of current reactions, of withdrawn ones, and of users without any.
func (c *comparison) pairs() []PairKey {
	byAction := map[kudosv1.Action][]PairKey{}
	for _, post := range c.posts {
		reactions := c.want[post].reactions
		for _, user := range slices.Sorted(maps.Keys(reactions)) {
			action := reactions[user].Action
			byAction[action] = append(byAction[action], PairKey{post, user})
		}
	}
	var sample []PairKey
	for _, action := range slices.Sorted(maps.Keys(byAction)) {
		keys := byAction[action]
		for i := 0; i < len(keys); i += max(1, len(keys)/sampled) {
			k := keys[i]
			sample = append(sample, k)
			if stranger := k.User + 1; len(sample)%4 == 0 && c.want[k.Post].reactions[stranger] == (Pair{}) {
				sample = append(sample, PairKey{k.Post, stranger})
			}
		}
	}
	return append(sample, PairKey{neverLiked, 1})
}

func (c *comparison) totals(ctx context.Context) error {
	have, err := c.asker.stats(ctx)
	if err != nil {
		return err
	}
	type totals struct{ posts, likes, dislikes int64 }
	var want totals
	for _, e := range c.want {
		want.likes += e.counts.Likes
		want.dislikes += e.counts.Dislikes
		if e.counts != (Count{}) {
			want.posts++
		}
	}
	if got := (totals{have.Posts, have.Likes, have.Dislikes}); got != want {
		c.add("/v1/stats: want %+v, have %+v", want, got)
	}
	if int32(len(have.Partitions)) != c.fold.partitions {
		return errors.New("/v1/stats: partitions are missing")
	}
	events := int64(0)
	for i, p := range have.Partitions {
		events += p.AsOf.Offset
		if why := c.impossible(int32(i), p.AsOf); why != "" || !p.Ready {
			c.add("/v1/stats: partition %d, ready %t: %s", i, p.Ready, why)
		}
	}
	if events != have.Events {
		c.add("/v1/stats: the as_of offsets sum to %d, events is %d", events, have.Events)
	}
	return nil
}

func (c *comparison) wanted(post uint64) *expected { return cmp.Or(c.want[post], &expected{}) }

func (c *comparison) impossible(partition int32, asOf position) string {
	may := c.covered[partition]
	if asOf.Partition == partition && asOf.Offset >= may.from && asOf.Offset <= may.to {
		return ""
	}
	return fmt.Sprintf("as of %v, but partition %d is complete at offset %d to %d", asOf, partition, may.from, may.to)
}

func (c *comparison) check(answers ...*answer) {
	for _, a := range answers {
		impossible := c.impossible(owner(a.post, c.fold.partitions), a.asOf)
		if why := cmp.Or(a.wrong(c.wanted(a.post)), impossible); why != "" {
			c.add("%s: post %d: %s", a.path, a.post, why)
		}
		c.mu.Lock()
		c.mu.result.took(a)
		c.mu.places[a.asOf] = true
		c.mu.result.Places = len(c.mu.places)
		c.mu.Unlock()
	}
}

func (c *comparison) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.result.Differences.Add("I7", format, args...)
}
