package schema

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Results of org.apache.kafka.common.utils.Utils.murmur2, from Kafka's own tests.
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

// somePosts are ids with every key length, the extremes, and a seeded sample.
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
	require.Greater(t, negative, 100, "the sample must contain negative hashes")
}

func TestKeyPartitionIsKafkasDefault(t *testing.T) {
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic(TopicTrending)
	rng := rand.New(rand.NewPCG(3, 4))
	for length := range 64 {
		key := make([]byte, length) // an empty key is a key, unlike a nil one
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
	// Pinned: a change would split posts over two partitions.
	got := make([]int32, 0, 8)
	for post := range uint64(8) {
		got = append(got, PartitionFor(post+1, 16))
	}
	require.Equal(t, []int32{15, 8, 15, 1, 6, 6, 3, 11}, got)
}
