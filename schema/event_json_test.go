package schema

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"kudos/schema/kudosv1"
)

func TestEventJSON(t *testing.T) {
	like := Event{PostID: 7, UserID: 9, Action: Like, Region: UnknownRegion}
	with := func(change func(*Event)) Event { e := like; change(&e); return e }
	unlike, dislike := with(func(e *Event) { e.Action = Unlike }), with(func(e *Event) { e.Action = Dislike })
	timed := with(func(e *Event) { e.TimeMs = 1_700_000_000_123 })
	inCalifornia := with(func(e *Event) { e.Region = Region{'U', 'S', '-', 'C', 'A'} })
	nowhere := with(func(e *Event) { e.RegionMalformed = true })
	for value, want := range map[string]Event{
		`{"post_id":7,"user_id":9,"action":"LIKE"}`:                              like,
		`{"post_id":"7","user_id":"9","action":"LIKE"}`:                          like,
		`{"postId":7,"userId":"9","action":"LIKE"}`:                              like,
		`{"post_id":7,"postId":"7","user_id":9,"userId":9,"action":"LIKE"}`:      like,
		`{"post_id":7,"user_id":9,"action":true}`:                                like,
		"{ \"post_id\" : 7 ,\n\t\"user_id\":9,\"action\":\"LIKE\"}\r\n ":         like,
		`{"post_id":7,"user_id":9,"action":"LIKE","note":{"x":[1,2]}}`:           like, // a field of a later version
		`{"post_id":7,"user_id":9,"action":"LIKE","time_ms":null,"region":null}`: like,
		`{"post_id":7,"postId":null,"user_id":9,"userId":null,"action":"LIKE"}`:  like,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":""}`:                  like,
		`{"post_id":7,"user_id":9,"action":"UNLIKE"}`:                            unlike,
		`{"post_id":7,"user_id":9,"action":false}`:                               unlike,
		`{"post_id":7,"user_id":9,"action":"DISLIKE"}`:                           dislike,
		`{"post_id":7,"user_id":9,"action":"LIKE","time_ms":1700000000123}`:      timed,
		`{"post_id":7,"user_id":9,"action":"LIKE","timeMs":"1700000000123"}`:     timed,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":"us-ca"}`:             inCalifornia,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":"Mars"}`:              nowhere,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":49}`:                  nowhere,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":["US"]}`:              nowhere,
		// Escapes are read as what they say, in names and in values.
		`{"post\u005fid":7,"user_id":"\u0039","action":"LI\u004bE"}`:                  like,
		`{"post_id":7,"user_id":9,"action":"\u0055NLIKE"}`:                            unlike,
		`{"post_id":7,"user_id":9,"action":"LIKE","timeMs":"\u003100"}`:               with(func(e *Event) { e.TimeMs = 100 }),
		`{"post_id":7,"user_id":9,"action":"LIKE","region":"\u0055S\u002dCA"}`:        inCalifornia,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":"U\"S"}`:                   nowhere,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":{"a":"\u0055S"}}`:          nowhere,
		`{"post_id":7,"user_id":9,"action":"LIKE","note":"\u0000","region":"\ud800"}`: nowhere,
		`{"post_id":18446744073709551615,"user_id":"18446744073709551615","action":"LIKE",` +
			`"time_ms":9223372036854775807}`: with(func(e *Event) {
			e.PostID, e.UserID, e.TimeMs = math.MaxUint64, math.MaxUint64, math.MaxInt64
		}),
	} {
		var got Event
		require.NoError(t, DecodeEvent(nil, []byte(value), &got), value)
		require.Equal(t, want, got, value)
	}
}

func TestEventJSONTakesThePostFromTheKey(t *testing.T) {
	for _, value := range []string{
		`{"user_id":9,"action":true}`, `{"post_id":null,"user_id":9,"action":true}`,
		`{"post_id":0,"user_id":9,"action":true}`, `{"post_id":"7","user_id":9,"action":true}`,
	} {
		var got Event
		require.NoError(t, DecodeEvent([]byte("7"), []byte(value), &got), value)
		require.Equal(t, Event{PostID: 7, UserID: 9, Action: Like, Region: UnknownRegion}, got, value)
	}
}

