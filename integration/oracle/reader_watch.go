package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Watched records what a reader said while events arrived, in order.
type Watched struct {
	answers []*answer
	// Unavailable counts the requests that were not answered, or answered with not ready.
	Unavailable int
	// Streams opened by Follow.
	Streams int
	// Shared is set if reactions are shared out: then answers come from several readers, one behind another.
	Shared bool
	// Migrating is set if the partition layout changed meanwhile: a reader then asks all partitions for each post.
	Migrating bool
}

// Answers returns how many questions were answered.
func (w *Watched) Answers() int { return len(w.answers) }

// watchEvery is the interval between rounds of queries, and watchMost bounds the number of recorded answers.
const (
	watchEvery = 5 * time.Millisecond
	watchMost  = 500_000
)

// Watch queries the reader at base about posts, and users' reactions to them, until ctx ends: for single counts, many
// counts, reactions, and likers, page by page. The reader may restart all the time; any other failure is an error.
func (o *Oracle) Watch(ctx context.Context, base string, posts, users []uint64) (*Watched, error) {
	if err := o.begin(ctx); err != nil {
		return nil, err
	}
	return Watch(ctx, base, posts, users, o.fold.partitions, watchEvery)
}

// Watch is like the method, with the number of partitions and an interval between rounds. With an error, it also
// returns what it has recorded.
func Watch(
	ctx context.Context, base string, posts, users []uint64, partitions int32, every time.Duration,
) (*Watched, error) {
	a, w := newAsker(base), &Watched{}
	defer a.close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	lists := make([]*listing, len(posts))
	for round := 0; len(w.answers) < watchMost; round++ {
		i := round % len(posts)
		user := users[(round+round/len(users))%len(users)] // each post is asked about with each user
		err := w.round(ctx, a, posts, i, user, partitions)
		if err == nil {
			err = w.turn(ctx, a, posts[i], &lists[i])
		}
		if ctx.Err() != nil {
			return w, nil
		}
		if err != nil {
			if !away(err) {
				return w, err
			}
			w.Unavailable++
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w, nil
		}
	}
	return w, fmt.Errorf("watching the reader at %s: %d responses are too many to record", base, len(w.answers))
}

// away reports whether err means that the reader is down, not ready or behind a page token, and not that it failed.
func away(err error) bool {
	var broken net.Error
	return errors.As(err, &broken) && !broken.Timeout() || errors.Is(err, errCut) ||
		refused(err, http.StatusServiceUnavailable, "not-ready") ||
		refused(err, http.StatusServiceUnavailable, "not-covered")
}

func (w *Watched) round(ctx context.Context, a *asker, posts []uint64, i int, user uint64, partitions int32) error {
	one, err := a.counts(ctx, posts[i])
	if err != nil {
		return err
	}
	w.answers = append(w.answers, one)
	for _, ask := range []func(context.Context, []uint64, uint64, int32) ([]*answer, error){
		a.manyCounts, a.manyReactions} {
		many, err := ask(ctx, posts, user, partitions)
		if err != nil {
			return err
		}
		w.answers = append(w.answers, many...)
	}
	r, err := a.reaction(ctx, posts[i], user)
	if err != nil {
		return err
	}
	w.answers = append(w.answers, r)
	return nil
}

type listing struct {
	token  string
	after  uint64
	listed map[uint64]bool
	// standing, while the list is checked, are the users who have liked the post continuously since the first page.
	standing map[uint64]bool
}

const watchedPage = 20

func (w *Watched) turn(ctx context.Context, a *asker, post uint64, at **listing) error {
	l := *at
	if l == nil {
		l = &listing{listed: map[uint64]bool{}}
		*at = l
	}
	ans, next, err := a.likers(ctx, post, watchedPage, l.token, l.after)
	if err != nil {
		return err
	}
	ans.listing = l
	w.answers = append(w.answers, ans)
	for _, liker := range ans.page.likers {
		l.listed[liker.user], l.after = true, liker.user
	}
	if l.token = next; next == "" {
		*at = nil
	}
	return nil
}

// CheckWatched compares each answer with the fold of exactly the part of the log that its as_of names.
func (o *Oracle) CheckWatched(ctx context.Context, w *Watched) (*ReaderResult, error) {
	var posts []uint64
	for _, a := range w.answers {
		posts = append(posts, a.post)
	}
	r, err := o.NewReplay(ctx, posts)
	if err != nil {
		return nil, err
	}
	return r.Check(ctx, w)
}

// Replay folds the events of the watched posts, and checks each answer when the log reaches its as_of.
type Replay struct {
	oracle     *Oracle
	partitions int32
	next       map[int32]int64     // the position
	read       map[int32]int64     // what all readers had read at the last check: nothing may be older
	pending    map[int32][]*answer // by partition, in order of as_of
	posts      map[uint64]*replayed
	d          *Differences
}

type replayed struct {
	fold     *Fold
	want     *expected // nil: to be recomputed
	listings map[*listing]bool
}

// NewReplay returns a Replay for answers about these posts. Each check reads only what is new in likes.
func (o *Oracle) NewReplay(ctx context.Context, posts []uint64) (*Replay, error) {
	if err := o.begin(ctx); err != nil {
		return nil, err
	}
	r := newReplay(posts, o.fold.partitions)
	r.oracle = o
	return r, nil
}

