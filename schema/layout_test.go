package schema

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestUserBuckets(t *testing.T) {
	many := make([]string, MaxBucketedPosts+1)
	for i := range many {
		many[i] = strconv.Itoa(i+1) + ":1024"
	}
	for _, tt := range []struct {
		list []string
		want UserBuckets
		err  string
	}{
		{nil, "", ""},
		{[]string{" 42:16", "7:2"}, "7:2,42:16", ""},
		{[]string{"18446744073709551615:1024"}, "18446744073709551615:1024", ""},
		{many[:MaxBucketedPosts], UserBuckets(strings.Join(many[:MaxBucketedPosts], ",")), ""},
		{many, "", "101 posts; at most 100 can have buckets"},
		{[]string{"42"}, "", `"42" is not <post>:<buckets>, such as 42:16`},
		{[]string{"0:2"}, "", `"0:2" is not <post>:<buckets>`},
		{[]string{"x:2"}, "", `"x:2" is not <post>:<buckets>`},
		{[]string{"1:2:3"}, "", `"1:2:3" is not <post>:<buckets>`},
		{[]string{"42:1"}, "", "a post can have 2 to 1024 buckets"},
		{[]string{"42:1025"}, "", "a post can have 2 to 1024 buckets"},
		{[]string{"42:2", "042:4"}, "", "post 42 is listed twice"},
	} {
		got, err := ParseUserBuckets(tt.list)
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
		again, err := ParseUserBuckets(got.List())
		require.NoError(t, err)
		require.Equal(t, got, again)
		require.LessOrEqual(t, len(got), maxUserBuckets)
	}
}

// TestLayout: Kafka's default partitioning of the key finds the owner; a post's partitions are those of all its users.
func TestLayout(t *testing.T) {
	layout, err := NewLayout(12, "42:5,43:1024")
	require.NoError(t, err)
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic("likes")
	for _, post := range []uint64{41, 42, 43} {
		owners, keys := map[int32]bool{}, map[string]bool{}
		for user := uint64(1); user <= 20_000; user++ {
			key := layout.AppendKey(nil, post, user)
			keys[string(key)] = true
			owner := layout.PartitionOf(post, user)
			require.Equal(t, kafka.Partition(&kgo.Record{Key: key}, 12), int(owner))
			owners[owner] = true
			parsed, err := ParseLikeKey(key)
			require.NoError(t, err)
			require.Equal(t, post, parsed)
		}
		require.Len(t, keys, int(layout.Buckets(post)))
		var all []int32
		for p := range int32(12) {
			if owners[p] {
				all = append(all, p)
			}
		}
		require.Equal(t, all, layout.PartitionsOf(post))
	}
	require.Equal(t, "41", string(layout.AppendKey(nil, 41, 7)))
	require.Equal(t, PartitionFor(41, 12), layout.PartitionOf(41, 7))
	require.Equal(t, "42/4", string(layout.AppendKey(nil, 42, 7)), "a user's bucket must never change")
	require.Equal(t, 4, kafka.Partition(&kgo.Record{Key: []byte("7")}, 5))
}

func TestParseLikeKey(t *testing.T) {
	for key, want := range map[string]uint64{"42": 42, "42/0": 42, "0042/0016": 42, "42/4294967295": 42} {
		got, err := ParseLikeKey([]byte(key))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	const noBucket, noPost = "no number after the slash", "is not a decimal post id"
	for key, want := range map[string]string{"42/": noBucket, "42/x": noBucket, "42/4294967296": noBucket,
		"42/1/2": noBucket, "42/-1": noBucket, "/1": "key of 0 bytes " + noPost, "x/1": noPost, "_": noPost} {
		_, err := ParseLikeKey([]byte(key))
		require.ErrorContains(t, err, want, key)
	}
}
