package producer

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// invalid is the body of a 400 with one error.
func invalid(field, reason, detail string) string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	detail = quote.Replace(detail)
	return `{"type":"urn:kudos:problem:invalid-request","title":"The request is not valid","status":400,"detail":"` + field + ": " + detail +
		`","errors":[{"field":"` + field + `","reason":"` + reason + `","detail":"` + detail + `"}]}`
}

func TestInvalidRequests(t *testing.T) {
	r := start(t, nil)
	const likeFields = "is not known here; known are user_id, userId, region, time_ms, timeMs"
	for _, tt := range []struct {
		method, path, body    string
		field, reason, detail string
	}{
		{"PUT", "/v1/posts/x/likes/9", "", "post_id", "undecodable", `"x" is not a whole number in range`},
		{"PUT", "/v1/posts/0/likes/9", "", "post_id", "zero_id", "is 0"},
		{"PUT", "/v1/posts/-1/likes/9", "", "post_id", "undecodable", `"-1" is not a whole number in range`},
		{"PUT", "/v1/posts/+1/likes/9", "", "post_id", "undecodable", `"+1" is not a whole number in range`},
		{"PUT", "/v1/posts/1.5/likes/9", "", "post_id", "undecodable", `"1.5" is not a whole number in range`},
		{"PUT", "/v1/posts/18446744073709551616/likes/9", "", "post_id", "undecodable", `"18446744073709551616" is not a whole number in range`},
		{"PUT", "/v1/posts/000000000000000000007/likes/9", "", "post_id", "undecodable", `"000000000000000000007" is not a whole number in range`},
		{"PUT", "/v1/posts/7%2F8/likes/9", "", "post_id", "undecodable", `"7/8" is not a whole number in range`},
		{"PUT", "/v1/posts/7/likes/me", "", "user_id", "undecodable", `"me" is not a whole number in range`},
		{"DELETE", "/v1/posts/7/likes/0", "", "user_id", "zero_id", "is 0"},
		{"PUT", "/v1/posts/7/dislikes/0", "", "user_id", "zero_id", "is 0"},
		{"PUT", "/v1/posts/7/likes/9?time_ms=noon", "", "time_ms", "undecodable", `"noon" is not a whole number in range`},
		{"PUT", "/v1/posts/7/likes/9?time_ms=9223372036854775808", "", "time_ms", "undecodable", `"9223372036854775808" is not a whole number in range`},
		{"PUT", "/v1/posts/7/likes/9?time_ms=-1", "", "time_ms", "negative_time", "is negative"},

		{"POST", "/v1/posts/0/likes", `{"user_id":9}`, "post_id", "zero_id", "is 0"},
		{"POST", "/v1/posts/7/likes?time_ms=x", `{"user_id":9}`, "time_ms", "undecodable", `"x" is not a whole number in range`},
		{"POST", "/v1/posts/7/likes", ``, "body", "empty", "is empty"},
		{"POST", "/v1/posts/7/likes", `hello`, "body", "undecodable", "is not JSON: invalid character 'h' looking for beginning of value"},
		{"POST", "/v1/posts/7/likes", `{"user_id":9`, "body", "undecodable", "is not JSON: unexpected end of JSON input"},
		{"POST", "/v1/posts/7/likes", `{"user_id":9} {}`, "body", "undecodable", "is not JSON: invalid character '{' after top-level value"},
		{"POST", "/v1/posts/7/likes", `[{"user_id":9}]`, "body", "undecodable", "is not a JSON object"},
		{"POST", "/v1/posts/7/likes", `null`, "body", "undecodable", "is not a JSON object"},
		{"POST", "/v1/posts/7/likes", `9`, "body", "undecodable", "is not a JSON object"},
		{"POST", "/v1/posts/7/likes", "\x08\x07\x10\x09\x18\x01", "body", "undecodable", `is not JSON: invalid character '\b' looking for beginning of value`},
		{"POST", "/v1/posts/7/likes", `{}`, "user_id", "zero_id", "is missing or 0"},
		{"POST", "/v1/posts/7/likes", `{"user_id":0}`, "user_id", "zero_id", "is missing or 0"},
		{"POST", "/v1/posts/7/likes", `{"user_id":"me"}`, "user_id", "undecodable", `"me" is not a whole number in range`},
		{"POST", "/v1/posts/7/likes", `{"user_id":1,"userId":2}`, "user_id", "undecodable", "is given twice with different values"},
		{"POST", "/v1/posts/7/likes", `{"user_id":9,"time_ms":-1}`, "time_ms", "negative_time", "is negative"},
		{"POST", "/v1/posts/7/likes", `{"user_id":9,"time_ms":"noon"}`, "time_ms", "undecodable", `"noon" is not a whole number in range`},
		{"POST", "/v1/posts/7/likes", `{"user_id":9,"timems":1}`, "timems", "unknown_field", likeFields},
		{"POST", "/v1/posts/7/likes", `{"user_id":9,"action":"UNLIKE"}`, "action", "unknown_field", likeFields},
		{"POST", "/v1/posts/7/likes", `{"user_id":9,"post_id":7}`, "post_id", "unknown_field", likeFields},
		{"POST", "/v1/posts/7/likes", `{"USER_ID":9}`, "USER_ID", "unknown_field", likeFields},
		{"POST", "/v1/posts/7/likes", `{"user_id":9,"":1}`, "", "unknown_field", likeFields},
		{"POST", "/v1/posts/7/likes", `{"user_id":9,"zz":1,"aa":1}`, "aa", "unknown_field", likeFields},
	} {
		t.Run(tt.method+" "+tt.path+" "+tt.body, func(t *testing.T) {
			a := r.send(tt.method, tt.path, tt.body, "Content-Type", "application/json")
			if tt.field == "" {
				require.Equal(t, http.StatusBadRequest, a.status)
				return
			}
			a.requireJSON(t, http.StatusBadRequest, invalid(tt.field, tt.reason, tt.detail))
		})
	}
	require.Zero(t, r.written(), "nothing of an invalid request reaches Kafka")
	require.Positive(t, r.metric("kudos_producer_rejected_total", "reason", "unknown_field"))
}

