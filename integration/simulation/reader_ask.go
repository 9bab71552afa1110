package simulation

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"kudos/integration/oracle"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/schema/kudosv1"
)

// foldAt is the oracle's fold of a partition of likes, up to an offset that rarely goes back.
type foldAt struct {
	*oracle.Fold
	next int64
}

func (f *foldAt) to(w *world, p int32, offset int64) folded {
	if f.Fold == nil || offset < f.next {
		*f = foldAt{Fold: oracle.NewFold(w.plan.partitions)}
	}
	for entries := w.kafka.log(schema.TopicLikes, p).entries; f.next < min(offset, int64(len(entries))); f.next++ {
		e := &entries[f.next]
		event, ok := understand(e)
		switch {
		case !ok || !e.data():
		case event.OfUser():
			f.Void(p, event)
		case f.PartitionOf(event.Post) == p:
			f.Add(counted(p, f.next, event), f.next)
		}
	}
	return f.Pairs
}

type folded map[oracle.PairKey]oracle.Pair

func (f folded) reaction(post, user uint64) (r view.Reaction) {
	p, known := f[oracle.PairKey{Post: post, User: user}]
	if known && p.Action != kudosv1.Action_UNLIKE {
		region, _ := schema.ParseRegion(p.Region)
		r = view.Reaction{Reaction: schema.Action(p.Action).Reaction(), SinceMs: p.SinceMs, Region: region,
			Void: p.Void}
	}
	return r
}

func (f folded) counts(post uint64) (n schema.Counts) {
	for k := range f {
		switch r := f.reaction(k.Post, k.User); {
		case k.Post != post || r.Void:
		case r.Reaction == schema.Liked:
			n.Likes++
		case r.Reaction == schema.Disliked:
			n.Dislikes++
		}
	}
	return n
}

func (f folded) totals() (t view.Totals) {
	posts := map[uint64]bool{}
	for k := range f {
		n := f.counts(k.Post)
		if n == (schema.Counts{}) || posts[k.Post] {
			continue
		}
		posts[k.Post] = true
		t = view.Totals{Posts: t.Posts + 1, Likes: t.Likes + n.Likes, Dislikes: t.Dislikes + n.Dislikes}
	}
	return t
}

// likers returns who likes a post, in order.
func (f folded) likers(post uint64) (list []wire.Liker) {
	for k := range f {
		if r := f.reaction(k.Post, k.User); k.Post == post && r.Reaction == schema.Liked && !r.Void {
			list = append(list, wire.Liker{UserID: k.User, Since: wire.Millis(r.SinceMs), Region: r.Region.String()})
		}
	}
	slices.SortFunc(list, func(a, b wire.Liker) int { return int(a.UserID) - int(b.UserID) })
	return list
}

// What the reader is asked about: more than events are drawn for.
var askedPosts, askedUsers = []uint64{1, 2, 3, 4}, []uint64{1, 2, 3, 4}

// ask has the reader answer each kind of question, and compares each answer with the fold up to its position.
func (r *reader) ask() {
	if r == nil || r.w.likesLost || r.w.failure != nil {
		return
	}
	r.askTotals()
	if !r.askCounts(askedPosts) {
		for p := range r.w.plan.partitions {
			r.askCounts(slices.DeleteFunc(slices.Clone(askedPosts),
				func(post uint64) bool { return r.owner(post) != p }))
		}
	}
	for _, user := range askedUsers {
		r.askViewer(user)
	}
	for _, post := range askedPosts {
		r.askLikers(post)
	}
}

func (r *reader) owner(post uint64) int32 { return r.places.PartitionOf(post) }

// at checks the position of an answer, and returns the fold up to it.
func (l *lane) at(asOf wire.Position) folded {
	w, p := l.r.w, asOf.Partition
	committed, ok := w.progress(p)
	switch {
	case w.excused[likes(p)]: // the topics may have been truncated
	case asOf.Offset < l.seen[p]:
		w.fail("reader: %s/%d goes back: as of %d after %d", l.topic, p, asOf.Offset, l.seen[p])
	case ok && asOf.Offset > committed.NextOffset:
		w.fail("reader: %s/%d is as of %d, but folded up to %d", l.topic, p, asOf.Offset, committed.NextOffset)
	}
	l.seen[p] = asOf.Offset
	return l.folds[p].to(w, p, asOf.Offset)
}

