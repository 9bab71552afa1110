package schema

import (
	"encoding/binary"
)

// Reaction is what a user has for a post now.
type Reaction uint8

const (
	// NoReaction is kept as a state: a tombstone, once compacted away, would let a
	// late like come back.
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

// Pair is the state of one (post, user): the latest action, and where its reaction
// is counted.
type Pair struct {
	Reaction Reaction
	// TimeMs (event time) and Offset (in likes) of the latest action; together they
	// order the events of a pair.
	TimeMs, Offset int64
	// SinceMs is the event time from which the reaction holds, and Region where it
	// counts: a withdrawal takes it back there.
	SinceMs int64
	Region  Region
}

// Counts are a post's totals. Signed: a negative one is a defect to be seen.
type Counts struct{ Likes, Dislikes int64 }

// Progress says how far a partition's fold has come, and in which topics: one
// record per partition, written in every transaction.
type Progress struct {
	// NextOffset is the next offset of likes to fold, LeaderEpoch the epoch of the
	// record before it (-1: none yet).
	NextOffset  int64
	LeaderEpoch int32
	// NextSeq is the seq of the next record in like-updates.
	NextSeq uint64
	// ClusterID, the topic ids and the partition count tell a re-created cluster or
	// topic from the one that the offsets speak of.
	ClusterID                    string
	SourceID, StateID, UpdatesID TopicID
	Partitions                   int32
}

// TopicID is Kafka's id of a topic; a topic deleted and created anew has another.
type TopicID [16]byte

const progressVersion = 1

const progressFixed = 1 + 8 + 4 + 8 + 3*16 + 4

// AppendProgress appends the value of a progress record: version, next offset,
// leader epoch, next seq, the three topic ids, partition count, cluster id.
func AppendProgress(b []byte, p *Progress) []byte {
	b = append(b, progressVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(p.NextOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(p.LeaderEpoch))
	b = binary.BigEndian.AppendUint64(b, p.NextSeq)
	b = append(b, p.SourceID[:]...)
	b = append(b, p.StateID[:]...)
	b = append(b, p.UpdatesID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Partitions))
	return append(b, p.ClusterID...)
}

// DecodeProgress is the inverse of AppendProgress.
func DecodeProgress(b []byte, p *Progress) error {
	if err := checkState("progress record", b, progressVersion, max(progressFixed, len(b))); err != nil {
		return err
	}
	p.NextOffset = int64(binary.BigEndian.Uint64(b[1:]))
	p.LeaderEpoch = int32(binary.BigEndian.Uint32(b[9:]))
	p.NextSeq = binary.BigEndian.Uint64(b[13:])
	p.SourceID = TopicID(b[21:])
	p.StateID = TopicID(b[37:])
	p.UpdatesID = TopicID(b[53:])
	p.Partitions = int32(binary.BigEndian.Uint32(b[69:]))
	p.ClusterID = string(b[progressFixed:])
	return nil
}
