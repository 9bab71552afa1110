package schema

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

var updateCases = []struct {
	name   string
	proto  *kudosv1.LikeUpdate
	update Update
}{
	{"progress: no counts, no deltas", &kudosv1.LikeUpdate{Seq: 12, SourceOffset: 3456},
		Update{Seq: 12, SourceOffset: 3456}},
	{"a like moved from one region to another",
		&kudosv1.LikeUpdate{Seq: 1, LikeCount: 5, DislikeCount: -2, SourceOffset: 99, Deltas: []*kudosv1.Delta{
			{Region: []byte("US-CA"), Minute: 28_333_333, Likes: -1},
			{Region: []byte("ZZ"), Minute: 28_333_334, Likes: 1, Dislikes: -3},
		}},
		Update{Seq: 1, Counts: Counts{Likes: 5, Dislikes: -2}, SourceOffset: 99, Deltas: []Delta{
			{Region: Region{'U', 'S', '-', 'C', 'A'}, Minute: 28_333_333, Likes: -1},
			{Region: UnknownRegion, Minute: 28_333_334, Likes: 1, Dislikes: -3},
		}}},
	{"extreme values",
		&kudosv1.LikeUpdate{Seq: math.MaxUint64, LikeCount: math.MinInt64, DislikeCount: math.MaxInt64,
			SourceOffset: math.MaxInt64, Deltas: []*kudosv1.Delta{{Region: []byte("GB-ENG"), Minute: math.MinInt64,
				Likes: math.MinInt64, Dislikes: math.MaxInt64}}},
		Update{Seq: math.MaxUint64, Counts: Counts{Likes: math.MinInt64, Dislikes: math.MaxInt64},
			SourceOffset: math.MaxInt64, Deltas: []Delta{{Region: Region{'G', 'B', '-', 'E', 'N', 'G'},
				Minute: math.MinInt64, Likes: math.MinInt64, Dislikes: math.MaxInt64}}}},
	{"post with user buckets, moved to the first partition",
		&kudosv1.LikeUpdate{Seq: 3, UserBuckets: 16, Moved: proto.Int32(0)},
		Update{Seq: 3, Buckets: 16, Moved: true}},
	{"moved from another partition", &kudosv1.LikeUpdate{Seq: 3, LikeCount: 1, Moved: proto.Int32(7)},
		Update{Seq: 3, Counts: Counts{Likes: 1}, Moved: true, Other: 7}},
	{"empty", &kudosv1.LikeUpdate{}, Update{}},
}

// Nearly all posts are in one partition, so a bucket count of 1 is not encoded.
func TestOneUserBucketMeansNone(t *testing.T) {
	require.Equal(t, AppendUpdate(nil, &Update{Seq: 1}), AppendUpdate(nil, &Update{Seq: 1, Buckets: 1}))
}

func TestUpdateAgainstGeneratedCode(t *testing.T) {
	for _, tt := range updateCases {
		t.Run(tt.name, func(t *testing.T) {
			var got Update
			require.NoError(t, DecodeUpdate(marshal(t, tt.proto), &got))
			require.Equal(t, tt.update, got)

			var back kudosv1.LikeUpdate
			require.NoError(t, proto.Unmarshal(AppendUpdate(nil, &tt.update), &back))
			require.True(t, proto.Equal(tt.proto, &back), "%v", &back)

			require.Equal(t, append([]byte("prefix"), AppendUpdate(nil, &tt.update)...),
				AppendUpdate([]byte("prefix"), &tt.update))
		})
	}
}

func TestDecodeUpdateUsesDeltasAgain(t *testing.T) {
	u := Update{Deltas: make([]Delta, 3, 8)}
	was := &u.Deltas[0]
	require.NoError(t, DecodeUpdate(marshal(t, updateCases[1].proto), &u))
	require.Equal(t, updateCases[1].update, u)
	require.Same(t, was, &u.Deltas[0])
	require.NoError(t, DecodeUpdate(marshal(t, updateCases[0].proto), &u))
	require.Empty(t, u.Deltas)
	require.Equal(t, Counts{}, u.Counts)
}

func TestUpdateProtoOddities(t *testing.T) {
	base := marshal(t, updateCases[1].proto)
	oddities := map[string][]byte{
		"known varint as bytes":  bytesField(fieldSeq, "\x07"),
		"known deltas as varint": varintField(fieldDeltas, 1),
	}
	maps.Copy(oddities, laterFields)
	for name, more := range oddities {
		t.Run(name, func(t *testing.T) {
			value := slices.Concat(base, more)
			var got Update
			require.NoError(t, DecodeUpdate(value, &got))
			require.Equal(t, updateCases[1].update, got)
		})
	}
	t.Run("in a delta", func(t *testing.T) {
		delta := slices.Concat(marshal(t, updateCases[1].proto.Deltas[0]),
			bytesField(fieldDeltaLikes, "x"), varintField(fieldDeltaRegion, 1), // known, but with another type
			varintField(77, 1)) // unknown
		var got Update
		require.NoError(t, DecodeUpdate(bytesField(fieldDeltas, string(delta)), &got))
		require.Equal(t, updateCases[1].update.Deltas[:1], got.Deltas)
	})
	t.Run("delta without a region", func(t *testing.T) {
		var got Update
		require.NoError(t, DecodeUpdate(bytesField(fieldDeltas, ""), &got))
		require.Equal(t, []Delta{{Region: UnknownRegion}}, got.Deltas)
	})
}

func TestDecodeUpdateErrors(t *testing.T) {
	for name, value := range map[string]string{
		"truncated tag":            "\x80",
		"truncated varint":         "\x08\x80",
		"truncated delta":          "\x22\x05\x08",
		"truncated field in delta": "\x22\x02\x10\x80",
		"truncated region":         "\x22\x02\x0a\x05",
		"group without end":        "\x33\x08\x01",
		"truncated fixed64":        "\x39\x01",
	} {
		require.ErrorContains(t, DecodeUpdate([]byte(value), new(Update)), "decoding a like update: ", name)
	}
	require.ErrorContains(t, DecodeUpdate([]byte("\x22\x06\x0a\x04Mars"), new(Update)),
		`decoding a like update: region "Mars" is malformed`)
}

func TestMinuteOf(t *testing.T) {
	for ms, minute := range map[int64]int64{0: 0, 59_999: 0, 60_000: 1, 1_700_000_000_000: 28_333_333} {
		require.Equal(t, minute, MinuteOf(ms))
	}
}

// TestProgressUpdate checks that each number of layouts round-trips, and that the first one takes no bytes.
func TestProgressUpdate(t *testing.T) {
	plain := AppendUpdate(nil, &Update{Seq: 3})
	for layouts := range uint32(4) {
		for _, migrating := range []bool{false, true} {
			u := ProgressUpdate(layouts, migrating)
			u.Seq = 3
			b := AppendUpdate(nil, &u)
			require.Equal(t, layouts == 0 && !migrating, len(b) == len(plain))
			var got Update
			require.NoError(t, DecodeUpdate(b, &got))
			require.Equal(t, layouts, got.Layouts())
			require.Equal(t, migrating, got.Moved)
		}
	}
}
