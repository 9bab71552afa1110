package schema

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Layout determines the owner of a reaction: a partition of likes and of the topics derived from it. Zero is invalid.
type Layout struct {
	Partitions int32
	buckets    map[uint64]int32
}

// UserBuckets lists the posts that outgrew a partition. The users of such a post are spread over a number of buckets,
// each assigned to a partition as a post is. The format is "<post>:<buckets>", by post id, separated by commas.
type UserBuckets string

const (
	MaxBuckets       = 1024 // bounds the buckets of a post
	MaxBucketedPosts = 100  // bounds the posts with buckets, because each transaction of the fold contains the list
)

// ParseUserBuckets parses a list of "<post>:<buckets>".
func ParseUserBuckets(list []string) (UserBuckets, error) {
	buckets, err := parseUserBuckets(list)
	return formatUserBuckets(buckets), err
}

func parseUserBuckets(list []string) (map[uint64]int32, error) {
	buckets := map[uint64]int32{}
	for _, s := range list {
		id, count, _ := strings.Cut(strings.TrimSpace(s), ":")
		post, err := strconv.ParseUint(id, 10, 64)
		n, errCount := strconv.ParseInt(count, 10, 32)
		switch {
		case err != nil || errCount != nil || post == 0:
			return nil, fmt.Errorf("%q is not <post>:<buckets>, such as 42:16", s)
		case n < 2 || n > MaxBuckets:
			return nil, fmt.Errorf("%q: a post can have 2 to %d buckets", s, MaxBuckets)
		case buckets[post] != 0:
			return nil, fmt.Errorf("post %d is listed twice", post)
		}
		buckets[post] = int32(n)
	}
	if len(buckets) > MaxBucketedPosts {
		return nil, fmt.Errorf("%d posts; at most %d can have buckets", len(buckets), MaxBucketedPosts)
	}
	return buckets, nil
}

func formatUserBuckets(buckets map[uint64]int32) UserBuckets {
	var list []string
	for _, post := range slices.Sorted(maps.Keys(buckets)) {
		list = append(list, fmt.Sprintf("%d:%d", post, buckets[post]))
	}
	return UserBuckets(strings.Join(list, ","))
}

// List is the inverse of ParseUserBuckets.
func (u UserBuckets) List() []string {
	if u == "" {
		return nil
	}
	return strings.Split(string(u), ",")
}

// NewLayout returns the layout with these partitions and user buckets. It accepts only the canonical form of u.
func NewLayout(partitions int32, u UserBuckets) (Layout, error) {
	if u == "" {
		return Layout{Partitions: partitions}, nil
	}
	buckets, err := parseUserBuckets(u.List())
	if err != nil || u != formatUserBuckets(buckets) {
		return Layout{}, errors.New("user buckets are not in canonical form")
	}
	return Layout{partitions, buckets}, nil
}

// UserBuckets returns the posts with buckets.
func (l Layout) UserBuckets() UserBuckets { return formatUserBuckets(l.buckets) }

// Buckets is the number of buckets of a post; 1 means that all of its users are in one partition.
func (l Layout) Buckets(post uint64) int32 { return cmp.Or(l.buckets[post], 1) }

// AppendKey appends the record key in likes of a user's events about a post: <post>, or <post>/<bucket>. Kafka's
// default partitioning of this key is PartitionOf.
func (l Layout) AppendKey(b []byte, post, user uint64) []byte {
	b = AppendPostKey(b, post)
	if n := l.buckets[post]; n != 0 {
		var id [20]byte
		b = strconv.AppendInt(append(b, '/'), int64(KeyPartition(AppendPostKey(id[:0], user), n)), 10)
	}
	return b
}

// PartitionOf is the partition that owns the reaction of a user to a post.
func (l Layout) PartitionOf(post, user uint64) int32 {
	if len(l.buckets) == 0 {
		return PartitionFor(post, l.Partitions)
	}
	var key [32]byte
	return KeyPartition(l.AppendKey(key[:0], post, user), l.Partitions)
}

// PartitionsOf returns the partitions that own reactions to a post, in order: one, unless it has buckets.
func (l Layout) PartitionsOf(post uint64) []int32 {
	n := l.buckets[post]
	if n == 0 {
		return []int32{PartitionFor(post, l.Partitions)}
	}
	var owners []int32
	for bucket := range n {
		key := strconv.AppendInt(append(AppendPostKey(nil, post), '/'), int64(bucket), 10)
		owners = append(owners, KeyPartition(key, l.Partitions))
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

// PartitionFor returns which of n partitions owns a post: Kafka's default partitioning of the post's canonical key.
// Every writer should use it, but librdkafka (CRC32) and sarama (FNV-1a) do not; the fold forwards misrouted events.
func PartitionFor(postID uint64, n int32) int32 {
	var key [20]byte
	return KeyPartition(AppendPostKey(key[:0], postID), n)
}

// KeyPartition returns which of n partitions Kafka's default partitioning chooses for a key.
func KeyPartition(key []byte, n int32) int32 { return int32((murmur2(key) & 0x7fffffff) % uint32(n)) }

// murmur2 is the 32-bit MurmurHash2 of Austin Appleby (public domain) with the seed of Kafka's
// org.apache.kafka.common.utils.Utils.murmur2. franz-go does not export its own; a test compares the two.
func murmur2(b []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(b))
	for len(b) >= 4 {
		k := binary.LittleEndian.Uint32(b)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		b = b[4:]
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(b[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
