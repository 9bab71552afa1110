package schema

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVoidEvents: only `kudos void` writes them, in Protobuf; nothing that decodes what clients send takes them.
func TestVoidEvents(t *testing.T) {
	for name, c := range map[string]struct {
		key    string
		e      Event
		reason PoisonReason // "": valid in likes
	}{
		"VOID":                {"", Event{UserID: 7, Action: Void}, ""},
		"UNVOID with a time":  {"", Event{UserID: 7, Action: Unvoid, TimeMs: 5}, ""},
		"VOID without a user": {"", Event{Action: Void}, ZeroID},
		"VOID of a post":      {"", Event{PostID: 1, UserID: 7, Action: Void}, UnknownAction},
		"VOID with a key":     {"1", Event{UserID: 7, Action: Void}, UnknownAction},
		"VOID before 1970":    {"", Event{UserID: 7, Action: Void, TimeMs: -1}, NegativeTime},
		"RECOUNT":             {"1", Event{PostID: 1, UserID: 7, Action: Recount}, ""},
		"RECOUNT, no post":    {"", Event{UserID: 7, Action: Recount}, ZeroID},
		"RECOUNT, no user":    {"1", Event{PostID: 1, Action: Recount}, ZeroID},
		"of another version":  {"1", Event{PostID: 1, UserID: 7, Action: Recount + 1}, UnknownAction},
		"LIKE":                {"1", Event{PostID: 1, UserID: 7, Action: Like}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.e.Region = UnknownRegion
			value := AppendEvent(nil, &c.e)
			var e Event
			err := DecodeRecord([]byte(c.key), value, &e)
			if c.reason != "" {
				require.Equal(t, c.reason, err.(*PoisonError).Reason)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.e, e)
			}
			require.Equal(t, c.e.Action == Like, DecodeEvent([]byte(c.key), value, &e) == nil)
		})
	}
	var e Event
	require.Error(t, DecodeRecord(nil, []byte(`{"user_id":7,"action":"VOID"}`), &e))
	require.Error(t, DecodeRecord(nil, []byte(`{"post_id":1,"user_id":7,"action":"RECOUNT"}`), &e))
}

func TestGoldenVoid(t *testing.T) {
	key := AppendVoidKey(nil, 0x0102)
	require.Equal(t, []byte("\x00\x00\x00\x00\x00\x00\x00\x00v\x00\x00\x00\x00\x00\x00\x01\x02"), key)
	require.Len(t, key, VoidKeySize)
	from, to := VoidKeys()
	for _, user := range []uint64{1, 0x0102, math.MaxUint64} {
		key := AppendVoidKey(nil, user)
		got, ok := ParseVoidKey(key)
		require.True(t, ok)
		require.Equal(t, user, got)
		require.Less(t, string(from), string(key))
		require.Less(t, string(key), string(to))
		_, _, pair := ParsePairKey(key)
		_, post := ParseCountsKey(key)
		require.False(t, pair || post)
	}
	require.Less(t, string(to), string(AppendCountsKey(nil, 1)), "no post is among them")
	for _, other := range []string{"", StateProgressKey, "\x00\x00\x00\x00\x00\x00\x00\x01v12345678"} {
		_, ok := ParseVoidKey([]byte(other))
		require.False(t, ok, "%q", other)
	}

	require.Equal(t, []byte{1, 1}, AppendVoid(nil, true))
	require.Equal(t, []byte{1, 0}, AppendVoid(nil, false))
	for _, void := range []bool{true, false} {
		got, err := DecodeVoid(AppendVoid(nil, void))
		require.NoError(t, err)
		require.Equal(t, void, got)
	}
	for _, wrong := range [][]byte{nil, {1}, {2, 1}, {1, 2}, {1, 1, 1}} {
		_, err := DecodeVoid(wrong)
		require.Error(t, err, "%v", wrong)
	}
}

func TestGoldenPairThatDoesNotCount(t *testing.T) {
	p := Pair{Reaction: Liked, TimeMs: 300, Offset: 5, SinceMs: 300, Region: Region{'D', 'E'}, Void: true}
	b := AppendPair(nil, &p)
	require.Equal(t, []byte{3, 0b1001, 0xac, 2, 5, 'D', 'E'}, b)
	var got Pair
	require.NoError(t, DecodePair(b, &got))
	require.Equal(t, p, got)
	require.Zero(t, got.Counts())
	got.Void = false
	require.Equal(t, Counts{Likes: 1}, got.Counts())
	b = AppendPair(nil, &got)
	require.EqualValues(t, 2, b[0], "as before there were voided users")
	require.NoError(t, DecodePair(b, &got))
	require.False(t, got.Void)
}

func TestGoldenProgressWithVoids(t *testing.T) {
	for _, p := range []Progress{
		{NextOffset: 1, LeaderEpoch: -1, Partitions: 4, ClusterID: "c", Voids: true},
		{NextOffset: 1, LeaderEpoch: -1, Partitions: 4, ClusterID: "c", Voids: true, Regions: "0:1:"},
		{NextOffset: 1, LeaderEpoch: -1, Partitions: 4, ClusterID: "c", Voids: true, VoidsFrom: 1 << 40,
			Alternating: true, Migrating: true, Added: true, Layouts: 3, UserBuckets: "42:16", Regions: "0:1:US-CA"},
	} {
		b := AppendProgress(nil, &p)
		require.EqualValues(t, 5, b[0])
		var got Progress
		require.NoError(t, DecodeProgress(b, &got))
		require.Equal(t, p, got)
		b[0]--
		if p.Regions == "" {
			require.Error(t, DecodeProgress(b, &got), "version 4 has regions")
		}
		p.Voids, p.VoidsFrom, p.Added = false, 0, false
		require.Less(t, AppendProgress(nil, &p)[0], byte(5))
	}
}
