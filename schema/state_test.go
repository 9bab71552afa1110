package schema

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The golden bytes of every version of every state value. Never change a line: there are tables with these bytes. A new
// encoding gets a new version and a new line, and the old line must still decode.
const (
	goldenPairV1 = "01" + "02" + // version, Disliked
		"0000018bcfe56800" + "0000000000000007" + // time, offset
		"0000018bcfe56400" + "55532d434100" // since, US-CA
	goldenPairV2 = "02" + "16" + // version; Disliked, since differs, six-byte region
		"80d095ffbc31" + "07" + "8010" + // time, offset, 1,024 ms before the time
		"55532d434100" // US-CA
	goldenCountsV1 = "01" + "0000000000000102" + "ffffffffffffffff" // 258 likes, -1 dislikes
	goldenCountsV2 = "02" + "8404" + "01"

	goldenProgressV1 = "01" + "0000000000000309" + "00000004" + "0000000000000203" + // offset, epoch, sequence number
		"01010101010101010101010101010101" + // topic id of likes
		"02020202020202020202020202020202" + // of the state table
		"03030303030303030303030303030303" + // of like-updates
		"00000010" + "4d6b5533" // partitions, cluster id
	goldenProgressV2 = "02" + "0000000000000309" + "00000004" + "0000000000000203" +
		"01010101010101010101010101010101" + "02020202020202020202020202020202" + "03030303030303030303030303030303" +
		"00000010" + "00000001" + "00000003" + // partitions, moving, earlier layouts
		"0000000a" + "373a322c34323a313030" + // user buckets: 7:2,42:100
		"4d6b5533"
)

var (
	goldenPair = Pair{Reaction: Disliked, TimeMs: 1_700_000_000_000, Offset: 7, SinceMs: 1_699_999_998_976,
		Region: Region{'U', 'S', '-', 'C', 'A'}}
	goldenCounts   = Counts{Likes: 258, Dislikes: -1}
	goldenProgress = Progress{NextOffset: 777, LeaderEpoch: 4, NextSeq: 515, ClusterID: "MkU3", SourceID: filledID(1),
		StateID: filledID(2), UpdatesID: filledID(3), Partitions: 16}
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
	require.Equal(t, goldenPairV2, hex.EncodeToString(AppendPair(nil, &goldenPair)))
	for _, golden := range []string{goldenPairV1, goldenPairV2} {
		var got Pair
		require.NoError(t, DecodePair(unhex(t, golden), &got))
		require.Equal(t, goldenPair, got)
	}
}

func TestPairRegions(t *testing.T) {
	for _, c := range []struct {
		region string
		since  int64
		size   int
	}{{"", 1_700_000_000_000, 9}, {"US", 1_700_000_000_000, 11}, {"US-CA", 1_700_000_000_000, 15},
		{"GB-ENG", 1_700_000_000_000, 15}, {"US", 1_700_000_000_001, 12}, {"", 0, 15}} {
		p := Pair{Reaction: Liked, TimeMs: 1_700_000_000_000, Offset: 7, SinceMs: c.since}
		copy(p.Region[:], c.region)
		b := AppendPair(nil, &p)
		require.Len(t, b, c.size, "%+v", c)
		var got Pair
		require.NoError(t, DecodePair(b, &got))
		require.Equal(t, p, got)
	}
}

func TestGoldenCounts(t *testing.T) {
	require.Equal(t, goldenCountsV2, hex.EncodeToString(AppendCounts(nil, goldenCounts)))
	for _, golden := range []string{goldenCountsV1, goldenCountsV2} {
		got, err := DecodeCounts(unhex(t, golden))
		require.NoError(t, err)
		require.Equal(t, goldenCounts, got)
	}
}

func TestGoldenProgress(t *testing.T) {
	require.Equal(t, goldenProgressV1, hex.EncodeToString(AppendProgress(nil, &goldenProgress)))
	var got Progress
	require.NoError(t, DecodeProgress(unhex(t, goldenProgressV1), &got))
	require.Equal(t, goldenProgress, got)
}

func TestGoldenProgressOfAnotherLayout(t *testing.T) {
	want := goldenProgress
	want.UserBuckets, want.Layouts, want.Migrating = "7:2,42:100", 3, true
	require.Equal(t, goldenProgressV2, hex.EncodeToString(AppendProgress(nil, &want)))
	var got Progress
	require.NoError(t, DecodeProgress(unhex(t, goldenProgressV2), &got))
	require.Equal(t, want, got)
	layout := got.Layout()
	require.Equal(t, int32(16), layout.Partitions)
	require.Equal(t, want.UserBuckets, layout.UserBuckets())

	behind := goldenProgressV2[:2*progressFixed]
	for _, rest := range []string{
		"00000002" + "00000003" + "00000000", // neither 0 nor 1 for moving
		"00000000" + "00000000" + "00000000", // nothing that needs version 2
		"00000000" + "00000003" + "000000ff", // longer than the value
		"00000000" + "00000003" + "7fffffff",
		"00000000" + "00000003" + "00000004" + "34323a31",           // 42:1
		"00000000" + "00000003" + "00000009" + "34323a322c373a3130", // 42:2,7:10, not sorted
		"00000000" + "00000003" + "00000003" + "782c79",             // x,y
	} {
		require.ErrorContains(t, DecodeProgress(unhex(t, behind+rest), &Progress{}), "and is malformed", rest)
	}
}

