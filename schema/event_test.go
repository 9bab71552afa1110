package schema

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

func requirePoison(t *testing.T, err error, reason PoisonReason, field, detail string) {
	t.Helper()
	var p *PoisonError
	require.ErrorAs(t, err, &p)
	require.Equal(t, reason, p.Reason)
	require.Equal(t, field, p.Field)
	require.Contains(t, p.Detail, detail)
	if field == "" {
		require.Equal(t, p.Detail, p.Error())
	} else {
		require.Equal(t, field+": "+p.Detail, p.Error())
	}
}

var eventCases = []struct {
	name  string
	proto *kudosv1.LikeEvent
	event Event
}{
	{"all fields",
		&kudosv1.LikeEvent{PostId: 7, UserId: 9, Action: kudosv1.Action_LIKE, TimeMs: 1_700_000_000_123,
			Region: []byte("US-CA")},
		Event{PostID: 7, UserID: 9, Action: Like, TimeMs: 1_700_000_000_123, Region: Region{'U', 'S', '-', 'C', 'A'}}},
	{"no time, no region", &kudosv1.LikeEvent{PostId: 1, UserId: 2, Action: kudosv1.Action_UNLIKE},
		Event{PostID: 1, UserID: 2, Action: Unlike, Region: UnknownRegion}},
	{"maximum values",
		&kudosv1.LikeEvent{PostId: math.MaxUint64, UserId: math.MaxUint64, Action: kudosv1.Action_DISLIKE,
			TimeMs: math.MaxInt64, Region: []byte("JP")},
		Event{PostID: math.MaxUint64, UserID: math.MaxUint64, Action: Dislike, TimeMs: math.MaxInt64,
			Region: Region{'J', 'P'}}},
}

func TestEventAgainstGeneratedCode(t *testing.T) {
	for _, tt := range eventCases {
		t.Run(tt.name, func(t *testing.T) {
			var got Event
			require.NoError(t, DecodeEvent(nil, marshal(t, tt.proto), &got))
			require.Equal(t, tt.event, got)

			var back kudosv1.LikeEvent
			require.NoError(t, proto.Unmarshal(AppendEvent(nil, &tt.event), &back))
			require.True(t, proto.Equal(tt.proto, &back), "%v", &back)

			require.Equal(t, append([]byte("prefix"), AppendEvent(nil, &tt.event)...),
				AppendEvent([]byte("prefix"), &tt.event))
		})
	}
}

func TestEventWithRegistryFraming(t *testing.T) {
	want := eventCases[0].event
	for name, value := range map[string][]byte{
		"Protobuf": slices.Concat([]byte{0, 0, 0, 1, 0x7b, 0}, marshal(t, eventCases[0].proto)),
		"JSON":     []byte("\x00\x00\x00\x01{" + `{"post_id":7,"user_id":9,"action":"LIKE","time_ms":1700000000123,"region":"US-CA"}`),
		"any id":   []byte("\x00{{{{" + `{"post_id":7,"user_id":9,"action":"LIKE","time_ms":"1700000000123","region":"us-ca"}`),
	} {
		t.Run(name, func(t *testing.T) {
			var got Event
			require.NoError(t, DecodeEvent([]byte("7"), value, &got))
			require.Equal(t, want, got)
		})
	}
}

func varintField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func bytesField(num protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), v)
}

var laterFields = map[string][]byte{
	"unknown varint":  varintField(100, 1),
	"unknown bytes":   bytesField(6, "later"),
	"unknown fixed32": protowire.AppendFixed32(protowire.AppendTag(nil, 7, protowire.Fixed32Type), 1),
	"unknown fixed64": protowire.AppendFixed64(protowire.AppendTag(nil, 8, protowire.Fixed64Type), 1),
	"unknown group": protowire.AppendGroup(protowire.AppendTag(nil, 20, protowire.StartGroupType), 20,
		varintField(1, 5)),
}

