package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var knownNames = map[string]bool{"post_id": true, "postId": true, "user_id": true, "userId": true, "time_ms": true,
	"timeMs": true, "action": true, "region": true}

// requirePlain checks what DecodePlainEvent promises about a value that it accepts.
func requirePlain(t *testing.T, value []byte, plain Event) {
	t.Helper()
	read := Event{Region: UnknownRegion}
	require.NoError(t, read.decodeJSON(value), "%q", value)
	require.Equal(t, read, plain, "%q", value)
	require.NoError(t, read.Check(), "%q", value)
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(value, &fields), "%q", value)
	for name := range fields {
		require.True(t, knownNames[name], "%q in %q", name, value)
	}
}

func TestDecodePlainEvent(t *testing.T) {
	for _, value := range []string{
		`{"post_id":7,"user_id":9,"action":"LIKE"}`,
		`{"post_id":"7","user_id":"9","action":"UNLIKE","time_ms":1700000000123,"region":"US-CA"}`,
		`{"postId":7,"userId":"9","timeMs":"1700000000123","action":"DISLIKE","region":"us"}`,
		`{"action":true,"post_id":18446744073709551615,"user_id":"18446744073709551615","time_ms":9223372036854775807}`,
		"{ \"post_id\" : 7 ,\n\t\"user_id\":9,\"action\" :false , \"region\" : \"\"}\r\n ",
		`{"post_id":7,"user_id":9,"action":"LIKE","time_ms":0,"region":"Mars"}`,
	} {
		var e Event
		require.True(t, DecodePlainEvent([]byte(value), &e), value)
		requirePlain(t, []byte(value), e)
	}
	for _, value := range []string{
		``, `{`, `{}`, `[]`, `{"post_id":7,"user_id":9,"action":"LIKE"`, `{"post_id":7,"user_id":9,"action":"LIKE"}x`,
		`{"post_id":7,"user_id":9,"action":"LIKE",}`,
		`{,"post_id":7,"user_id":9,"action":"LIKE"}`, `{"post_id":7 "user_id":9,"action":"LIKE"}`,
		`{"post_id":7,"user_id":9,"action":"LIKE"}}`,
		// Values that are or may be valid, but need the full decoder.
		`{"POST_ID":7,"user_id":9,"action":"LIKE"}`, `{"post_id":7,"post_id":8,"user_id":9,"action":"LIKE"}`,
		`{"post_id":7,"postId":7,"user_id":9,"action":"LIKE"}`,
		`{"post_id":7,"user_id":9,"action":"LIKE","note":1}`, `{"post_id":7,"user_id":9,"action":"LIKE","region":null}`,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":"\u0055S"}`,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":"Ü"}`,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":7}`,
		`{"post_id":7,"user_id":9,"action":"LIKE","region":true}`,
		`{"post_\u0069d":7,"user_id":9,"action":"LIKE"}`,
		// Invalid values.
		`{"post_id":0,"user_id":9,"action":"LIKE"}`, `{"post_id":07,"user_id":9,"action":"LIKE"}`,
		`{"post_id":-7,"user_id":9,"action":"LIKE"}`, `{"post_id":7.0,"user_id":9,"action":"LIKE"}`,
		`{"post_id":7e1,"user_id":9,"action":"LIKE"}`, `{"post_id":"7 ","user_id":9,"action":"LIKE"}`,
		`{"post_id":" 7","user_id":9,"action":"LIKE"}`, `{"post_id":"7,"user_id":9,"action":"LIKE"}`,
		`{"post_id":"","user_id":9,"action":"LIKE"}`, `{"post_id":18446744073709551616,"user_id":9,"action":"LIKE"}`,
		`{"post_id":99999999999999999999,"user_id":9,"action":"LIKE"}`,
		`{"post_id":7,"user_id":9,"action":"LIKE","time_ms":9223372036854775808}`,
		`{"post_id":7,"user_id":9,"action":"like"}`, `{"post_id":7,"user_id":9,"action":1}`,
		`{"post_id":7,"user_id":9,"action":truely}`, `{"post_id":7,"user_id":9}`,
		"{\"post_id\":7,\"user_id\":9,\"action\":\"LI\nKE\"}",
		"\x08\x07\x10\x09\x18\x01",
		`{"post_id":7,"user_id":9,"action":"LIKE","region":"` + strings.Repeat("x", MaxEventBytes) + `"}`,
	} {
		require.False(t, DecodePlainEvent([]byte(value), new(Event)), value)
	}
}

// FuzzDecodePlainEvent compares the fast decoder with encoding/json.
func FuzzDecodePlainEvent(f *testing.F) {
	for _, value := range []string{
		`{"post_id":7,"user_id":"9","action":"LIKE","time_ms":1700000000123,"region":"US-CA"}`,
		`{ "postId" : "7","userId":9 , "action":true,"timeMs":"0","region":"Mars" }`,
		`{"post_id":18446744073709551615,"user_id":"18446744073709551616","action":false,"region":""}`,
		`{"action":"DISLIKE","action":"UNLIKE","region":"\u0055S","post_id":null}`,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var e Event
		if DecodePlainEvent(value, &e) {
			requirePlain(t, value, e)
		}
	})
}
