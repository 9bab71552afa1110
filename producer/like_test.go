package producer

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit/apikit"
	"kudos/schema"
)

// Every route, with what it writes to Kafka: the canonical key, the partition every writer must choose, and the event.
func TestLikes(t *testing.T) {
	r := start(t, func(o *Options) { o.RegionHeader = "X-Client-Region" })
	unknown := schema.UnknownRegion
	us, de, jp := schema.Region{'U', 'S', '-', 'C', 'A'}, schema.Region{'D', 'E'}, schema.Region{'J', 'P'}
	event := func(post, user uint64, action schema.Action, timeMs int64, region schema.Region) schema.Event {
		return schema.Event{PostID: post, UserID: user, Action: action, TimeMs: timeMs, Region: region}
	}
	type headers []string
	none, jsonBody := headers(nil), headers{"Content-Type", "application/json"}
	client := func(region string) headers { return headers{"X-Client-Region", region} }
	cases := []struct {
		method, path, body string
		headers            headers
		want               schema.Event
	}{
		{"PUT", like + "?time_ms=1700000000000", "", none, event(7, 9, schema.Like, 1_700_000_000_000, unknown)},
		{"DELETE", like + "?time_ms=1700000000001", "", none, event(7, 9, schema.Unlike, 1_700_000_000_001, unknown)},
		{"PUT", "/v1/posts/7/dislikes/9?time_ms=2", "", none, event(7, 9, schema.Dislike, 2, unknown)},
		{"DELETE", "/v1/posts/7/dislikes/9?time_ms=3", "", none, event(7, 9, schema.Unlike, 3, unknown)},
		{"PUT", "/v1/posts/007/likes/0000000000000000009?time_ms=1", "", none, event(7, 9, schema.Like, 1, unknown)},
		{"PUT", "/v1/posts/18446744073709551615/likes/18446744073709551615?time_ms=9223372036854775807", "", none,
			event(math.MaxUint64, math.MaxUint64, schema.Like, math.MaxInt64, unknown)},

		// The body is not read.
		{"PUT", like + "?time_ms=1", "what is this", headers{"Content-Type", "text/plain"},
			event(7, 9, schema.Like, 1, unknown)},
		{"DELETE", like + "?time_ms=1", `{"user_id":1}`, jsonBody, event(7, 9, schema.Unlike, 1, unknown)},

		{"POST", "/v1/posts/8/likes", `{"user_id":9,"time_ms":1700000000000}`, jsonBody,
			event(8, 9, schema.Like, 1_700_000_000_000, unknown)},
		{"POST", "/v1/posts/8/likes", ` {"userId":"9","timeMs":"1700000000000","region":"us-ca"}`,
			headers{"Content-Type", "application/json; charset=utf-8"}, event(8, 9, schema.Like, 1700000000000, us)},
		{"POST", "/v1/posts/8/likes?time_ms=5", `{"user\u005fid":"\u0039","region":"\u0064e"}`, jsonBody,
			event(8, 9, schema.Like, 5, de)},
		{"POST", "/v1/posts/8/likes?time_ms=5&region=de", `{"user_id":9}`, jsonBody, event(8, 9, schema.Like, 5, de)},
		{"POST", "/v1/posts/8/likes?time_ms=5&region=de", `{"user_id":9,"time_ms":6,"region":"US-CA"}`, jsonBody,
			event(8, 9, schema.Like, 6, us)},
		{"POST", "/v1/posts/8/likes?time_ms=5&region=de", `{"user_id":9,"time_ms":null,"region":null}`, jsonBody,
			event(8, 9, schema.Like, 5, de)},

		{"PUT", "/v1/posts/9/likes/1?time_ms=1&region=de", "", client("JP"), event(9, 1, schema.Like, 1, de)},
		{"PUT", "/v1/posts/9/likes/1?time_ms=1", "", client("jp"), event(9, 1, schema.Like, 1, jp)},
		{"PUT", "/v1/posts/9/likes/1?time_ms=1&region=Mars", "", client("JP"), event(9, 1, schema.Like, 1, unknown)},
		{"PUT", "/v1/posts/9/likes/1?time_ms=1", "", client("the moon"), event(9, 1, schema.Like, 1, unknown)},
		{"POST", "/v1/posts/9/likes?region=de&time_ms=1", `{"user_id":1,"region":"Mars"}`, jsonBody,
			event(9, 1, schema.Like, 1, unknown)},
	}
	places := make([]position, len(cases))
	for i, tt := range cases {
		places[i] = placeOf(r.Send(tt.method, tt.path, tt.body, tt.headers...))
	}
	records := r.consume(len(cases))
	for i, tt := range cases {
		t.Run(fmt.Sprint(tt.method, " ", tt.path, " ", tt.body), func(t *testing.T) {
			rec, e := record(t, records, places[i])
			require.Equal(t, tt.want, e)
			require.Equal(t, fmt.Sprint(tt.want.PostID), string(rec.Key))
			require.Equal(t, schema.PartitionFor(tt.want.PostID, partitions), rec.Partition)
		})
	}
	r.requireCount(3, "region_malformed_total")
	r.requireCount(len(cases), "accepted_total")
}