func TestEventProtoOddities(t *testing.T) {
	base := marshal(t, eventCases[0].proto)
	want := eventCases[0].event
	with := func(change func(*Event)) Event { e := want; change(&e); return e }
	withRegion := func(r Region, malformed bool) Event {
		return with(func(e *Event) { e.Region, e.RegionMalformed = r, malformed })
	}

	type oddity struct {
		more []byte
		want Event
	}
	oddities := map[string]oddity{
		"known field with another wire type": {bytesField(1, "12"), want},
		"region with another wire type":      {varintField(5, 12), want},
		"repeated field, last value wins":    {varintField(1, 12), with(func(e *Event) { e.PostID = 12 })},
		"repeated region":                    {bytesField(5, "de"), withRegion(Region{'D', 'E'}, false)},
		"malformed region":                   {bytesField(5, "Mars"), withRegion(UnknownRegion, true)},
		"region not in UTF-8":                {bytesField(5, "\xff\xff"), withRegion(UnknownRegion, true)},
		"empty region":                       {bytesField(5, ""), withRegion(UnknownRegion, false)},
		"malformed region, then a valid one": {slices.Concat(bytesField(5, "Mars"), bytesField(5, "FR")),
			withRegion(Region{'F', 'R'}, false)},
		"action above 32 bits is truncated": {varintField(3, 1<<32|2), with(func(e *Event) { e.Action = Unlike })},
	}
	for name, more := range laterFields {
		oddities[name] = oddity{more, want}
	}
	for name, tt := range oddities {
		t.Run(name, func(t *testing.T) {
			value := slices.Concat(base, tt.more)
			var got Event
			require.NoError(t, DecodeEvent(nil, value, &got))
			require.Equal(t, tt.want, got)
			require.Empty(t, differsFromGenerated(value, &got))
		})
	}
}

func TestDecodeEventForgetsTheEventBefore(t *testing.T) {
	got := Event{PostID: 99, UserID: 98, Action: Dislike, TimeMs: 97, Region: Region{'D', 'E'}, RegionMalformed: true}
	require.NoError(t, DecodeEvent([]byte("1"),
		AppendEvent(nil, &Event{UserID: 2, Action: Like, Region: UnknownRegion}), &got))
	require.Equal(t, Event{PostID: 1, UserID: 2, Action: Like, Region: UnknownRegion}, got)
}

func TestEventKey(t *testing.T) {
	with := func(post uint64) []byte {
		return AppendEvent(nil, &Event{PostID: post, UserID: 2, Action: Like, Region: UnknownRegion})
	}
	for _, tt := range []struct {
		key  string
		post uint64 // in the value
		want uint64
	}{
		{"7", 7, 7}, {"7", 0, 7}, {"007", 7, 7}, {"007", 0, 7}, {"", 7, 7},
	} {
		var e Event
		require.NoError(t, DecodeEvent([]byte(tt.key), with(tt.post), &e), tt)
		require.Equal(t, tt.want, e.PostID, tt)
	}
	var e Event
	requirePoison(t, DecodeEvent([]byte("8"), with(7), &e), KeyMismatch,
		"post_id", "is 7 in the value but 8 in the key")
	requirePoison(t, DecodeEvent([]byte("0"), with(7), &e), KeyMismatch,
		"post_id", "is 7 in the value but 0 in the key")
	requirePoison(t, DecodeEvent([]byte("post-7"), with(7), &e), KeyMismatch,
		"key", `"post-7" is not a decimal post id`)
	requirePoison(t, DecodeEvent([]byte("0"), with(0), &e), ZeroID, "post_id", "is missing or 0")
	requirePoison(t, DecodeEvent(nil, with(0), &e), ZeroID, "post_id", "is missing or 0")
}