func TestEventJSONPoison(t *testing.T) {
	const noNumber, twice = "is not a whole number in range", "given twice with different values"
	const unknown = "is missing or unknown"
	for value, want := range map[string]PoisonError{
		`{`:  {Undecodable, "", "not JSON"},
		`{}`: {ZeroID, "post_id", "is missing or 0"},
		`{"post_id":7,"user_id":9,"action":"LIKE"} x`:                             {Undecodable, "", "not JSON"},
		`{"post_id":7,"user_id":9,"action":"LIKE"}{}`:                             {Undecodable, "", "not JSON"},
		`{"post_id":7,"user_id":9,"action":"LIKE",}`:                              {Undecodable, "", "not JSON"},
		`{"post_id":07,"user_id":9,"action":"LIKE"}`:                              {Undecodable, "", "not JSON"},
		`{"post_id":"x","user_id":9,"action":"LIKE"}`:                             {Undecodable, "post_id", `"x" ` + noNumber},
		`{"post_id":"","user_id":9,"action":"LIKE"}`:                              {Undecodable, "post_id", noNumber},
		`{"post_id":7.5,"user_id":9,"action":"LIKE"}`:                             {Undecodable, "post_id", "7.5 " + noNumber},
		`{"post_id":1e3,"user_id":9,"action":"LIKE"}`:                             {Undecodable, "post_id", "1e3 " + noNumber},
		`{"post_id":-7,"user_id":9,"action":"LIKE"}`:                              {Undecodable, "post_id", "-7 " + noNumber},
		`{"post_id":[7],"user_id":9,"action":"LIKE"}`:                             {Undecodable, "post_id", "[7] " + noNumber},
		`{"post_id":true,"user_id":9,"action":"LIKE"}`:                            {Undecodable, "post_id", "true " + noNumber},
		`{"post_id":18446744073709551616,"user_id":9,"action":"LIKE"}`:            {Undecodable, "post_id", noNumber},
		`{"post_id":7,"postId":8,"user_id":9,"action":"LIKE"}`:                    {Undecodable, "post_id", twice},
		`{"post_id":7,"user_id":9,"userId":"10","action":"LIKE"}`:                 {Undecodable, "user_id", twice},
		`{"post_id":0,"postId":8,"user_id":9,"action":"LIKE"}`:                    {Undecodable, "post_id", twice},
		`{"post_id":7,"user_id":"nine","action":"LIKE"}`:                          {Undecodable, "user_id", noNumber},
		`{"post_id":7,"user_id":9,"action":"LIKE","time_ms":"noon"}`:              {Undecodable, "time_ms", noNumber},
		`{"post_id":7,"user_id":9,"action":"LIKE","time_ms":1,"timeMs":2}`:        {Undecodable, "time_ms", twice},
		`{"post_id":7,"user_id":9,"action":"LIKE","time_ms":9223372036854775808}`: {Undecodable, "time_ms", noNumber},
		`{"post_id":7,"user_id":9,"action":"LIKE","time_ms":-1}`:                  {NegativeTime, "time_ms", "is negative"},
		`{"post_id":7,"user_id":null,"action":"LIKE"}`:                            {ZeroID, "user_id", "is missing or 0"},
		`{"post_id":7,"user_id":0,"action":"LIKE"}`:                               {ZeroID, "user_id", "is missing or 0"},
		`{"post_id":7,"user_id":9}`:                                               {UnknownAction, "action", unknown},
		`{"post_id":7,"user_id":9,"action":null}`:                                 {UnknownAction, "action", unknown},
		`{"post_id":7,"user_id":9,"action":"like"}`:                               {UnknownAction, "action", unknown},
		`{"post_id":7,"user_id":9,"action":1}`:                                    {UnknownAction, "action", unknown},
		`{"post_id":7,"user_id":9,"action":"true"}`:                               {UnknownAction, "action", unknown},
		`{"post_id":7,"user_id":9,"action":"ACTION_UNSPECIFIED"}`:                 {UnknownAction, "action", unknown},
		`{"post_id":7,"user_id":9,"action":"t\u0072ue"}`:                          {UnknownAction, "action", unknown},
		`{"post_id":7,"user_id":"9\u0000","action":"LIKE"}`:                       {Undecodable, "user_id", noNumber},
	} {
		t.Run(value, func(t *testing.T) {
			requirePoison(t, DecodeEvent(nil, []byte(value), new(Event)), want.Reason, want.Field, want.Detail)
		})
	}
	requirePoison(t, DecodeEvent([]byte("8"), []byte(`{"post_id":7,"user_id":9,"action":"LIKE"}`), new(Event)),
		KeyMismatch, "post_id", "is 7 in the value but 8 in the key")
}

// JSON allows any character of a string to be escaped: names, numbers in quotes, actions and regions say the same then.
func TestEscapesSayTheSame(t *testing.T) {
	inString := regexp.MustCompile(`"[^"]*"`)
	escape := func(text string) string {
		escaped := `"`
		for _, char := range strings.Trim(text, `"`) {
			escaped += fmt.Sprintf(`\u%04x`, char)
		}
		return escaped + `"`
	}
	for _, value := range []string{
		`{"post_id":7,"user_id":9,"action":"LIKE"}`, `{"postId":"7","userId":"9","action":"DISLIKE","timeMs":"1700000000123"}`,
		`{"post_id":"18446744073709551615","user_id":9,"action":"UNLIKE","time_ms":5,"region":"us-ca"}`,
		`{"post_id":7,"user_id":9,"action":true,"region":"Mars","note":"x"}`, `{"post_id":7,"user_id":9,"action":"true"}`,
		`{"post_id":"","user_id":9,"action":"LIKE"}`, `{"post_id":7,"user_id":"-9","action":"LIKE"}`,
	} {
		var plain, escaped Event
		wantErr := DecodeEvent(nil, []byte(value), &plain)
		err := DecodeEvent(nil, []byte(inString.ReplaceAllStringFunc(value, escape)), &escaped)
		require.Equal(t, wantErr, err, value)
		require.Equal(t, plain, escaped, value)
	}
}

// An error quotes only part of a long value, because it must fit a header.
func TestEventJSONQuotesShortly(t *testing.T) {
	err := DecodeEvent(nil, []byte(`{"post_id":"`+strings.Repeat("x", 1000)+`"}`), new(Event))
	require.Less(t, len(err.Error()), 120)
}

// The output of Protobuf's JSON mapping decodes to the same event, except for the region, which it writes as base64.
func TestEventJSONAgainstProtojson(t *testing.T) {
	for _, names := range []protojson.MarshalOptions{{}, {UseProtoNames: true}} {
		for _, tt := range eventCases {
			m := &kudosv1.LikeEvent{PostId: tt.proto.PostId, UserId: tt.proto.UserId, Action: tt.proto.Action,
				TimeMs: tt.proto.TimeMs}
			b, err := names.Marshal(m)
			require.NoError(t, err)
			want := tt.event
			want.Region = UnknownRegion
			var got Event
			require.NoError(t, DecodeEvent(nil, b, &got), string(b))
			require.Equal(t, want, got, string(b))
		}
	}
}
