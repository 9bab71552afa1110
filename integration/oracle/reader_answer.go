package oracle

import (
	"cmp"
	"fmt"
	"slices"

	"kudos/schema/kudosv1"
)

// answer is what a reader said about a post: its counts, a user's reaction, or a page of likers.
type answer struct {
	path     string // the request
	post     uint64
	asOf     position
	counts   *Count
	reaction *reaction
	page     *page
	broken   string // why no log can give this answer
	several  string // the same, unless the partition layout changes

	listing  *listing // list that the page belongs to
	streamed bool     // it came from a stream
}

func (a *answer) kind() string {
	switch {
	case a.streamed:
		return "counts in a stream"
	case a.counts != nil:
		return "counts"
	case a.page != nil:
		return "pages of likers"
	case a.reaction != nil && a.reaction.nameOnly:
		return "viewer's reactions"
	}
	return "reactions"
}

func (a *answer) about(post uint64) {
	if post != a.post && a.broken == "" {
		a.broken = fmt.Sprintf("is for post %d", post)
	}
}

type reaction struct {
	user    uint64
	action  kudosv1.Action // UNLIKE: none
	sinceMs int64
	region  string

	nameOnly bool // the answer has neither since nor region
}

type liker struct {
	user    uint64
	sinceMs int64
	region  string
}

// page is a part of the list of likers, starting after an already listed user.
type page struct {
	likers      []liker
	after       uint64
	first, last bool
}

type expected struct {
	counts    Count
	reactions map[uint64]Pair
	likers    []liker // in order of users
}

func (f *Fold) expected() map[uint64]*expected {
	posts := map[uint64]*expected{}
	for k, p := range f.Pairs {
		e := posts[k.Post]
		if e == nil {
			e = &expected{reactions: map[uint64]Pair{}}
			posts[k.Post] = e
		}
		e.reactions[k.User] = p
		e.counts = e.counts.plus(p.count())
		if p.count().Likes > 0 {
			e.likers = append(e.likers, liker{k.User, p.SinceMs, p.Region})
		}
	}
	for _, e := range posts {
		slices.SortFunc(e.likers, func(a, b liker) int { return cmp.Compare(a.user, b.user) })
	}
	return posts
}

func (a *answer) wrong(want *expected) string {
	switch {
	case a.broken != "", a.several != "":
		return a.broken + a.several
	case a.counts != nil && *a.counts != want.counts:
		return fmt.Sprintf("want %+v, have %+v", want.counts, *a.counts)
	case a.reaction != nil:
		r := want.reactionOf(a.reaction.user)
		if a.reaction.nameOnly {
			r = reaction{user: r.user, action: r.action, nameOnly: true}
		}
		if r != *a.reaction {
			return fmt.Sprintf("want %+v, have %+v", r, *a.reaction)
		}
	case a.page != nil:
		return a.page.wrong(want.likers)
	}
	return ""
}

// reactionOf returns the expected reaction of a user. Without a reaction there is neither since nor region.
func (e *expected) reactionOf(user uint64) reaction {
	p := e.reactions[user]
	if p.Action != kudosv1.Action_LIKE && p.Action != kudosv1.Action_DISLIKE { // users see theirs even if voided
		return reaction{user: user, action: kudosv1.Action_UNLIKE}
	}
	return reaction{user: user, action: p.Action, sinceMs: p.SinceMs, region: p.Region}
}

// wrong compares a page with all likers at the same position. The start of a page is hidden in its token, but the first
// page must start with the first liker, the last must end with the last one, and none may have gaps.
func (p *page) wrong(all []liker) string {
	at := 0
	switch {
	case len(p.likers) > 0:
		have := p.likers[0]
		if have.user <= p.after {
			return fmt.Sprintf("user %d comes after user %d", have.user, p.after)
		}
		at, _ = slices.BinarySearchFunc(all, have.user, func(l liker, user uint64) int {
			return cmp.Compare(l.user, user)
		})
	case !p.first:
		return "" // empty, after an unknown start
	}
	if p.first && at > 0 {
		return fmt.Sprintf("leaves out %+v", all[0])
	}
	for i, have := range p.likers {
		if at+i >= len(all) {
			return fmt.Sprintf("have %+v, who does not like the post", have)
		}
		if all[at+i] != have {
			return fmt.Sprintf("want %+v, have %+v", all[at+i], have)
		}
	}
	if end := at + len(p.likers); p.last && end < len(all) {
		return fmt.Sprintf("is the last page, but leaves out %+v", all[end])
	}
	return ""
}
