package schema

import "encoding/binary"

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
