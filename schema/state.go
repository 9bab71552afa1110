package schema

import (
	"encoding/binary"
	"fmt"
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

// Version bytes, the first of every value in the state table.
const (
	pairVersion     = 1
	countsVersion   = 1
	progressVersion = 1
)

const (
	pairSize   = 1 + 1 + 8 + 8 + 8 + len(Region{})
	countsSize = 1 + 8 + 8
)

// AppendPair appends the value of a pair:
// version, reaction, time, offset, since (8 bytes each, big-endian), region (6).
func AppendPair(b []byte, p *Pair) []byte {
	b = append(b, pairVersion, byte(p.Reaction))
	b = binary.BigEndian.AppendUint64(b, uint64(p.TimeMs))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Offset))
	b = binary.BigEndian.AppendUint64(b, uint64(p.SinceMs))
	return append(b, p.Region[:]...)
}

// DecodePair is the inverse of AppendPair.
func DecodePair(b []byte, p *Pair) error {
	if err := checkState("pair", b, pairVersion, pairSize); err != nil {
		return err
	}
	if b[1] > byte(Disliked) {
		return fmt.Errorf("state table: pair with unknown reaction %d", b[1])
	}
	p.Reaction = Reaction(b[1])
	p.TimeMs = int64(binary.BigEndian.Uint64(b[2:]))
	p.Offset = int64(binary.BigEndian.Uint64(b[10:]))
	p.SinceMs = int64(binary.BigEndian.Uint64(b[18:]))
	p.Region = Region(b[26:])
	return nil
}

// AppendCounts appends the value of a post's counts: version, likes, dislikes.
func AppendCounts(b []byte, c Counts) []byte {
	b = append(b, countsVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Likes))
	return binary.BigEndian.AppendUint64(b, uint64(c.Dislikes))
}

// DecodeCounts is the inverse of AppendCounts.
func DecodeCounts(b []byte) (Counts, error) {
	if err := checkState("counts", b, countsVersion, countsSize); err != nil {
		return Counts{}, err
	}
	return Counts{
		Likes:    int64(binary.BigEndian.Uint64(b[1:])),
		Dislikes: int64(binary.BigEndian.Uint64(b[9:])),
	}, nil
}

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

func checkState(what string, b []byte, version byte, size int) error {
	switch {
	case len(b) == 0:
		return fmt.Errorf("state table: %s is empty", what)
	case b[0] != version:
		return fmt.Errorf("state table: %s has version %d, this program knows version %d only; run the version that wrote it, or a later one", what, b[0], version)
	case len(b) != size:
		return fmt.Errorf("state table: %s of version %d has %d bytes, not %d", what, version, len(b), size)
	}
	return nil
}
