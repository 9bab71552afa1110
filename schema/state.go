package schema

import (
	"encoding/binary"
	"fmt"
)

// Reaction is the current reaction of a user to a post.
type Reaction uint8

const (
	// NoReaction is stored, not a tombstone: once that is compacted away, a late like could override a newer unlike.
	NoReaction Reaction = iota
	Liked
	Disliked
)

// Reaction returns the reaction that the action sets.
func (a Action) Reaction() Reaction {
	switch a {
	case Like:
		return Liked
	case Dislike:
		return Disliked
	}
	return NoReaction
}

// Counts are the counts of one user with this reaction.
func (r Reaction) Counts() Counts {
	switch r {
	case Liked:
		return Counts{Likes: 1}
	case Disliked:
		return Counts{Dislikes: 1}
	}
	return Counts{}
}

// Pair is the stored state of one (post, user): the latest action, and where its reaction is counted.
type Pair struct {
	Reaction Reaction
	// TimeMs (event time) and Offset (in likes) of the latest action. Together they order the events of a pair.
	TimeMs, Offset int64
	// SinceMs is the event time since which the reaction holds, Region where it counts and a withdrawal subtracts it.
	SinceMs int64
	Region  Region
	Void    bool // it does not count, because its user was voided
}

// Counts are what the reaction adds to the counts of its post.
func (p *Pair) Counts() Counts {
	if p.Void {
		return Counts{}
	}
	return p.Reaction.Counts()
}

// Counts are the totals of a post. They are signed so that a negative one, which is a bug, stays visible.
type Counts struct {
	Likes    int64 `json:"likes"`
	Dislikes int64 `json:"dislikes"`
}

func (c Counts) String() string { return fmt.Sprintf("%d / %d", c.Likes, c.Dislikes) }

// Plus returns c + o.
func (c Counts) Plus(o Counts) Counts { return Counts{c.Likes + o.Likes, c.Dislikes + o.Dislikes} }

// Minus returns c - o.
func (c Counts) Minus(o Counts) Counts { return Counts{c.Likes - o.Likes, c.Dislikes - o.Dislikes} }

// Progress is how far a partition's fold has come, and in which topics: one record per partition, in every transaction.
type Progress struct {
	// NextOffset is the next offset of likes to fold, and LeaderEpoch the epoch of the record before it, -1 if none.
	NextOffset  int64
	LeaderEpoch int32
	NextSeq     uint64 // the sequence number of the next record in like-updates
	// ClusterID, topic ids and partition count identify the offsets' cluster and topics, to detect recreated ones.
	ClusterID                    string
	SourceID, StateID, UpdatesID TopicID
	Partitions                   int32
	// UserBuckets and Partitions are the layout (NewLayout), and Layouts is the number of earlier layouts.
	UserBuckets UserBuckets
	Layouts     uint32
	Migrating   bool // reactions move from the previous layout (`kudos topics repartition`); folding waits
	// Alternating means that transactions use both transactional ids in turn. An owner that fences only one of them
	// would read a state that may still change: earlier builds, which do that, refuse this record.
	Alternating bool
	Regions     RegionRules // earlier builds, which do not know them, refuse the record
	// Voids means that events from the offset VoidsFrom of likes on may void users; those before are dead letters, as
	// they were for earlier builds, which refuse the record.
	Voids     bool
	VoidsFrom int64
	// Added means that the partition was added by the repartition in progress and has no voided users yet.
	Added bool
}

// TopicID is Kafka's topic id; a recreated topic gets another one.
type TopicID [16]byte

// Version 2 added changing layouts; records without them are still written as version 1. Version 3 is alternating,
// version 4 has regions, and version 5 has voids and perhaps regions.
const progressVersion1, progressVersion2, progressVersion3, progressVersion4, progressVersion = 1, 2, 3, 4, 5

const progressFixed = 1 + 8 + 4 + 8 + 3*16 + 4

// maxUserBuckets bounds len(UserBuckets): for each post 20 digits, 4 for the number of buckets, a colon and a comma.
const maxUserBuckets = MaxBucketedPosts * 26

// maxRegions bounds len(Regions): for each rule the offset, the version and 7 for each region.
const maxRegions = maxRegionRules * (24 + 7*MaxExtraRegions)