// The response is the position. No header is trusted unless an option names it.
func TestLikeResponse(t *testing.T) {
	r := start(t, nil)
	partition := schema.PartitionFor(7, partitions)
	for offset := range 2 {
		r.put(like, "X-Client-Region", "JP", "CF-IPCountry", "JP").
			RequireJSON(accepted, fmt.Sprintf(`{"partition":%d,"offset":%d}`, partition, offset)).
			RequireHeader("Cache-Control", "no-store")
	}
	_, e := record(t, r.consume(2), position{partition, 0})
	require.Equal(t, schema.UnknownRegion, e.Region)
	require.False(t, e.RegionMalformed)
}

func TestTimeIsStampedAtReceipt(t *testing.T) {
	r := start(t, nil)
	held, release := r.hold()
	before := time.Now().UnixMilli()
	answered := r.putLater(like)
	held()
	received := time.Now().UnixMilli()
	r.WaitFor("the clock must advance", func() bool { return time.Now().UnixMilli() > received })
	release()
	(<-answered).Require(accepted)
	r.consume(1)
	// Also in the other routes.
	r.postLike(likes+"?time_ms=0", `{"user_id":9,"time_ms":0}`).Require(accepted) // 0 means no time
	r.postLines("", `{"post_id":7,"user_id":9,"action":"LIKE"}`).Require(accepted)
	after := time.Now().UnixMilli()
	for i, rec := range r.consume(3) {
		from, to := before, received
		if i > 0 {
			from, to = received, after
		}
		e := apikit.Event(t, rec)
		require.GreaterOrEqual(t, e.TimeMs, from)
		require.LessOrEqual(t, e.TimeMs, to)
	}
}