func TestAllThatIsWrongIsTold(t *testing.T) {
	r := start(t, nil)
	r.put("/v1/posts/0/likes/me?time_ms=-5").requireJSON(t, http.StatusBadRequest, `{
		"type":"urn:kudos:problem:invalid-request","title":"The request is not valid","status":400,"detail":"time_ms: is negative",
		"errors":[
			{"field":"time_ms","reason":"negative_time","detail":"is negative"},
			{"field":"post_id","reason":"zero_id","detail":"is 0"},
			{"field":"user_id","reason":"undecodable","detail":"\"me\" is not a whole number in range"}]}`)
}

func TestNotFound(t *testing.T) {
	r := start(t, nil)
	for _, path := range []string{"/", "/v1", "/v1/posts/7", "/v1/posts/7/likes/9/x", "/v1/posts/7/likes/", "/v1/likes:bulk", "/v2/posts/7/likes/9"} {
		r.put(path).requireJSON(t, http.StatusNotFound,
			`{"type":"urn:kudos:problem:not-found","title":"There is nothing here","status":404,"detail":"no route has the path \"`+path+`\""}`)
	}
	require.EqualValues(t, 7, r.metric("kudos_producer_requests_total", "route", "other", "method", "put", "code", "404"))
}

func TestMethodNotAllowed(t *testing.T) {
	r := start(t, nil)
	for _, tt := range []struct{ method, path, allow string }{
		{"GET", "/v1/posts/7/likes/9", "DELETE, PUT"},
		{"POST", "/v1/posts/7/likes/9", "DELETE, PUT"},
		{"PATCH", "/v1/posts/7/dislikes/9", "DELETE, PUT"},
		{"PUT", "/v1/posts/7/likes", "POST"},
		{"GET", "/v1/likes:batch", "POST"},
	} {
		a := r.send(tt.method, tt.path, "")
		a.requireJSON(t, http.StatusMethodNotAllowed, `{"type":"urn:kudos:problem:method-not-allowed","title":"The method is not allowed here","status":405,
			"detail":"`+tt.method+` is not allowed here; `+tt.allow+` is"}`)
		require.Equal(t, tt.allow, a.header.Get("Allow"))
	}
}

func TestUnsupportedMediaType(t *testing.T) {
	r := start(t, nil)
	unsupported := func(detail string) string {
		return `{"type":"urn:kudos:problem:unsupported-media-type","title":"The body has an unsupported form","status":415,"detail":"` + detail + `"}`
	}
	const like, batch = "/v1/posts/7/likes", "/v1/likes:batch"
	for _, tt := range []struct {
		path, detail string
		headers      []string
	}{
		{like, `Content-Type is \"\"; send application/json`, nil},
		{like, `Content-Type is \"application/x-www-form-urlencoded\"; send application/json`, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{like, `Content-Type is \"application/x-ndjson\"; send application/json`, []string{"Content-Type", "application/x-ndjson"}},
		{like, `Content-Encoding \"gzip\" is not supported; send the body as it is`, []string{"Content-Type", "application/json", "Content-Encoding", "gzip"}},
		{batch, `Content-Type is \"\"; send application/x-ndjson or application/ndjson or application/jsonl`, nil},
		{batch, `Content-Type is \"application/json\"; send application/x-ndjson or application/ndjson or application/jsonl`, []string{"Content-Type", "application/json"}},
	} {
		r.send("POST", tt.path, `{"user_id":9}`, tt.headers...).requireJSON(t, http.StatusUnsupportedMediaType, unsupported(tt.detail))
	}
	require.Zero(t, r.written())
}

// An answer is for this request only.
func TestAnswersAreNotStored(t *testing.T) {
	r := start(t, nil)
	require.Equal(t, "no-store", r.put("/v1/posts/7/likes/9").header.Get("Cache-Control"))
	require.Equal(t, "no-store", r.put("/nothing").header.Get("Cache-Control"))
}
