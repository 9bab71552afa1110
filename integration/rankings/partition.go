package rankings

import (
	"cmp"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"kudos/schema"
	"kudos/schema/kudosv1"
)

// partition is one partition of like-updates up to a position, with likes by post, region and bucket.
type partition struct {
	seq     uint64 // of the next record
	clock   int64  // the latest minute of any delta; schema.NoMinute before the first
	posts   []uint64
	index   map[uint64]int32 // into posts
	regions map[string]*region
	total   []standing // by post: the count in the last update
	shared  []bool     // by post: it is in several partitions
	sum     sum
	moved   map[*region]int64 // by the current record
}

type region struct {
	minutes, hours map[int64]*bucket
	total          []standing // by post: the sum of all deltas
}

// bucket has the likes of a minute or an hour: likes[slot[post]], for posts that have any.
type bucket struct {
	slot  map[int32]int32
	posts []int32
	likes []int64
}

// standing is a count, and the append time of its last change.
type standing struct{ likes, since int64 }

func newPartition() *partition {
	return &partition{clock: int64(schema.NoMinute), index: map[uint64]int32{}, regions: map[string]*region{},
		moved: map[*region]int64{}}
}

const unknownRegion = "ZZ"

// add adds a record; fault says what is wrong with it.
func (p *partition) add(rec Record) (fault string) {
	var m kudosv1.LikeUpdate
	if err := proto.Unmarshal(rec.Value, &m); err != nil {
		return fmt.Sprintf("offset %d cannot be decoded: %v", rec.Offset, err)
	}
	if m.Seq != p.seq {
		fault = fmt.Sprintf("offset %d has seq %d, not %d: records are missing", rec.Offset, m.Seq, p.seq)
	}
	p.seq = m.Seq + 1
	if string(rec.Key) == "_" {
		return fault
	}
	id, err := strconv.ParseUint(string(rec.Key), 10, 64)
	if err != nil {
		return fmt.Sprintf("offset %d has key %q", rec.Offset, rec.Key)
	}
	post := p.post(id)
	p.shared[post] = m.UserBuckets > 1
	p.total[post].move(m.LikeCount-p.total[post].likes, rec.TimeMs)
	clear(p.moved)
	for _, d := range m.Deltas {
		r := p.region(cmp.Or(string(d.Region), unknownRegion))
		add(r.minutes, d.Minute, post, d.Likes)
		add(r.hours, floor(d.Minute, minutesOfHour), post, d.Likes)
		p.moved[r] += d.Likes
		p.clock = max(p.clock, d.Minute)
	}
	for r, likes := range p.moved {
		r.total = longer(r.total, len(p.posts))
		r.total[post].move(likes, rec.TimeMs)
	}
	return fault
}

func (p *partition) post(id uint64) int32 {
	i, ok := p.index[id]
	if !ok {
		i = int32(len(p.posts))
		p.index[id] = i
		p.posts = append(p.posts, id)
		p.total, p.shared = append(p.total, standing{}), append(p.shared, false)
	}
	return i
}

func (p *partition) region(name string) *region {
	r := p.regions[name]
	if r == nil {
		r = &region{minutes: map[int64]*bucket{}, hours: map[int64]*bucket{}}
		p.regions[name] = r
	}
	return r
}

func add(buckets map[int64]*bucket, at int64, post int32, likes int64) {
	if likes == 0 {
		return
	}
	b := buckets[at]
	if b == nil {
		b = &bucket{slot: map[int32]int32{}}
		buckets[at] = b
	}
	slot, ok := b.slot[post]
	if !ok {
		slot = int32(len(b.posts))
		b.slot[post] = slot
		b.posts, b.likes = append(b.posts, post), append(b.likes, 0)
	}
	b.likes[slot] += likes
}

func (s *standing) move(by, at int64) {
	if by != 0 {
		s.likes += by
		s.since = at
	}
}

func longer[T any](s []T, n int) []T {
	if len(s) < n {
		s = append(s, make([]T, n-len(s))...)
	}
	return s
}
