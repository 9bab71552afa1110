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

// pin calls find with the store of a partition while nothing is written to it, and use, if it is not nil, after that.
// What both read is as of asOf.
func (l *Likes) pin(partition int32, find func(*store.Store) error, use func() error) (asOf wire.Position, err error) {
	err = l.view.Read(partition, func(s *store.Store, c stream.Copy) error {
		state, _, err := c.(*likesCopy).present()
		if err != nil {
			return err
		}
		asOf = state.asOf(partition)
		return find(s)
	}, use)
	return asOf, err
}

// read calls use with a reader of the partition as of asOf.
func (l *Likes) read(partition int32, use func(r *store.Reader) error) (asOf wire.Position, err error) {
	var r *store.Reader
	open := func(s *store.Store) (err error) {
		r, err = s.NewReader()
		return err
	}
	return l.pin(partition, open, func() error {
		defer r.Close()
		return use(r)
	})
}

// Counts returns the counts of posts, in the order asked for, and a position for each partition that they are in, in
// order. Those of a post in several partitions are their sum.
func (l *Likes) Counts(posts []uint64) ([]schema.Counts, []wire.Position, error) {
	n, err := l.view.Partitions()
	if err != nil {
		return nil, nil, err
	}
	counts := make([]schema.Counts, len(posts))
	var few [4]int32
	homes := few[:0]
	asked := make([]askedPost, 0, len(posts))
	for i, post := range posts {
		homes = l.homes.append(homes[:0], post, n)
		for _, partition := range homes {
			asked = append(asked, askedPost{partition, post, i})
		}
	}
	if len(asked) == 1 {
		asOf, err := l.countsOf(asked[0], &counts[0])
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
		position, err := l.countsIn(partition, asked[:end], counts)
		if err != nil {
			return nil, nil, err
		}
		asOf = append(asOf, position)
		asked = asked[end:]
	}
	return counts, asOf, nil
}

// askedPost is a post in one of its partitions, and its index in what was asked for.
type askedPost struct {
	partition int32
	post      uint64
	index     int
}

// countsOf reads the counts of one post, which is cheaper than countsIn.
func (l *Likes) countsOf(asked askedPost, counts *schema.Counts) (asOf wire.Position, err error) {
	return l.pin(asked.partition, func(s *store.Store) error {
		var key [9]byte
		_, err := s.Find(appendCountsKey(key[:0], asked.post), func(value []byte) (err error) {
			*counts, err = decodeCounts(value)
			return err
		})
		return err
	}, nil)
}

// countsIn adds what one partition has of posts, in order, to counts.
func (l *Likes) countsIn(partition int32, asked []askedPost, counts []schema.Counts) (asOf wire.Position, err error) {
	var key [9]byte
	return l.read(partition, func(r *store.Reader) error {
		return r.Lookup(len(asked),
			func(i int) []byte { return appendCountsKey(key[:0], asked[i].post) },
			func(i int, value []byte) error {
				c, err := decodeCounts(value)
				counts[asked[i].index] = counts[asked[i].index].Plus(c)
				return err
			})
	})
}

// Reaction returns what a user has for a post, and as of when. If it may be in several partitions, it is as of the one
// that has it, or of the first.
func (l *Likes) Reaction(post, user uint64) (reaction Reaction, asOf wire.Position, err error) {
	partitions, err := l.HomesOfUser(post, user)
	if err != nil {
		return reaction, asOf, err
	}
	if !l.opts.Reactions {
		return reaction, asOf, ErrNoReactions
	}
	for i, partition := range partitions {
		found := false
		at, err := l.pin(partition, func(s *store.Store) (err error) {
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

// Likers returns up to limit users above after who like a post, in order, and the after of the next page; 0: this was
// the last. It may return fewer and not be the last. asOf is that of the first of the partitions that the post is in.
func (l *Likes) Likers(post, after uint64, limit int) (page []wire.Liker, next uint64, asOf wire.Position, err error) {
	partitions, err := l.Homes(post)
	if err != nil {
		return nil, 0, asOf, err
	}
	if !l.opts.Reactions {
		return nil, 0, asOf, ErrNoReactions
	}
	pages := make([]likersPage, len(partitions))
	for i, partition := range slices.Backward(partitions) { // the first one last: asOf is its
		asOf, err = l.read(partition, func(r *store.Reader) (err error) {
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
	likers []wire.Liker
	next   uint64
}

// mergeLikers makes one page of those of several partitions.
func mergeLikers(pages []likersPage, limit int) (page []wire.Liker, next uint64) {
	if len(pages) == 1 {
		return pages[0].likers, pages[0].next
	}
	for _, p := range pages {
		if p.next != 0 && (next == 0 || p.next < next) {
			next = p.next // behind it, that partition may have others
		}
		page = append(page, p.likers...)
	}
	slices.SortFunc(page, func(a, b wire.Liker) int { return cmp.Compare(a.UserID, b.UserID) })
	if next != 0 {
		page = slices.DeleteFunc(page, func(l wire.Liker) bool { return l.UserID > next })
	}
	if len(page) > limit {
		page = page[:limit]
		next = page[limit-1].UserID
	}
	return page, next
}

// scanFactor bounds how many reactions one page of likers scans, for posts that nearly all dislike.
const scanFactor = 20

func likers(r *store.Reader, post, after uint64, limit int) (page []wire.Liker, next uint64, err error) {
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
			since, region := wire.Millis(reaction.SinceMs), reaction.Region.String()
			page = append(page, wire.Liker{UserID: last, Since: since, Region: region})
		}
		return true, err
	})
	return page, next, err
}
