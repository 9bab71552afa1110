package schema

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The golden bytes of every version of every state value. A line here is never
// changed: tables written with it exist. A new layout gets a new version and a new
// line, and the old line must still decode.
const (
	goldenPairV1 = "01" + "02" + // version, Disliked
		"0000018bcfe56800" + "0000000000000007" + // time, offset
		"0000018bcfe56400" + "55532d434100" // since, US-CA
	goldenCountsV1 = "01" + "0000000000000102" + "ffffffffffffffff" // 258 likes, -1 dislikes

	goldenProgressV1 = "01" + "0000000000000309" + "00000004" + "0000000000000203" + // offset, epoch, seq
		"01010101010101010101010101010101" + // topic id of likes
		"02020202020202020202020202020202" + // of the state table
		"03030303030303030303030303030303" + // of like-updates
		"00000010" + "4d6b5533" // partitions, cluster id
)

var (
	goldenPair = Pair{
		Reaction: Disliked, TimeMs: 1_700_000_000_000, Offset: 7,
		SinceMs: 1_699_999_998_976, Region: Region{'U', 'S', '-', 'C', 'A'},
	}
	goldenCounts   = Counts{Likes: 258, Dislikes: -1}
	goldenProgress = Progress{
		NextOffset: 777, LeaderEpoch: 4, NextSeq: 515, ClusterID: "MkU3",
		SourceID: filledID(1), StateID: filledID(2), UpdatesID: filledID(3), Partitions: 16,
	}
)

func filledID(b byte) (id TopicID) {
	for i := range id {
		id[i] = b
	}
	return id
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func TestGoldenPair(t *testing.T) {
	require.Equal(t, goldenPairV1, hex.EncodeToString(AppendPair(nil, &goldenPair)))
	var got Pair
	require.NoError(t, DecodePair(unhex(t, goldenPairV1), &got))
	require.Equal(t, goldenPair, got)
}

func TestGoldenCounts(t *testing.T) {
	require.Equal(t, goldenCountsV1, hex.EncodeToString(AppendCounts(nil, goldenCounts)))
	got, err := DecodeCounts(unhex(t, goldenCountsV1))
	require.NoError(t, err)
	require.Equal(t, goldenCounts, got)
}

func TestGoldenProgress(t *testing.T) {
	require.Equal(t, goldenProgressV1, hex.EncodeToString(AppendProgress(nil, &goldenProgress)))
	var got Progress
	require.NoError(t, DecodeProgress(unhex(t, goldenProgressV1), &got))
	require.Equal(t, goldenProgress, got)
}

func TestProgressBeforeTheFirstRecord(t *testing.T) {
	want := Progress{LeaderEpoch: -1, Partitions: 4} // and no cluster id
	var got Progress
	require.NoError(t, DecodeProgress(AppendProgress(nil, &want), &got))
	require.Equal(t, want, got)
}

func TestStateAppendsBehindWhatIsThere(t *testing.T) {
	prefix := []byte("prefix")
	require.Equal(t, append([]byte("prefix"), unhex(t, goldenPairV1)...), AppendPair(prefix, &goldenPair))
	require.Equal(t, append([]byte("prefix"), unhex(t, goldenCountsV1)...), AppendCounts(prefix, goldenCounts))
	require.Equal(t, append([]byte("prefix"), unhex(t, goldenProgressV1)...), AppendProgress(prefix, &goldenProgress))
}

// What a decoder does not know is an error that says what it is, and leaves the
// caller's value as it was.
func TestStateRefusesWhatItDoesNotKnow(t *testing.T) {
	kinds := []struct {
		name, golden string
		decode       func([]byte) error
		fixed        bool // a longer value is an error too
	}{
		{"pair", goldenPairV1, func(b []byte) error { p := Pair{}; err := DecodePair(b, &p); require.Zero(t, p); return err }, true},
		{"counts", goldenCountsV1, func(b []byte) error { c, err := DecodeCounts(b); require.Zero(t, c); return err }, true},
		{"progress record", goldenProgressV1, func(b []byte) error { p := Progress{}; err := DecodeProgress(b, &p); require.Zero(t, p); return err }, false},
	}
	for _, k := range kinds {
		t.Run(strings.ReplaceAll(k.name, " ", "_"), func(t *testing.T) {
			golden := unhex(t, k.golden)
			require.EqualError(t, k.decode(nil), "state table: "+k.name+" is empty")
			for _, version := range []byte{0, 2, 255} {
				b := append([]byte{version}, golden[1:]...)
				err := k.decode(b)
				require.ErrorContains(t, err, k.name+" has version ")
				require.ErrorContains(t, err, "knows version 1 only")
			}
			shortest := len(golden)
			if !k.fixed {
				shortest = progressFixed
				require.ErrorContains(t, k.decode(golden[:progressFixed-1]), "progress record of version 1 has 72 bytes, not 73")
			}
			for n := 1; n < shortest; n++ {
				require.ErrorContains(t, k.decode(golden[:n]), k.name+" of version 1 has ", "cut to %d bytes", n)
			}
			if k.fixed {
				require.ErrorContains(t, k.decode(append(golden, 0)), k.name+" of version 1 has ")
			}
		})
	}
}

func TestPairWithUnknownReaction(t *testing.T) {
	for _, reaction := range []byte{3, 4, 255} {
		b := unhex(t, goldenPairV1)
		b[1] = reaction
		var p Pair
		require.ErrorContains(t, DecodePair(b, &p), "pair with unknown reaction ")
		require.Zero(t, p)
	}
}

func TestReactionOfAction(t *testing.T) {
	require.Equal(t, Liked, Like.Reaction())
	require.Equal(t, Disliked, Dislike.Reaction())
	require.Equal(t, NoReaction, Unlike.Reaction())
}
