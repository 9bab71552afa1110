package oracle

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

// Position is a position in a partition of like-updates: the next offset and the next seq.
type Position struct {
	Offset int64
	Seq    uint64
}

// published is like-updates up to a position.
type published struct {
	next  map[int32]int64 // offsets
	parts map[int32]*publishedPart
	cells map[Cell]Count
	// deltas is the number of deltas that add up to cells.
	deltas int64
	// posts are the counts in each post's last update, per partition.
	posts map[share]Count
}

type publishedPart struct {
	seq    uint64 // of the next record
	source int64  // next offset of likes, by the records read
	whole  bool   // the last record read ends a transaction
	// seen is what MySQL was seen to have, in order of positions, to be compared with the log.
	seen []Seen
	due  []Seen // of these, what was at the end of a transaction: to be compared with the fold
	fold Count  // the sum of the fold
}

func newPublished() *published {
	return &published{next: map[int32]int64{}, parts: map[int32]*publishedPart{}, cells: map[Cell]Count{},
		posts: map[share]Count{}}
}

func (u *published) part(p int32) *publishedPart {
	if u.parts[p] == nil {
		u.parts[p] = &publishedPart{whole: true}
	}
	return u.parts[p]
}

func (u *published) add(rec *kgo.Record, d *Differences) {
	part := u.part(rec.Partition)
	var m kudosv1.LikeUpdate
	if err := proto.Unmarshal(rec.Value, &m); err != nil {
		d.Add("I3", "like-updates/%d offset %d cannot be decoded: %v", rec.Partition, rec.Offset, err)
		return
	}
	u.reach(rec.Partition, rec.Offset, d)
	if m.Seq != part.seq {
		d.Add("I3", "like-updates/%d offset %d has seq %d, not %d", rec.Partition, rec.Offset, m.Seq, part.seq)
	}
	part.seq = m.Seq + 1
	if m.SourceOffset < part.source {
		d.Add("I3", "like-updates/%d offset %d has source offset %d after %d", rec.Partition, rec.Offset,
			m.SourceOffset, part.source)
	}
	part.source, part.whole = m.SourceOffset, string(rec.Key) == "_"
	if part.whole {
		return
	}
	post, err := strconv.ParseUint(string(rec.Key), 10, 64)
	if err != nil {
		d.Add("I5", "like-updates/%d offset %d has key %q", rec.Partition, rec.Offset, rec.Key)
		return
	}
	at := share{rec.Partition, post}
	after := u.posts[at]
	for _, delta := range m.Deltas {
		Add(u.cells, Cell{post, string(delta.Region), delta.Minute}, Count{delta.Likes, delta.Dislikes})
		after = after.plus(Count{delta.Likes, delta.Dislikes})
		u.deltas++
	}
	if counts := (Count{m.LikeCount, m.DislikeCount}); counts != after {
		d.Add("I3", "like-updates/%d offset %d has the counts %v, but %v result from its deltas", rec.Partition,
			rec.Offset, counts, after)
	}
	put(u.posts, at, Count{m.LikeCount, m.DislikeCount})
}

// reach compares what MySQL was seen to have at positions up to offset: all records before it are added.
func (u *published) reach(partition int32, offset int64, d *Differences) {
	part := u.part(partition)
	for ; len(part.seen) > 0 && part.seen[0].Offset <= offset; part.seen = part.seen[1:] {
		seen := part.seen[0]
		part.hold(partition, seen.Position, d)
		switch seen.source = part.source; {
		case part.whole:
			part.due = append(part.due, seen)
		case seen.Posts != seen.Hours: // the fold of no part of likes is the same, but these must be
			d.Add("I9", "%+v differs within", seen)
		}
	}
}

// folded compares what MySQL was seen to have with the fold of the partition of likes up to source.
func (p *publishedPart) folded(source int64, d *Differences) {
	for ; len(p.due) > 0 && p.due[0].source <= source; p.due = p.due[1:] {
		if s := p.due[0]; s.Posts != p.fold || s.Hours != p.fold {
			const text = "at %v of like-updates/%d, like_count added up to %v, like_hourly to %v, the fold to %v"
			d.Add("I9", text, s.Position, s.Partition, s.Posts, s.Hours, p.fold)
		}
	}
}

// hold compares a position that MySQL was seen at with the log: the first record at or after it must have its seq.
func (p *publishedPart) hold(partition int32, seen Position, d *Differences) {
	if seen.Seq != p.seq {
		d.Add("I3", "MySQL was seen at offset %d seq %d of like-updates/%d, where seq %d is next", seen.Offset,
			seen.Seq, partition, p.seq)
	}
}

// saw adds what MySQL was seen to have, unless that is before what has been read.
func (u *published) saw(at Seen) {
	part := u.part(at.Partition)
	i, found := slices.BinarySearchFunc(part.seen, at, func(a, b Seen) int { return int(a.Offset - b.Offset) })
	if at.Offset >= u.next[at.Partition] && (!found || part.seen[i] != at) {
		part.seen = slices.Insert(part.seen, i, at)
	}
}

func (p Position) String() string { return fmt.Sprintf("offset %d seq %d", p.Offset, p.Seq) }
