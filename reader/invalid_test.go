package reader

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/reader/wire"
)

func TestInvalidRequests(t *testing.T) {
	r := newRig(t, nil, hours(new(asked)))
	r.now = func() time.Time { return date("2026-03-15T12:34") }
	const number = " is not a whole number in range"
	const noRegion = `"Europe" is not a region like DE, US-CA or global`
	tooMany := strings.Repeat("1,", wire.MaxPosts) + "1"
	tooManyPlaces := strings.Repeat("1:1,", wire.MaxPosts) + "1:1"
	for _, tt := range []struct{ target, field, reason, detail string }{
		{"/v1/posts/x/likes", "post_id", "undecodable", `"x"` + number},
		{"/v1/posts/0/likes", "post_id", "zero_id", "is 0"},
		{likesOf1 + "?min_offset=-1", "min_offset", "undecodable", `"-1"` + number},
		{likesOf1 + "?min_offset=", "min_offset", "empty", "is empty"},
		{likesOf1 + "?min_offset=9223372036854775807", "min_offset", "undecodable", `"9223372036854775807"` + number},
		{likesOf1 + "?min_offset=1:x", "min_offset", "undecodable", `"1:x" is not partition:offset`},
		{likesOf1 + "?min_offset=4:1",
			"min_offset", "out_of_range", "partition 4 does not exist; the topic likes has 4, starting at 0"},
		{"/v1/posts/77/likes?min_offset=1",
			"min_offset", "out_of_range", "names no partition, but the post is in 2 of them (it has user buckets): " +
				"use partition:offset"},
		{likesOf1 + "?min_offset=1&min_offset=2", "min_offset", "repeated", "is given more than once"},
		{likesOf1 + "?min_ofset=1", "min_ofset", "unknown_field", "is unknown; allowed: min_offset"},
		{likesOf1 + "?min_offset=%zz",
			"min_offset", "undecodable", `is not valid URL encoding: invalid URL escape "%zz"`},
		{likesOf1 + "?%zz=1", "%zz",
			"undecodable", `the name of the parameter is not valid URL encoding: invalid URL escape "%zz"`},
		{"/v1/likes", "post_ids", "empty", "is missing; it is a comma-separated list of post ids"},
		{"/v1/likes?post_ids=", "post_ids", "empty", "is empty"},
		{"/v1/likes?post_ids=1,,2", "post_ids", "undecodable", `""` + number},
		{"/v1/likes?post_ids=1,0", "post_ids", "zero_id", "is 0"},
		{"/v1/likes?post_ids=1,two,x", "post_ids", "undecodable", `"two"` + number},
		{"/v1/likes?post_ids=" + tooMany, "post_ids", "too_many", "has 1001 posts; at most 1000"},
		{"/v1/likes?post_ids=1&min_offset=1", "min_offset", "undecodable", `"1" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=1:1:1", "min_offset", "undecodable", `"1:1:1" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=1:9223372036854775807",
			"min_offset", "undecodable", `"1:9223372036854775807" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=1:1,", "min_offset", "undecodable", `"" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=4:1",
			"min_offset", "out_of_range", "partition 4 does not exist; the topic likes has 4, starting at 0"},
		{"/v1/likes?post_ids=1&min_offset=2147483648:1",
			"min_offset", "undecodable", `"2147483648:1" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=" + tooManyPlaces, "min_offset", "too_many", "has 1001 items; at most 1000"},

		{"/v1/posts/1/likes/me", "user_id", "undecodable", `"me"` + number},
		{"/v1/posts/1/likes/7?min_offset=x", "min_offset", "undecodable", `"x"` + number},
		{"/v1/posts/1/likers?page_size=0", "page_size", "out_of_range", "is 0; it must be between 1 and 1000"},
		{"/v1/posts/1/likers?page_size=1001", "page_size", "out_of_range", "is 1001; it must be between 1 and 1000"},
		{"/v1/posts/1/likers?page_size=x", "page_size", "undecodable", `"x"` + number},
		{"/v1/posts/1/likers?page_size=99999999999", "page_size", "undecodable", `"99999999999"` + number},

		{"/v1/trending?region=DE", "region", "unknown_field", "is unknown; none is allowed"},
		{"/v1/trending/Europe", "region", "undecodable", noRegion},
		{"/v1/trending/DE?window=1H", "window", "undecodable", `"1H" is not a window such as 1h or day`},
		{"/v1/trending/DE?window=1h/x", "window", "undecodable", `"1h/x" is not a window such as 1h or day`},
		{"/v1/trending/DE?window=0123456789abcdefg", "window", "undecodable",
			`"0123456789abcdefg" is not a window such as 1h or day`},
		{"/v1/leaderboard?region=Europe", "region", "undecodable", noRegion},
		{"/v1/leaderboard?region=", "region", "empty", "is empty"},
		{"/v1/leaderboard?period=week", "period", "unknown_value", `"week" is not one of day, all`},
		{"/v1/leaderboard?window=day", "window", "unknown_field", "is unknown; allowed: region, period"},

		{overTime + "?from=yesterday",
			"from", "undecodable", `"yesterday" is not a time such as 2026-11-21T10:00:00Z (a + is %2B)`},
		{overTime + "?to=2026-03-15T01:00:00+02:00",
			"to", "undecodable", `"2026-03-15T01:00:00 02:00" is not a time such as 2026-11-21T10:00:00Z (a + is %2B)`},
		{overTime + "?to=1969-12-31T23:59:59Z",
			"to", "out_of_range", `"1969-12-31T23:59:59Z" is not between 1970 and 2200`},
		{overTime + "?from=2026-03-15T3:00:00Z",
			"from", "undecodable", `"2026-03-15T3:00:00Z" is not a time such as 2026-11-21T10:00:00Z (a + is %2B)`},
		{overTime + "?from=9999-12-31T23:59:59Z",
			"from", "out_of_range", `"9999-12-31T23:59:59Z" is not between 1970 and 2200`},
		{overTime + "?from=2026-03-15T13:00:00Z",
			"from", "out_of_range", "must be before to, which is 2026-03-15T13:00:00Z"},
		{overTime + "?from=2026-03-15T14:00:00Z&to=2026-03-15T13:00:00Z",
			"from", "out_of_range", "must be before to, which is 2026-03-15T13:00:00Z"},
		{overTime + "?from=2026-02-01T00:00:00Z&to=2026-03-14T16:00:01Z",
			"from", "out_of_range", "is 1001 intervals before to, which is 2026-03-14T17:00:00Z; at most 1000"},
		{overTime + "?from=1970-01-01T00:00:00Z&to=2200-12-31T23:59:59Z",
			"from", "out_of_range", "is 2024904 intervals before to, which is 2201-01-01T00:00:00Z; at most 1000"},
		{overTime + "?interval=week", "interval", "unknown_value", `"week" is not one of hour, day`},
		{overTime + "?region=Europe", "region", "undecodable", `"Europe" is not a region like DE, US-CA or global`},
		{overTime + "?limit=3", "limit", "unknown_field", "is unknown; allowed: region, interval, from, to"},
		{"/openapi.yaml?x=1", "x", "unknown_field", "is unknown; none is allowed"},
	} {
		r.get(tt.target).RequireInvalid(tt.field, tt.reason, tt.detail)
	}
	a := r.get("/v1/posts/x/likes?min_offset=y&z=1")
	for _, field := range []string{`"field":"post_id"`, `"field":"min_offset"`, `"field":"z"`} {
		require.Contains(t, a.Body, field, "all errors are reported at once")
	}
}

func TestInvalidBodies(t *testing.T) {
	r := newRig(t, nil, nil)
	list := strings.TrimSuffix(strings.Repeat("1,", wire.MaxPosts+1), ",")
	places := strings.TrimSuffix(strings.Repeat(`{"partition":1,"offset":1},`, wire.MaxPosts+1), ",")
	const anArray, aPlace = "must be an array of post ids",
		`must be an array of positions such as {"partition":3,"offset":1018}`
	const noPlace = "item 1 is not a position: it needs a partition and an offset, each at least 0"
	for _, tt := range []struct{ body, field, reason, detail string }{
		{``, "body", "empty", "is empty"},
		{`hello`, "body", "undecodable", "is not JSON: invalid character 'h' looking for beginning of value"},
		{`{"post_ids":[1],"posts":[]}`, "posts", "unknown_field", "is unknown; allowed: post_ids, min_offset, viewer"},
		{`{}`, "post_ids", "undecodable", anArray},
		{`{"post_ids":null}`, "post_ids", "undecodable", anArray},
		{`{"post_ids":"1"}`, "post_ids", "undecodable", anArray},
		{`{"post_ids":"1","min_offset":3}`, "post_ids", "undecodable", anArray},
		{`{"post_ids":[ ]}`, "post_ids", "empty", "names no post"},
		{`{"post_ids":["1,2"]}`, "post_ids", "undecodable", `"\"1" is not a whole number in range`},
		{`{"post_ids":[1.0]}`, "post_ids", "undecodable", `"1.0" is not a whole number in range`},
		{`{"post_ids":[null]}`, "post_ids", "undecodable", `"null" is not a whole number in range`},
		{`{"post_ids":[[1]]}`, "post_ids", "undecodable", `"[1]" is not a whole number in range`},
		{`{"post_ids":["1\u002c2"]}`, "post_ids", "undecodable", `"1,2" is not a whole number in range`},
		{`{"post_ids":[1],"post_ids":[2]}`, "post_ids", "repeated", "is given more than once"},
		{`{"post_ids":[1,"0"]}`, "post_ids", "zero_id", "is 0"},
		{`{"post_ids":[` + list + `]}`, "post_ids", "too_many", "has 1001 posts; at most 1000"},
		{`{"post_ids":[1],"min_offset":3}`, "min_offset", "undecodable", aPlace},
		{`{"post_ids":[1],"min_offset":null}`, "min_offset", "undecodable", aPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":1,"offset":1,"x":1}]}`, "min_offset", "undecodable", aPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":1}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[{"offset":1}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":-1,"offset":1}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":1,"offset":-1}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":1,"offset":9223372036854775807}]}`,
			"min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[` + places + `]}`, "min_offset", "too_many", "has 1001 items; at most 1000"},
		{`{"post_ids":[1],"min_offset":[{"partition":4,"offset":1}]}`,
			"min_offset", "out_of_range", "partition 4 does not exist; the topic likes has 4, starting at 0"},
	} {
		r.post(byBody, tt.body).RequireInvalid(tt.field, tt.reason, tt.detail)
	}
	r.post("/v1/likes:get?post_ids=1", `{"post_ids":[1]}`).RequireInvalid("post_ids", "unknown_field",
		"is unknown; none is allowed")

	r.ask(http.MethodPost, byBody, `{"post_ids":[1]}`).RequireProblem(http.StatusUnsupportedMediaType,
		"unsupported-media-type", `Content-Type is ""; send application/json`)
	r.post(byBody, strings.Repeat(" ", maxBody)+`{"post_ids":[1]}`).RequireProblem(http.StatusRequestEntityTooLarge,
		"too-large", "the body has more than 262144 bytes")
}
