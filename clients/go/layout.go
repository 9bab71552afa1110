package kudos

import (
	"encoding/binary"
	"strconv"
)

// Layout determines the partition of a reaction.
type Layout struct {
	Partitions  int32            // of the topic likes
	UserBuckets map[uint64]int32 // topics.user_buckets of kudos: 42:16 is {42: 16}
}

// Key returns the record key of a user's events for a post: <post>, or <post>/<bucket>.
func Key(post, user uint64, l Layout) string {
	key := strconv.FormatUint(post, 10)
	if n := l.UserBuckets[post]; n > 0 {
		key += "/" + strconv.Itoa(int(PartitionOf(strconv.FormatUint(user, 10), n)))
	}
	return key
}

// Partition returns the partition of a user's events for a post.
func Partition(post, user uint64, l Layout) int32 {
	return PartitionOf(Key(post, user, l), l.Partitions)
}

// PartitionOf returns the partition of a key: murmur2, as Kafka's default partitioner.
func PartitionOf(key string, partitions int32) int32 {
	const m = 0x5bd1e995
	b, h := []byte(key), 0x9747b28c^uint32(len(key))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		h = h*m ^ (k^k>>24)*m
	}
	for i := len(b) - 1; i >= 0; i-- {
		h ^= uint32(b[i]) << (8 * i)
	}
	if len(b) > 0 {
		h *= m
	}
	h = (h ^ h>>13) * m
	return int32((h ^ h>>15) & 0x7fffffff % uint32(partitions))
}

// DatabaseOf returns which database of mysql.shards, from 0, has the rows of a partition.
func DatabaseOf(partition, databases int32) int32 { return partition % databases }
