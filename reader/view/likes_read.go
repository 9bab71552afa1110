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

// pin calls find with a partition's store while nothing is written to it, then use, unless nil. Both read as of asOf.
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

// read calls use with a snapshot reader of the partition, as of asOf.
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

// Counts returns the counts of posts, in the requested order, and the position of each partition that they are in, by
// partition. The counts of a post in several partitions are their sum.
func (l *Likes) Counts(posts []uint64) ([]schema.Counts, []wire.Position, error) {
	n, err := l.view.Partitions()
	if err != nil {
		return nil, nil, err
	}
	counts := make([]schema.Counts, len(posts))
	var few [4]int32
	owners := few[:0]
	asked := make([]askedPost, 0, len(posts))
	for i, post := range posts {
		owners = l.owners.append(owners[:0], post, n)
		for _, partition := range owners {
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

// askedPost is a post in one of its partitions, with its index in the request.
type askedPost struct {
	partition int32
	post      uint64
	index     int
}

// countsOf reads the counts of one post, more cheaply than countsIn.
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

// countsIn adds the counts that one partition has to counts; asked is sorted by post.
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

// Reaction returns a user's reaction to a post, and the position that it is as of. If the reaction may be in several
// partitions, the position is of the one that has it, or of the first.
func (l *Likes) Reaction(post, user uint64) (reaction Reaction, asOf wire.Position, err error) {
	partitions, err := l.PartitionsOfUser(post, user)
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

// Likers returns up to limit users above after who like a post, in order, and the after of the next page, 0 if this is
// the last. A page may have fewer users and not be the last. asOf is the position of the post's first partition.
func (l *Likes) Likers(post, after uint64, limit int) (page []wire.Liker, next uint64, asOf wire.Position, err error) {
	partitions, err := l.PartitionsOf(post)
	if err != nil {
		return nil, 0, asOf, err
	}
	if !l.opts.Reactions {
		return nil, 0, asOf, ErrNoReactions
	}
	pages := make([]likersPage, len(partitions))
	for i, partition := range slices.Backward(partitions) { // the first one last, which sets asOf
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

type likersPage struct {
	likers []wire.Liker
	next   uint64
}

func mergeLikers(pages []likersPage, limit int) (page []wire.Liker, next uint64) {
	if len(pages) == 1 {
		return pages[0].likers, pages[0].next
	}
	for _, p := range pages {
		if p.next != 0 && (next == 0 || p.next < next) {
			next = p.next // after it, that partition may have more
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

const scanFactor = 20 // bounds the reactions scanned per page, as a multiple of limit: nearly all may dislike the post

func likers(r *store.Reader, post, after uint64, limit int) (page []wire.Liker, next uint64, err error) {
	from := appendReactionKey(nil, post, after)
	to := append(appendReactionKey(nil, post, ^uint64(0)), 0) // after the largest user
	looked, last := 0, uint64(0)
	err = r.Scan(from, to, func(key, value []byte) (bool, error) {
		if bytes.Equal(key, from) { // the last of the previous page
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
