package schema

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecodeState checks that an accepted value round-trips in the current version, and that its size is bounded.
func FuzzDecodeState(f *testing.F) {
	f.Add(AppendPair(nil, &Pair{Reaction: Liked, TimeMs: 1, Offset: 2, SinceMs: 3, Region: Region{'U', 'S'}}))
	f.Add(AppendCounts(nil, Counts{Likes: 7, Dislikes: -1}))
	f.Add(AppendProgress(nil, &Progress{NextOffset: 9, LeaderEpoch: -1, NextSeq: 4, ClusterID: "abc", Partitions: 4}))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, value []byte) {
		var pair Pair
		if DecodePair(value, &pair) == nil {
			again := AppendPair(nil, &pair)
			require.LessOrEqual(t, len(again), 2+3*binary.MaxVarintLen64+len(Region{}))
			var same Pair
			require.NoError(t, DecodePair(again, &same))
			require.Equal(t, pair, same)
		}
		if counts, err := DecodeCounts(value); err == nil {
			again := AppendCounts(nil, counts)
			require.LessOrEqual(t, len(again), 1+2*binary.MaxVarintLen64)
			same, err := DecodeCounts(again)
			require.NoError(t, err)
			require.Equal(t, counts, same)
		}
		var progress Progress
		if DecodeProgress(value, &progress) == nil {
			require.Equal(t, value, AppendProgress(nil, &progress))
		}
	})
}

// FuzzParseKey checks that a key is of at most one kind and round-trips.
func FuzzParseKey(f *testing.F) {
	f.Add(AppendPostKey(nil, 42))
	f.Add([]byte("0042"))
	f.Add(AppendPairKey(nil, 1, 2))
	f.Add(AppendCountsKey(nil, 1))
	f.Add([]byte(StateProgressKey))
	f.Fuzz(func(t *testing.T, key []byte) {
		if post, err := ParsePostKey(key); err == nil {
			again, err := ParsePostKey(AppendPostKey(nil, post))
			require.NoError(t, err)
			require.Equal(t, post, again)
		}
		pairPost, user, isPair := ParsePairKey(key)
		if isPair {
			require.Equal(t, key, AppendPairKey(nil, pairPost, user))
		}
		countsPost, isCounts := ParseCountsKey(key)
		if isCounts {
			require.Equal(t, key, AppendCountsKey(nil, countsPost))
		}
		require.False(t, isPair && isCounts)
	})
}

// FuzzParseRegion checks that a well-formed region round-trips, and that any other is unknown.
func FuzzParseRegion(f *testing.F) {
	for _, s := range []string{"us", "US-CA", "", "Mars", "zz", "DE-", "\xff\xff", "GB-ENG"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		region, wellFormed := ParseRegion(text)
		if !wellFormed {
			require.Equal(t, UnknownRegion, region)
		}
		again, ok := ParseRegion(region.String())
		require.True(t, ok, "%q", region)
		require.Equal(t, region, again)
		bytes, ok := ParseRegion([]byte(text))
		require.Equal(t, wellFormed, ok)
		require.Equal(t, region, bytes)
	})
}