func (l *lane) compare(what string, asOf, want, have any) {
	l.r.w.tally["reader: answers compared"]++
	if !reflect.DeepEqual(want, have) {
		l.r.w.fail("reader: %s of %s as of %v: %v, not %v", what, l.topic, asOf, have, want)
	}
}

// answered reports whether there is an answer. An error must say that a partition cannot be read now.
func (r *reader) answered(err error) bool {
	_, notReady := errors.AsType[*view.NotReadyError](err)
	switch {
	case notReady:
		r.w.tally["reader: not ready"]++
	case err != nil:
		r.w.fail("reader: answers with an error: %v", err)
	}
	return err == nil
}

func (r *reader) askTotals() {
	l, want := r.lanes[0], view.Totals{}
	for p := range r.w.plan.partitions {
		if asOf, err := l.AsOf(p); r.answered(err) {
			t := l.at(asOf).totals()
			want = view.Totals{Posts: want.Posts + t.Posts, Likes: want.Likes + t.Likes,
				Dislikes: want.Dislikes + t.Dislikes}
		}
	}
	l.compare("totals", l.seen, want, r.likes.Counts.Totals())
}

func (r *reader) askCounts(posts []uint64) bool {
	l := r.lanes[0]
	have, asOf, err := r.likes.Counts.Counts(posts)
	if !r.answered(err) {
		return false
	}
	want := make([]schema.Counts, len(posts))
	for _, at := range asOf {
		f := l.at(at)
		for i, post := range posts {
			if r.owner(post) == at.Partition {
				want[i] = f.counts(post)
			}
		}
	}
	l.compare("counts", asOf, want, have)
	return true
}

// askViewer asks for one user's reactions to all posts.
func (r *reader) askViewer(user uint64) {
	l := r.lanes[1]
	for p := range r.w.plan.partitions {
		have, asOf, err := r.likes.Reactions.Of(p, user, askedPosts)
		if !r.answered(err) {
			continue
		}
		f, want := l.at(asOf), make([]view.Reaction, len(askedPosts))
		for i, post := range askedPosts {
			want[i] = f.reaction(post, user)
			of, err := r.likes.Reactions.PartitionsOfUser(post, user)
			if r.answered(err) {
				l.compare("partitions", asOf, only(r.owner(post)), of)
			}
		}
		l.compare(fmt.Sprintf("reactions of user %d", user), asOf, want, have)
	}
}

// askLikers reads all pages of who likes a post, from all partitions, as while reactions move between them.
func (r *reader) askLikers(post uint64) {
	const limit = 2
	l := r.lanes[1]
	var have, want []wire.Liker
	for after, first := uint64(0), true; first || after > 0; first = false {
		var pages []view.Page
		for p := range r.w.plan.partitions {
			page, asOf, err := r.likes.Reactions.Likers(p, post, after, limit)
			if !r.answered(err) {
				return
			}
			if f := l.at(asOf); r.owner(post) == p {
				want = f.likers(post)
			}
			pages = append(pages, page)
		}
		page := view.MergePages(pages, limit)
		if len(page.Likers) > limit || page.Next > 0 && page.Next <= after {
			r.w.fail("reader: a page after user %d is %v", after, page)
			return
		}
		have, after = append(have, page.Likers...), page.Next
	}
	l.compare(fmt.Sprintf("likers of post %d", post), l.seen, want, have)
}

// unread returns which partition of a view has not reached the end, or is readable without a progress record.
func (w *world) unread() string {
	if w.reader == nil {
		return ""
	}
	for _, l := range w.reader.lanes {
		for p := range w.plan.partitions {
			if w.excused[likes(p)] {
				continue
			}
			var last schema.Progress
			value, known := w.table(l.topic, p)[schema.StateProgressKey]
			if known {
				_ = schema.DecodeProgress([]byte(value), &last)
			}
			switch asOf, err := l.AsOf(p); {
			case (err == nil) != known:
				return fmt.Sprintf("reader: %s/%d: progress is %v, but %v", l.topic, p, known, err)
			case asOf.Offset != last.NextOffset:
				return fmt.Sprintf("reader: %s/%d is as of %d of %d", l.topic, p, asOf.Offset, last.NextOffset)
			}
		}
	}
	return ""
}
