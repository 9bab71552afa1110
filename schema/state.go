package schema

import (
	"encoding/binary"
	"fmt"
)

// Reaction is what a user has for a post now.
type Reaction uint8

const (
	// NoReaction is kept as a state: a tombstone, once compacted away, would let a late like come back.
	NoReaction Reaction = iota
	Liked
	Disliked
)

// Reaction returns the reaction that the action asks for.
func (a Action) Reaction() Reaction {
	switch a {
	case Like:
		return Liked
	case Dislike:
		return Disliked
	}
	return NoReaction
}

// Pair is the state of one (post, user): the latest action, and where its reaction is counted.
type Pair struct {
	Reaction Reaction
	// TimeMs (event time) and Offset (in likes) of the latest action; together they order the events of a pair.
	TimeMs, Offset int64
	// SinceMs is the event time from which the reaction holds, and Region where it
	// counts: a withdrawal takes it back there.
	SinceMs int64
	Region  Region
}

// Counts are a post's totals. Signed: a negative one is a defect to be seen.
type Counts struct{ Likes, Dislikes int64 }

// Plus is the sum of both.
func (c Counts) Plus(o Counts) Counts { return Counts{c.Likes + o.Likes, c.Dislikes + o.Dislikes} }

// Minus is c without o.
func (c Counts) Minus(o Counts) Counts { return Counts{c.Likes - o.Likes, c.Dislikes - o.Dislikes} }

// Progress says how far a partition's fold has come, and in which topics: one
// record per partition, written in every transaction.
type Progress struct {
	// NextOffset is the next offset of likes to fold, LeaderEpoch the epoch of the record before it (-1: none yet).
	NextOffset  int64
	LeaderEpoch int32
	// NextSeq is the seq of the next record in like-updates.
	NextSeq uint64
	// ClusterID, the topic ids and the partition count tell a re-created cluster or
	// topic from the one that the offsets speak of.
	ClusterID                    string
	SourceID, StateID, UpdatesID TopicID
	Partitions                   int32
	// UserBuckets and Partitions are the layout (NewLayout), Layouts how many others there were before it.
	UserBuckets UserBuckets
	Layouts     uint32
	// Moving: what lived elsewhere by the layout before is on its way (`kudos topics
	// repartition`), and nothing is folded meanwhile.
	Moving bool
}

// TopicID is Kafka's id of a topic; a topic deleted and created anew has another.
type TopicID [16]byte

// Version 2 came with layouts that change; version 1 is written where there is nothing that it could not say.
const progressVersion1, progressVersion = 1, 2

const progressFixed = 1 + 8 + 4 + 8 + 3*16 + 4

// maxUserBuckets is how long UserBuckets can be: for each post 20 digits, 4 of the number of buckets, colon and comma.
const maxUserBuckets = MaxBucketedPosts * 26

// AppendProgress appends the value of a progress record: version, next offset,
// leader epoch, next seq, the three topic ids, partition count; from version 2 on moving
// (0 or 1), layouts before, length of the user buckets (4 bytes each) and these; cluster id.
func AppendProgress(b []byte, p *Progress) []byte {
	version := byte(progressVersion1)
	if p.UserBuckets != "" || p.Layouts != 0 || p.Moving {
		version = progressVersion
	}
	b = append(b, version)
	b = binary.BigEndian.AppendUint64(b, uint64(p.NextOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(p.LeaderEpoch))
	b = binary.BigEndian.AppendUint64(b, p.NextSeq)
	b = append(b, p.SourceID[:]...)
	b = append(b, p.StateID[:]...)
	b = append(b, p.UpdatesID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Partitions))
	if version == progressVersion {
		moving := uint32(0)
		if p.Moving {
			moving = 1
		}
		b = binary.BigEndian.AppendUint32(b, moving)
		b = binary.BigEndian.AppendUint32(b, p.Layouts)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.UserBuckets)))
		b = append(b, p.UserBuckets...)
	}
	return append(b, p.ClusterID...)
}

// DecodeProgress is the inverse of AppendProgress.
func DecodeProgress(b []byte, p *Progress) error {
	version := byte(progressVersion)
	if len(b) > 0 && b[0] == progressVersion1 {
		version = progressVersion1
	}
	if err := checkState("progress record", b, version, max(progressFixed, len(b))); err != nil {
		return err
	}
	got := Progress{
		NextOffset:  int64(binary.BigEndian.Uint64(b[1:])),
		LeaderEpoch: int32(binary.BigEndian.Uint32(b[9:])),
		NextSeq:     binary.BigEndian.Uint64(b[13:]),
		SourceID:    TopicID(b[21:]),
		StateID:     TopicID(b[37:]),
		UpdatesID:   TopicID(b[53:]),
		Partitions:  int32(binary.BigEndian.Uint32(b[69:])),
	}
	rest := b[progressFixed:]
	if version == progressVersion {
		r := valueReader{b: rest}
		moving := r.uint32()
		got.Moving, got.Layouts = moving == 1, r.uint32()
		size := r.uint32()
		if moving > 1 || size > maxUserBuckets {
			r.bad = true
		} else {
			got.UserBuckets = UserBuckets(r.bytes(int(size)))
		}
		empty := got.UserBuckets == "" && got.Layouts == 0 && !got.Moving // would be of version 1
		if _, err := NewLayout(got.Partitions, got.UserBuckets); err != nil || r.bad || empty {
			return fmt.Errorf("state table: progress record of version %d has %d bytes, which are not what it says",
				version, len(b))
		}
		rest = r.b
	}
	got.ClusterID = string(rest)
	*p = got
	return nil
}

// Layout is where reactions live, as of the progress record.
func (p *Progress) Layout() Layout {
	l, err := NewLayout(p.Partitions, p.UserBuckets)
	if err != nil { // DecodeProgress has looked, and so did ParseUserBuckets
		panic(err)
	}
	return l
}
