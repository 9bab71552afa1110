package view

import (
	"bytes"
	"cmp"
	"slices"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/store"
)

// Counts returns the counts of posts, in the order asked for, and a position for each
// partition that they are in, in order. Those of a post in several partitions are their
// sum.
func (l *Likes) Counts(posts []uint64) ([]schema.Counts, []wire.Position, error) {
	n, err := l.view.Partitions()
	if err != nil {
		return nil, nil, err
	}
	if len(posts) == 1 {
		if partition, ok := l.homes.only(posts[0], n); ok {
			return l.countsOf(posts[0], partition)
		}
	}
	asked := make([]askedPost, 0, len(posts))
	for i, post := range posts {
		if partition, ok := l.homes.only(post, n); ok {
			asked = append(asked, askedPost{partition, post, i})
			continue
		}
		for _, partition := range l.homes.of(post, n) {
			asked = append(asked, askedPost{partition, post, i})
		}
	}
	slices.SortFunc(asked, func(a, b askedPost) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.post, b.post))
	})
	counts := make([]schema.Counts, len(posts))
	var asOf []wire.Position
	for len(asked) > 0 {
		partition, end := asked[0].partition, 1
		for end < len(asked) && asked[end].partition == partition {
			end++
		}
		position, err := l.countsIn(partition, asked[:end], counts)
		if err != nil {
			return nil, nil, err
		}
		asOf = append(asOf, position)
		asked = asked[end:]
	}
	return counts, asOf, nil
}

// askedPost is a post and its place in what was asked for.
type askedPost struct {
	partition int32
	post      uint64
	index     int
}

// countsOf is Counts of one post.
func (l *Likes) countsOf(post uint64, partition int32) ([]schema.Counts, []wire.Position, error) {
	counts, asOf := make([]schema.Counts, 1), make([]wire.Position, 1)
	err := l.view.Read(partition, func(s *store.Store, c stream.Copy) (err error) {
		if asOf[0], err = c.(*likesCopy).asOf(); err != nil {
			return err
		}
		var key [9]byte
		_, err = s.Find(appendCountsKey(key[:0], post), func(value []byte) (err error) {
			counts[0], err = decodeCounts(value)
			return err
		})
		return err
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	return counts, asOf, nil
}

// countsIn adds what one partition has of posts, in order, to counts.
func (l *Likes) countsIn(partition int32, asked []askedPost, counts []schema.Counts) (asOf wire.Position, err error) {
	var key [9]byte
	err = l.read(partition, &asOf, func(r *store.Reader) error {
		return r.Lookup(len(asked),
			func(i int) []byte { return appendCountsKey(key[:0], asked[i].post) },
			func(i int, value []byte) error {
				c, err := decodeCounts(value)
				counts[asked[i].index] = counts[asked[i].index].Plus(c)
				return err
			})
	})
	return asOf, err
}

// read calls use with a reader of the partition as of asOf.
func (l *Likes) read(partition int32, asOf *wire.Position, use func(r *store.Reader) error) error {
	var r *store.Reader
	return l.view.Read(partition, func(s *store.Store, c stream.Copy) (err error) {
		if *asOf, err = c.(*likesCopy).asOf(); err != nil {
			return err
		}
		r, err = s.NewReader()
		return err
	}, func() error {
		defer r.Close()
		return use(r)
	})
}

// Reaction returns what a user has for a post, and as of when. If it may be in several
// partitions, it is as of the one that has it, or of the first.
func (l *Likes) Reaction(post, user uint64) (reaction Reaction, asOf wire.Position, err error) {
	partitions, err := l.HomesOfUser(post, user)
	if err != nil {
		return reaction, asOf, err
	}
	if !l.opts.Reactions {
		return reaction, asOf, ErrNoReactions
	}
	for i, partition := range partitions {
		var at wire.Position
		found := false
		err = l.view.Read(partition, func(s *store.Store, c stream.Copy) (err error) {
			if at, err = c.(*likesCopy).asOf(); err != nil {
				return err
			}
			found, err = s.Find(appendReactionKey(nil, post, user), func(value []byte) (err error) {
				reaction, err = decodeReaction(value)
				return err
			})
			return err
		}, nil)
		if found || i == 0 {
			asOf = at
		}
		if found || err != nil {
			return reaction, asOf, err
		}
	}
	return reaction, asOf, nil
}

// Likers returns up to limit users above after who like a post, in order, and the after
// of the next page; 0: this was the last. It may return fewer and not be the last. asOf is
// that of the first of the partitions that the post is in.
func (l *Likes) Likers(post, after uint64, limit int) (page []Liker, next uint64, asOf wire.Position, err error) {
	partitions, err := l.Homes(post)
	if err != nil {
		return nil, 0, asOf, err
	}
	if !l.opts.Reactions {
		return nil, 0, asOf, ErrNoReactions
	}
	pages := make([]likersPage, len(partitions))
	for i := len(partitions) - 1; i >= 0; i-- { // the first one last: asOf is its
		err = l.read(partitions[i], &asOf, func(r *store.Reader) (err error) {
			pages[i].likers, pages[i].next, err = likers(r, post, after, limit)
			return err
		})
		if err != nil {
			return nil, 0, asOf, err
		}
	}
	page, next = mergeLikers(pages, limit)
	return page, next, asOf, nil
}

// likersPage is a page of one partition, as likers returns it.
type likersPage struct {
	likers []Liker
	next   uint64
}

// mergeLikers makes one page of those of several partitions.
func mergeLikers(pages []likersPage, limit int) (page []Liker, next uint64) {
	if len(pages) == 1 {
		return pages[0].likers, pages[0].next
	}
	for _, p := range pages {
		if p.next != 0 && (next == 0 || p.next < next) {
			next = p.next // behind it, that partition may have others
		}
		page = append(page, p.likers...)
	}
	slices.SortFunc(page, func(a, b Liker) int { return cmp.Compare(a.UserID, b.UserID) })
	if next != 0 {
		page = slices.DeleteFunc(page, func(l Liker) bool { return l.UserID > next })
	}
	if len(page) > limit {
		page = page[:limit]
		next = page[limit-1].UserID
	}
	return page, next
}

// scanFactor bounds what one page of likers looks through, for posts that nearly all
// dislike.
const scanFactor = 20

func likers(r *store.Reader, post, after uint64, limit int) (page []Liker, next uint64, err error) {
	from := appendReactionKey(nil, post, after)
	to := append(appendReactionKey(nil, post, ^uint64(0)), 0) // behind the largest user
	looked, last := 0, uint64(0)
	err = r.Scan(from, to, func(key, value []byte) (bool, error) {
		if bytes.Equal(key, from) { // the last of the page before
			return true, nil
		}
		if len(page) == limit || looked == scanFactor*limit {
			next = last
			return false, nil
		}
		looked++
		last = userOf(key)
		reaction, err := decodeReaction(value)
		if err == nil && reaction.Reaction == schema.Liked {
			page = append(page, Liker{last, reaction.SinceMs, reaction.Region})
		}
		return true, err
	})
	return page, next, err
}