// AppendProgress appends the value of a progress record: version, next offset, leader epoch, next sequence number,
// three topic ids, number of partitions; from version 2 flags (1: migrating; from version 4 also 2: alternating; in
// version 5 also 4: added), number of earlier layouts, length of the user buckets (4 bytes each) and the user buckets;
// from version 4 length of the regions (4 bytes) and the regions; in version 5 the offset from which on events may void
// users (8 bytes); cluster id.
func AppendProgress(b []byte, p *Progress) []byte {
	version := byte(progressVersion1)
	switch {
	case p.Voids:
		version = progressVersion
	case p.Regions != "":
		version = progressVersion4
	case p.Alternating:
		version = progressVersion3
	case p.UserBuckets != "" || p.Layouts != 0 || p.Migrating:
		version = progressVersion2
	}
	b = append(b, version)
	b = binary.BigEndian.AppendUint64(b, uint64(p.NextOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(p.LeaderEpoch))
	b = binary.BigEndian.AppendUint64(b, p.NextSeq)
	b = append(b, p.SourceID[:]...)
	b = append(b, p.StateID[:]...)
	b = append(b, p.UpdatesID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Partitions))
	if version > progressVersion1 {
		flags := uint32(0)
		if p.Migrating {
			flags = 1
		}
		if version >= progressVersion4 && p.Alternating {
			flags |= 2
		}
		if version >= progressVersion && p.Added {
			flags |= 4
		}
		b = binary.BigEndian.AppendUint32(b, flags)
		b = binary.BigEndian.AppendUint32(b, p.Layouts)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.UserBuckets)))
		b = append(b, p.UserBuckets...)
	}
	if version >= progressVersion4 {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.Regions)))
		b = append(b, p.Regions...)
	}
	if version >= progressVersion {
		b = binary.BigEndian.AppendUint64(b, uint64(p.VoidsFrom))
	}
	return append(b, p.ClusterID...)
}

// DecodeProgress is the inverse of AppendProgress.
func DecodeProgress(b []byte, p *Progress) error {
	version := byte(progressVersion)
	if len(b) > 0 && b[0] >= progressVersion1 && b[0] < progressVersion {
		version = b[0]
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
		Alternating: version == progressVersion3,
		Voids:       version == progressVersion,
	}
	rest := b[progressFixed:]
	if version > progressVersion1 {
		r := valueReader{b: rest}
		text := func(limit uint32) string {
			size := r.uint32()
			if r.bad = r.bad || size > limit; r.bad {
				return ""
			}
			return string(r.bytes(int(size)))
		}
		flags, known := r.uint32(), uint32(1)
		got.Migrating, got.Layouts = flags&1 != 0, r.uint32()
		got.UserBuckets = UserBuckets(text(maxUserBuckets))
		if version >= progressVersion4 {
			known, got.Alternating = 3, flags&2 != 0
			got.Regions = RegionRules(text(maxRegions))
		}
		if version >= progressVersion {
			known, got.Added = 7, flags&4 != 0
			from := r.bytes(8)
			if !r.bad {
				got.VoidsFrom = int64(binary.BigEndian.Uint64(from))
			}
		}
		_, err := NewLayout(got.Partitions, got.UserBuckets)
		_, errRegions := got.Regions.Parse()
		// One of an earlier version would have been written.
		empty := !got.Alternating && got.UserBuckets == "" && got.Layouts == 0 && !got.Migrating
		if version >= progressVersion4 {
			empty = got.Regions == "" && !got.Voids
		}
		if err != nil || errRegions != nil || r.bad || empty || flags > known || got.VoidsFrom < 0 {
			return damaged("progress record of version %d has %d bytes and is malformed", version, len(b))
		}
		rest = r.b
	}
	got.ClusterID = string(rest)
	*p = got
	return nil
}

// ParsedRegions are the regions of the progress record.
func (p *Progress) ParsedRegions() Regions {
	r, err := p.Regions.Parse()
	if err != nil { // DecodeProgress and With have validated them
		panic(err)
	}
	return r
}

// Layout is the partition layout of the progress record.
func (p *Progress) Layout() Layout {
	l, err := NewLayout(p.Partitions, p.UserBuckets)
	if err != nil { // DecodeProgress and ParseUserBuckets have validated it
		panic(err)
	}
	return l
}