// Version 3 has the fields of version 2. A build that knows only this refuses it: it does not know the second id.
func TestGoldenProgressOfAlternating(t *testing.T) {
	for golden, want := range map[string]Progress{
		"03" + goldenProgressV2[2:]: {UserBuckets: "7:2,42:100", Layouts: 3, Migrating: true},
		"03" + goldenProgressV1[2:len(goldenProgressV1)-8] + "000000000000000000000000" + "4d6b5533": {},
	} {
		p := goldenProgress
		p.UserBuckets, p.Layouts, p.Migrating, p.Alternating = want.UserBuckets, want.Layouts, want.Migrating, true
		require.Equal(t, golden, hex.EncodeToString(AppendProgress(nil, &p)))
		var got Progress
		require.NoError(t, DecodeProgress(unhex(t, golden), &got))
		require.Equal(t, p, got)
	}
}

func TestProgressBeforeTheFirstRecord(t *testing.T) {
	want := Progress{LeaderEpoch: -1, Partitions: 4} // no cluster id either
	var got Progress
	require.NoError(t, DecodeProgress(AppendProgress(nil, &want), &got))
	require.Equal(t, want, got)
}

func TestStateEncodingAppends(t *testing.T) {
	prefix := []byte("prefix")
	require.Equal(t, append([]byte("prefix"), unhex(t, goldenPairV2)...), AppendPair(prefix, &goldenPair))
	require.Equal(t, append([]byte("prefix"), unhex(t, goldenCountsV2)...), AppendCounts(prefix, goldenCounts))
	require.Equal(t, append([]byte("prefix"), unhex(t, goldenProgressV1)...), AppendProgress(prefix, &goldenProgress))
}

// The error for an unknown value names it, and the caller's value stays unchanged.
func TestStateRejectsUnknownVersions(t *testing.T) {
	pair := func(b []byte) error { p := Pair{}; err := DecodePair(b, &p); require.Zero(t, p); return err }
	counts := func(b []byte) error { c, err := DecodeCounts(b); require.Zero(t, c); return err }
	progress := func(b []byte) error { p := Progress{}; err := DecodeProgress(b, &p); require.Zero(t, p); return err }
	kinds := []struct {
		name, golden string
		decode       func([]byte) error
		fixed        bool // a longer value is an error, too
		newest       byte
	}{
		{"reaction", goldenPairV1, pair, true, 3},
		{"reaction", goldenPairV2, pair, true, 3},
		{"counts", goldenCountsV1, counts, true, 2},
		{"counts", goldenCountsV2, counts, true, 2},
		{"progress record", goldenProgressV2, progress, false, 5},
		{"progress record", goldenProgressV1, progress, false, 5},
	}
	for _, k := range kinds {
		t.Run(fmt.Sprintf("%s_%s", strings.ReplaceAll(k.name, " ", "_"), k.golden[:2]), func(t *testing.T) {
			golden := unhex(t, k.golden)
			of := fmt.Sprintf("%s of version %d ha", k.name, golden[0])
			require.EqualError(t, k.decode(nil), "state table: "+k.name+" is empty")
			for _, version := range []byte{0, k.newest + 1, 255} {
				err := k.decode(append([]byte{version}, golden[1:]...))
				require.ErrorContains(t, err, k.name+" has version ")
				require.ErrorContains(t, err, fmt.Sprintf("knows only versions up to %d", k.newest))
			}
			shortest := len(golden)
			if !k.fixed {
				shortest = progressFixed
				require.ErrorContains(t, k.decode(golden[:progressFixed-1]),
					fmt.Sprintf("progress record of version %d has 72 bytes, not 73", golden[0]))
			}
			for n := 1; n < shortest; n++ {
				require.ErrorContains(t, k.decode(golden[:n]), of, "truncated to %d bytes", n)
			}
			if k.fixed {
				require.ErrorContains(t, k.decode(append(golden, 0)), of)
			}
		})
	}
}

func TestPairWithUnknownReaction(t *testing.T) {
	var p Pair
	for _, reaction := range []byte{3, 4, 255} {
		b := unhex(t, goldenPairV1)
		b[1] = reaction
		require.ErrorContains(t, DecodePair(b, &p), "state table: unknown reaction ")
		require.Zero(t, p)
	}
	b := unhex(t, goldenPairV2)
	b[1] |= 3
	require.ErrorContains(t, DecodePair(b, &p), "state table: unknown reaction 3")
	b[1] = unhex(t, goldenPairV2)[1] | 0x20
	require.ErrorContains(t, DecodePair(b, &p), "and is malformed", "a flag of a later version")
	require.Zero(t, p)
}

func TestReactionOfAction(t *testing.T) {
	require.Equal(t, Liked, Like.Reaction())
	require.Equal(t, Disliked, Dislike.Reaction())
	require.Equal(t, NoReaction, Unlike.Reaction())
}
