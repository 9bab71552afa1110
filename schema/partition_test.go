package schema

import (
	"encoding/binary"
	"hash"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Answers of org.apache.kafka.common.utils.Utils.murmur2, from Kafka's own tests.
func TestMurmur2KnownAnswers(t *testing.T) {
	for in, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		require.Equal(t, want, int32(murmur2([]byte(in))), in)
	}
}

// somePosts are ids of every length of key, the extremes and a seeded sample.
func somePosts() []uint64 {
	posts := []uint64{math.MaxUint64, math.MaxUint64 - 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint32}
	for id := uint64(1); id < math.MaxUint64/10; id *= 10 {
		posts = append(posts, id, id+1, 9*id)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		posts = append(posts, rng.Uint64()>>rng.IntN(64)|1)
	}
	return posts
}

func TestPartitionForIsKafkasDefault(t *testing.T) {
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic(TopicLikes)
	negative := 0
	for _, post := range somePosts() {
		key := AppendPostKey(nil, post)
		if int32(murmur2(key)) < 0 {
			negative++
		}
		for _, n := range []int32{1, 2, 3, 4, 7, 12, 16, 64, 1000, math.MaxInt32} {
			want := kafka.Partition(&kgo.Record{Key: key}, int(n))
			require.Equal(t, int32(want), PartitionFor(post, n), "post %d of %d partitions", post, n)
		}
	}
	require.Greater(t, negative, 100, "the sample must hold hashes whose sign bit matters")
}

func TestKeyPartitionIsKafkasDefault(t *testing.T) {
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic(TopicTrending)
	rng := rand.New(rand.NewPCG(3, 4))
	for length := range 64 {
		key := make([]byte, length) // an empty key is a key; only none is not
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		for _, n := range []int32{1, 3, 8, 64, math.MaxInt32} {
			want := kafka.Partition(&kgo.Record{Key: key}, int(n))
			require.Equal(t, int32(want), KeyPartition(key, n), "key %x of %d partitions", key, n)
		}
	}
}

func TestPartitionForKnownAnswers(t *testing.T) {
	// Pinned: a change would split posts over two states.
	got := make([]int32, 0, 8)
	for post := range uint64(8) {
		got = append(got, PartitionFor(post+1, 16))
	}
	require.Equal(t, []int32{15, 8, 15, 1, 6, 6, 3, 11}, got)
}

// gokaPartition does what goka 1.1.17 does with a hasher (Processor.hash, View.hash).
func gokaPartition(t *testing.T, h hash.Hash32, key string, partitions int32) int32 {
	_, err := h.Write([]byte(key))
	require.NoError(t, err)
	sum := int32(h.Sum32())
	if sum < 0 {
		sum = -sum
	}
	return sum % partitions
}

func TestStateKeysHashToTheirPostsPartition(t *testing.T) {
	for _, post := range somePosts() {
		for _, n := range []int32{1, 3, 16, 64} {
			want := PartitionFor(post, n)
			pair, counts := string(AppendPairKey(nil, post, post*31+7)), string(AppendCountsKey(nil, post))
			require.Equal(t, want, gokaPartition(t, NewStateKeyHasher(), pair, n), "pair of post %d", post)
			require.Equal(t, want, gokaPartition(t, NewStateKeyHasher(), counts, n), "counts of post %d", post)
		}
		h := NewStateKeyHasher()
		_, _ = h.Write(AppendPairKey(nil, post, 1))
		require.GreaterOrEqual(t, int32(h.Sum32()), int32(0), "goka would negate, Kafka masks")
	}
}

func TestStateKeyHasherIsAHash(t *testing.T) {
	const post, n = 1234567890123, 16
	key := AppendPairKey(nil, post, 5)
	h := NewStateKeyHasher()
	for _, b := range key { // in pieces
		_, err := h.Write([]byte{b})
		require.NoError(t, err)
	}
	sum := h.Sum32()
	require.Equal(t, PartitionFor(post, n), int32(sum%n))
	require.Equal(t, binary.BigEndian.AppendUint32([]byte("x"), sum), h.Sum([]byte("x")))
	require.Equal(t, 4, h.Size())
	require.Positive(t, h.BlockSize())

	h.Reset()
	_, err := h.Write(AppendCountsKey(nil, 77))
	require.NoError(t, err)
	require.Equal(t, PartitionFor(77, n), int32(h.Sum32()%n), "nothing of the key before Reset is left")

	// Private keys are shorter or longer than 8 bytes; they hash somewhere.
	short := NewStateKeyHasher()
	_, err = short.Write([]byte("_x"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, int32(short.Sum32()), int32(0))
}