func TestPoison(t *testing.T) {
	event := func(post, user uint64, action kudosv1.Action, ms int64) []byte {
		return marshal(t, &kudosv1.LikeEvent{PostId: post, UserId: user, Action: action, TimeMs: ms})
	}
	const malformed, framing = "neither Protobuf nor JSON", "no LikeEvent with a schema registry's framing"
	huge := `{"post_id":1,"user_id":2,"action":"LIKE","x":"` + strings.Repeat("x", MaxEventBytes) + `"}`
	seen := map[PoisonReason]bool{Misplaced: true} // detected by the fold, not by a codec
	for name, tt := range map[string]struct {
		value         []byte
		reason        PoisonReason
		field, detail string
	}{
		"empty":                     {nil, Undecodable, "", "value is empty"},
		"text":                      {[]byte("hello"), Undecodable, "", malformed},
		"truncated tag":             {[]byte{0x80}, Undecodable, "", malformed},
		"truncated varint":          {[]byte{0x08, 0x80}, Undecodable, "", malformed},
		"varint of 11 bytes":        {[]byte("\x08" + strings.Repeat("\xff", 11)), Undecodable, "", malformed},
		"truncated region":          {[]byte{0x2a, 5, 'U'}, Undecodable, "", malformed},
		"zero, too short":           {[]byte{0x00, 0x01}, Undecodable, "", framing},
		"framed, nothing after":     {[]byte{0, 0, 0, 0, 7}, Undecodable, "", framing},
		"framed, another message":   {[]byte{0, 0, 0, 0, 7, 2, 2, 0x08, 1}, Undecodable, "", framing},
		"framed, empty":             {[]byte{0, 0, 0, 0, 7, 0}, ZeroID, "post_id", "is missing or 0"},
		"field number 0":            {[]byte{0x08, 1, 0x00, 0x01}, Undecodable, "", malformed},
		"group without end":         {[]byte{0x33, 0x08, 0x01}, Undecodable, "", malformed},
		"group end without start":   {[]byte{0x34}, Undecodable, "", malformed},
		"no post":                   {event(0, 2, 1, 0), ZeroID, "post_id", "is missing or 0"},
		"no user":                   {event(1, 0, 1, 0), ZeroID, "user_id", "is missing or 0"},
		"no action":                 {event(1, 2, 0, 0), UnknownAction, "action", "LIKE, UNLIKE and DISLIKE"},
		"action of a later version": {event(1, 2, 4, 0), UnknownAction, "action", "unknown"},
		"action 255":                {event(1, 2, 255, 0), UnknownAction, "action", "unknown"},
		"action 256 plus a like":    {event(1, 2, 257, 0), UnknownAction, "action", "unknown"},
		"negative action":           {event(1, 2, -255, 0), UnknownAction, "action", "unknown"},
		"largest action varint": {appendVarint(event(1, 2, 0, 0), fieldAction, math.MaxUint64), UnknownAction,
			"action", "unknown"},
		"negative time": {event(1, 2, 1, -1), NegativeTime, "time_ms", "is negative"},
		"too large":     {[]byte(huge), OverSize, "", "the limit is 4096"},
		"key mismatch":  {event(5, 2, 1, 0), KeyMismatch, "post_id", "is 5 in the value but 1 in the key"},
	} {
		seen[tt.reason] = true
		t.Run(name, func(t *testing.T) {
			key := []byte("1")
			if tt.field == "post_id" && tt.reason == ZeroID {
				key = nil
			}
			requirePoison(t, DecodeEvent(key, tt.value, new(Event)), tt.reason, tt.field, tt.detail)
		})
	}
	for _, reason := range PoisonReasons {
		require.True(t, seen[reason], "no case for %s", reason)
	}
	require.Len(t, seen, len(PoisonReasons), "PoisonReasons must list every reason")
}

func TestSizeLimitIsInclusive(t *testing.T) {
	head, tail := `{"user_id":2,"action":"LIKE","x":"`, `"}`
	value := head + strings.Repeat("x", MaxEventBytes-len(head)-len(tail)) + tail
	require.Len(t, value, MaxEventBytes)
	require.NoError(t, DecodeEvent([]byte("1"), []byte(value), new(Event)))
}

func TestResolveTime(t *testing.T) {
	const now = 1_700_000_000_000
	for _, tt := range []struct {
		name     string
		in, want int64
		wantCap  bool
	}{
		{"absent: record time", 0, now, false},
		{"past", 1, 1, false},
		{"now", now, now, false},
		{"ahead, within the limit", now + 59_999, now + 59_999, false},
		{"at the limit", now + 60_000, now + 60_000, false},
		{"1 ms above the limit", now + 60_001, now + 60_000, true},
		{"far ahead", math.MaxInt64, now + 60_000, true},
	} {
		e := Event{TimeMs: tt.in}
		require.Equal(t, tt.wantCap, e.ResolveTime(now), tt.name)
		require.Equal(t, tt.want, e.TimeMs, tt.name)
	}
}

func TestActionNames(t *testing.T) {
	for action, name := range map[Action]string{Like: "LIKE", Unlike: "UNLIKE", Dislike: "DISLIKE"} {
		require.Equal(t, name, action.String())
	}
}