func TestInvalidRequests(t *testing.T) {
	r := start(t, nil)
	const late = "9223372036854775808"
	noNumber := func(text string) string { return fmt.Sprintf("%q is not a whole number in range", text) }
	const notJSON, notObject = "is not JSON: invalid character ", "is not a JSON object"
	const likeFields = "is unknown; allowed: user_id, userId, region, time_ms, timeMs"
	for _, tt := range []struct {
		method, path, body    string
		field, reason, detail string
	}{
		{"PUT", "/v1/posts/x/likes/9", "", "post_id", "undecodable", noNumber("x")},
		{"PUT", "/v1/posts/0/likes/9", "", "post_id", "zero_id", "is 0"},
		{"PUT", "/v1/posts/7%2F8/likes/9", "", "post_id", "undecodable", noNumber("7/8")},
		{"PUT", "/v1/posts/7/likes/me", "", "user_id", "undecodable", noNumber("me")},
		{"DELETE", "/v1/posts/7/likes/0", "", "user_id", "zero_id", "is 0"},
		{"PUT", "/v1/posts/7/dislikes/0", "", "user_id", "zero_id", "is 0"},
		{"PUT", "/v1/posts/7/likes/9?time_ms=noon", "", "time_ms", "undecodable", noNumber("noon")},
		{"PUT", "/v1/posts/7/likes/9?time_ms=" + late, "", "time_ms", "undecodable", noNumber(late)},
		{"PUT", "/v1/posts/7/likes/9?time_ms=-1", "", "time_ms", "negative_time", "is negative"},

		{"POST", "/v1/posts/0/likes", `{"user_id":9}`, "post_id", "zero_id", "is 0"},
		{"POST", "/v1/posts/7/likes?time_ms=x", `{"user_id":9}`, "time_ms", "undecodable", noNumber("x")},
		{"POST", likes, ``, "body", "empty", "is empty"},
		{"POST", likes, `hello`, "body", "undecodable", notJSON + "'h' looking for beginning of value"},
		{"POST", likes, `null`, "body", "undecodable", notObject},
		{"POST", likes, "\x08\x07\x10\x09\x18\x01", "body", "undecodable",
			notJSON + `'\b' looking for beginning of value`},
		{"POST", likes, `{}`, "user_id", "zero_id", "is missing or 0"},
		{"POST", likes, `{"user_id":0}`, "user_id", "zero_id", "is missing or 0"},
		{"POST", likes, `{"user_id":"me"}`, "user_id", "undecodable", noNumber("me")},
		{"PUT", "/v1/posts/7/likes/9?time_ms=", "", "time_ms", "empty", "is empty"},
		{"PUT", "/v1/posts/7/likes/9?time_ms=1&time_ms=2", "", "time_ms", "repeated", "is given more than once"},
		{"DELETE", "/v1/posts/7/likes/9?time_ms=%zz", "", "query", "undecodable", "is not valid URL encoding"},
		{"POST", likes, `{"user_id":1,"userId":2}`, "userId", "repeated", "is given more than once"},
		{"POST", likes, `{"user_id":1,"user_id":1}`, "user_id", "repeated", "is given more than once"},
		{"POST", likes, `{"user_id":1,"region":{}}`, "region", "undecodable", "is not a string"},
		{"POST", likes, `{"user_id":1,"region":[]}`, "region", "undecodable", "is not a string"},
		{"POST", likes, `{"user_id":1,"region":5}`, "region", "undecodable", "is not a string"},
		{"POST", likes, `{"user_id":9,"time_ms":-1}`, "time_ms", "negative_time", "is negative"},
		{"POST", likes, `{"user_id":9,"time_ms":"noon"}`, "time_ms", "undecodable", noNumber("noon")},
		{"POST", likes, `{"user_id":9,"timems":1}`, "timems", "unknown_field", likeFields},
	} {
		t.Run(tt.method+" "+tt.path+" "+tt.body, func(t *testing.T) {
			a := r.Send(tt.method, tt.path, tt.body, "Content-Type", "application/json")
			a.T = t
			a.RequireInvalid(tt.field, tt.reason, tt.detail)
		})
	}
	r.postLike(likes, `{"user_id":9,"":1}`).Require(http.StatusBadRequest)
	require.Zero(t, r.written(), "an invalid request must write nothing")
	require.Positive(t, r.Metric("kudos_producer_rejected_total", "reason", "unknown_field"))
}

func TestOtherProblems(t *testing.T) {
	r := start(t, nil)
	for _, path := range []string{
		"/", "/v1", "/v1/posts/7", like + "/x", likes + "/", "/v1/likes:bulk", "/v2/posts/7/likes/9",
	} {
		r.put(path).RequireJSON(http.StatusNotFound,
			apikit.Problem(404, "not-found", "Not found", `no route has the path "`+path+`"`)).
			RequireHeader("Cache-Control", "no-store")
	}
	r.requireCount(7, "requests_total", "route", "other", "method", "put", "code", "404")

	for _, tt := range []struct{ method, path, allow string }{
		{"GET", like, "DELETE, PUT"},
		{"PATCH", "/v1/posts/7/dislikes/9", "DELETE, PUT"},
		{"PUT", likes, "POST"},
	} {
		r.Send(tt.method, tt.path, "").RequireJSON(http.StatusMethodNotAllowed, apikit.Problem(405,
			"method-not-allowed", "Method not allowed", tt.method+" is not allowed; allowed: "+tt.allow)).
			RequireHeader("Allow", tt.allow)
	}

	const lines = "application/x-ndjson or application/ndjson or application/jsonl"
	for _, tt := range []struct{ path, contentType, detail string }{
		{likes, "", `Content-Type is ""; send application/json`},
		{batch, "application/json", `Content-Type is "application/json"; send ` + lines},
	} {
		r.Send("POST", tt.path, `{"user_id":9}`, "Content-Type", tt.contentType).RequireJSON(
			http.StatusUnsupportedMediaType,
			apikit.Problem(415, "unsupported-media-type", "Unsupported media type", tt.detail))
	}

	r.put("/v1/posts/0/likes/me?time_ms=-5").RequireJSON(http.StatusBadRequest,
		apikit.Problem(400, "invalid-request", "The request is not valid", "time_ms: is negative", apikit.Errors(
			apikit.FieldError("time_ms", "negative_time", "is negative"),
			apikit.FieldError("post_id", "zero_id", "is 0"),
			apikit.FieldError("user_id", "undecodable", `"me" is not a whole number in range`))))
	require.Zero(t, r.written())
}