func newReplay(posts []uint64, partitions int32) *Replay {
	r := &Replay{partitions: partitions, next: map[int32]int64{}, read: map[int32]int64{},
		pending: map[int32][]*answer{}, posts: map[uint64]*replayed{}}
	for _, post := range posts {
		r.posts[post] = &replayed{fold: NewFold(partitions), listings: map[*listing]bool{}}
	}
	return r
}

// Check compares what was watched since the last check. If there is another check, all readers must have read all of
// likes, as ReaderLeft says, and nobody may write.
func (r *Replay) Check(ctx context.Context, watched ...*Watched) (*ReaderResult, error) {
	ends, err := r.oracle.ends(ctx, topicLikes)
	if err != nil {
		return nil, err
	}
	v := &ReaderResult{}
	r.begin(v, watched...)
	read := map[int32]int64{}
	err = r.oracle.readTo(ctx, topicLikes, r.next, ends, func(rec *kgo.Record) {
		r.reach(rec.Partition, rec.Offset)
		read[rec.Partition] = rec.Offset + 1
		if e, poison := Decode(rec.Key, rec.Value); poison == "" {
			e.Settle(rec.Timestamp.UnixMilli())
			r.add(rec.Partition, rec.Offset, e)
		}
	})
	if err != nil {
		return nil, err
	}
	r.end(ends)
	maps.Copy(r.read, read)
	return v, nil
}

// subject is what positions must not go back in: for queries a lane of a partition, for a stream each of its posts.
type subject struct {
	partition int32
	reactions bool
	post      uint64
}

// begin checks the order of the answers, and sorts them for the replay.
func (r *Replay) begin(v *ReaderResult, watched ...*Watched) {
	r.d = &v.Differences
	clear(r.pending)
	for _, post := range r.posts {
		clear(post.listings)
	}
	places := map[position]bool{}
	for _, w := range watched {
		before := map[subject]position{}
		for _, a := range w.answers {
			if w.Migrating {
				if a.several = ""; a.asOf.Partition != owner(a.post, r.partitions) {
					continue // as_of names the first partition of all, and only the header the post's own
				}
			}
			r.expect(a, before, w.Shared)
			v.took(a)
			places[a.asOf] = true
		}
	}
	for _, list := range r.pending {
		slices.SortStableFunc(list, func(a, b *answer) int { return cmp.Compare(a.asOf.Offset, b.asOf.Offset) })
	}
	v.Places = len(places)
}

func (r *Replay) expect(a *answer, before map[subject]position, shared bool) {
	p := a.asOf.Partition
	if own := owner(a.post, r.partitions); p != own && a.broken == "" {
		a.broken = fmt.Sprintf("the post is in partition %d", own)
	}
	s := subject{partition: p, reactions: a.counts == nil}
	if a.streamed {
		s.post = a.post
	}
	switch at := before[s]; {
	case a.asOf.Offset < at.Offset && !(shared && s.reactions):
		r.d.Add("I8", "%s: post %d: as_of %v is before the previous one, %v", a.path, a.post, a.asOf, at)
	case a.asOf.Offset < r.read[p]:
		r.d.Add("I8", "%s: post %d: as_of %v, but the readers had read up to %d", a.path, a.post, a.asOf, r.read[p])
		return // the fold is past it
	}
	before[s] = a.asOf
	r.pending[p] = append(r.pending[p], a)
}

// reach checks the answers with an as_of at or below offset: everything before it is folded.
func (r *Replay) reach(partition int32, offset int64) {
	list := r.pending[partition]
	for len(list) > 0 && list[0].asOf.Offset <= offset {
		r.check(list[0])
		list = list[1:]
	}
	r.pending[partition] = list
}

func (r *Replay) end(ends map[int32]int64) {
	for p := range r.pending {
		r.reach(p, ends[p])
		for _, a := range r.pending[p] {
			r.d.Add("I8", "%s: as of %v, but likes ends at %d", a.path, a.asOf, ends[p])
		}
	}
}

func (r *Replay) add(partition int32, offset int64, e Event) {
	if e.OfUser() {
		for _, post := range r.posts {
			post.fold.Void(partition, e)
		}
		return
	}
	post := r.posts[e.Post]
	if post == nil || owner(e.Post, r.partitions) != partition {
		return
	}
	e.Region = CountedAs(e.Region, nil)
	post.fold.Add(e, offset)
	post.want = nil
	if post.fold.Pairs[PairKey{e.Post, e.User}].count().Likes == 0 {
		for l := range post.listings {
			delete(l.standing, e.User)
		}
	}
}

func (r *Replay) check(a *answer) {
	post := r.posts[a.post]
	if post.want == nil {
		post.want = cmp.Or(post.fold.expected()[a.post], &expected{})
	}
	if why := a.wrong(post.want); why != "" {
		r.d.Add("I8", "%s: post %d as of %v: %s", a.path, a.post, a.asOf, why)
	}
	if a.page != nil {
		post.follow(a, r.d)
	}
}

// follow tracks who likes the post from the first page of a list to the last, and requires each of them to be listed.
func (p *replayed) follow(a *answer, d *Differences) {
	l := a.listing
	if a.page.first {
		l.standing = map[uint64]bool{}
		for _, liker := range p.want.likers {
			l.standing[liker.user] = true
		}
		p.listings[l] = true
	}
	if !a.page.last {
		return
	}
	delete(p.listings, l)
	for user := range l.standing {
		if !l.listed[user] {
			d.Add("I8", "%s: user %d liked post %d from the first page to the last, as of %v, but is on none", a.path,
				user, a.post, a.asOf)
		}
	}
}
