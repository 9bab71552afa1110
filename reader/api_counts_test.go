package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

func TestCounts(t *testing.T) {
	r := newRig(t, nil, nil)
	at := r.likes.partition(1)
	a := r.get("/v1/posts/1/likes").requireJSON(http.StatusOK,
		fmt.Sprintf(`{"post_id":"1","likes":3,"dislikes":1,"as_of":{"partition":%d,"offset":%d}}`, at, r.likes.mu.asOf[at]))
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Equal(t, "public, max-age=1", a.header.Get("Cache-Control"))
	require.Equal(t, fmt.Sprintf("%d:%d", at, r.likes.mu.asOf[at]), a.header.Get("Kudos-As-Of"))
	require.Regexp(t, `^W/"[0-9a-f]{1,16}"$`, a.header.Get("ETag"))

	require.Contains(t, r.get("/v1/posts/2/likes").body, `"likes":-1,"dislikes":0`, "a count below 0 is a defect to be seen")
	require.Contains(t, r.get("/v1/posts/99/likes").body, `{"post_id":"99","likes":0,"dislikes":0,`, "a post that nobody ever liked")
	require.Contains(t, r.get("/v1/posts/18446744073709551615/likes").body, `{"post_id":"18446744073709551615","likes":1152921504606846976,`)
	require.Contains(t, r.get("/v1/posts/007/likes").body, `{"post_id":"7"`)
}

func TestManyCounts(t *testing.T) {
	r := newRig(t, nil, nil)
	posts := `"posts":[{"post_id":"2","likes":-1,"dislikes":0},{"post_id":"1","likes":3,"dislikes":1},{"post_id":"2","likes":-1,"dislikes":0},{"post_id":"99","likes":0,"dislikes":0}]`
	var asOf []wire.Position
	for p := range int32(4) {
		if p == r.likes.partition(1) || p == r.likes.partition(2) || p == r.likes.partition(99) {
			asOf = append(asOf, wire.Position{Partition: p, Offset: r.likes.mu.asOf[p]})
		}
	}
	want := "{" + posts + `,"as_of":[`
	for i, p := range asOf {
		want += strings.Repeat(",", min(i, 1)) + fmt.Sprintf(`{"partition":%d,"offset":%d}`, p.Partition, p.Offset)
	}
	want += "]}"
	a := r.get("/v1/likes?post_ids=2,1,2,99").requireJSON(http.StatusOK, want)
	require.Equal(t, wire.PositionsText(asOf), a.header.Get("Kudos-As-Of"))
	require.Equal(t, "public, max-age=1", a.header.Get("Cache-Control"))
	require.NotEmpty(t, a.header.Get("ETag"))

	r.get("/v1/likes?post_ids=2%2C1%2c2,99").requireJSON(http.StatusOK, want)
	r.get("/v1/likes?post_ids=2&post_ids=1,2&post_ids=99").requireJSON(http.StatusOK, want)
	a = r.post("/v1/likes:get", `{"post_ids":["2",1, 2 ,"99"]}`).requireJSON(http.StatusOK, want)
	require.Empty(t, a.header.Get("ETag"))

	var many wire.ManyLikes
	list := strings.TrimSuffix(strings.Repeat("1,", wire.MaxPosts), ",")
	a = r.get("/v1/likes?post_ids=" + list)
	a.decode(&many)
	require.Len(t, many.Posts, wire.MaxPosts)
	require.Equal(t, fmt.Sprint(len(a.body)), a.header.Get("Content-Length"), "a long answer goes out whole")
	many = wire.ManyLikes{}
	r.post("/v1/likes:get", `{"post_ids":[`+list+`]}`).decode(&many)
	require.Len(t, many.Posts, wire.MaxPosts)
}

// The entity tag is of what was asked for: as_of moves with every event.
func TestETag(t *testing.T) {
	for _, target := range []string{"/v1/posts/1/likes", "/v1/likes?post_ids=1,2"} {
		r := newRig(t, nil, nil)
		first := r.get(target)
		etag := first.header.Get("ETag")
		at := r.likes.partition(1)
		r.likes.set(func() { r.likes.mu.asOf[at]++ })

		for _, given := range []string{etag, strings.TrimPrefix(etag, "W/"), `"x", ` + etag, "*"} {
			a := r.get(target, "If-None-Match", given)
			require.Equal(t, http.StatusNotModified, a.status, given)
			require.Empty(t, a.body)
			require.Equal(t, etag, a.header.Get("ETag"))
			require.Equal(t, "public, max-age=1", a.header.Get("Cache-Control"))
			require.NotEqual(t, first.header.Get("Kudos-As-Of"), a.header.Get("Kudos-As-Of"), "how new the answer is is told all the same")
		}
		require.Equal(t, http.StatusOK, r.get(target, "If-None-Match", `W/"0"`).status)

		r.likes.set(func() { r.likes.mu.counts[1] = schema.Counts{Likes: 1, Dislikes: 3} })
		a := r.get(target, "If-None-Match", etag)
		require.Equal(t, http.StatusOK, a.status)
		require.NotEqual(t, etag, a.header.Get("ETag"))
	}
}

func TestCacheMaxAge(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CacheMaxAge = 0 }, nil)
	require.Equal(t, "no-cache", r.get("/v1/posts/1/likes").header.Get("Cache-Control"))
	r = newRig(t, func(o *Options) { o.CacheMaxAge = time.Minute }, nil)
	require.Equal(t, "public, max-age=60", r.get("/v1/posts/1/likes").header.Get("Cache-Control"))
}

func TestInvalidCounts(t *testing.T) {
	r := newRig(t, nil, nil)
	const number = " is not a whole number in range"
	tooMany := strings.Repeat("1,", wire.MaxPosts) + "1"
	tooManyPlaces := strings.Repeat("1:1,", wire.MaxPosts) + "1:1"
	for _, tt := range []struct{ target, field, reason, detail string }{
		{"/v1/posts/x/likes", "post_id", "undecodable", `"x"` + number},
		{"/v1/posts/0/likes", "post_id", "zero_id", "is 0"},
		{"/v1/posts/18446744073709551616/likes", "post_id", "undecodable", `"18446744073709551616"` + number},
		{"/v1/posts/1/likes?min_offset=-1", "min_offset", "undecodable", `"-1"` + number},
		{"/v1/posts/1/likes?min_offset=", "min_offset", "empty", "is empty"},
		{"/v1/posts/1/likes?min_offset=9223372036854775807", "min_offset", "undecodable", `"9223372036854775807"` + number},
		{"/v1/posts/1/likes?min_offset=1:x", "min_offset", "undecodable", `"1:x" is not partition:offset`},
		{"/v1/posts/1/likes?min_offset=4:1", "min_offset", "out_of_range", "partition 4 does not exist; the topic likes has 4, from 0 on"},
		{"/v1/posts/77/likes?min_offset=1", "min_offset", "out_of_range", "names no partition, and the post is in 2 of them (it has user buckets): give partition:offset"},
		{"/v1/posts/1/likes?min_offset=1&min_offset=2", "min_offset", "repeated", "is given more than once"},
		{"/v1/posts/1/likes?min_ofset=1", "min_ofset", "unknown_field", "is not known here; known are min_offset"},
		{"/v1/posts/1/likes?min_offset=%zz", "min_offset", "undecodable", `is not encoded as the value of a query: invalid URL escape "%zz"`},
		{"/v1/posts/1/likes?%zz=1", "%zz", "undecodable", `the name of the parameter is not encoded as that of a query: invalid URL escape "%zz"`},
		{"/v1/likes", "post_ids", "empty", "is missing; name the posts, with commas between"},
		{"/v1/likes?post_ids=", "post_ids", "empty", "is empty"},
		{"/v1/likes?post_ids=1,,2", "post_ids", "undecodable", `""` + number},
		{"/v1/likes?post_ids=1,0", "post_ids", "zero_id", "is 0"},
		{"/v1/likes?post_ids=1,two,x", "post_ids", "undecodable", `"two"` + number},
		{"/v1/likes?post_ids=" + tooMany, "post_ids", "too_many", "has 1001 posts; 1000 at most"},
		{"/v1/likes?post_ids=1&min_offset=1", "min_offset", "undecodable", `"1" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=1:1:1", "min_offset", "undecodable", `"1:1:1" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=1:9223372036854775807", "min_offset", "undecodable", `"1:9223372036854775807" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=1:1,", "min_offset", "undecodable", `"" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=4:1", "min_offset", "out_of_range", "partition 4 does not exist; the topic likes has 4, from 0 on"},
		{"/v1/likes?post_ids=1&min_offset=2147483648:1", "min_offset", "undecodable", `"2147483648:1" is not partition:offset`},
		{"/v1/likes?post_ids=1&min_offset=" + tooManyPlaces, "min_offset", "too_many", "has 1001 places; 1000 at most"},
	} {
		r.get(tt.target).requireInvalid(tt.field, tt.reason, tt.detail)
	}
	a := r.get("/v1/posts/x/likes?min_offset=y&z=1")
	for _, field := range []string{`"field":"post_id"`, `"field":"min_offset"`, `"field":"z"`} {
		require.Contains(t, a.body, field, "all that is wrong is told at once")
	}
}

func TestInvalidBodies(t *testing.T) {
	r := newRig(t, nil, nil)
	list := strings.TrimSuffix(strings.Repeat("1,", wire.MaxPosts+1), ",")
	places := strings.TrimSuffix(strings.Repeat(`{"partition":1,"offset":1},`, wire.MaxPosts+1), ",")
	const anArray, aPlace = "must be an array of the posts' ids", `must be an array of places, each as {"partition":3,"offset":1018}`
	const noPlace = "number 1 of the list is no place: partition and offset must be there, from 0 on"
	for _, tt := range []struct{ body, field, reason, detail string }{
		{``, "body", "empty", "is empty"},
		{`hello`, "body", "undecodable", "is not JSON: invalid character 'h' looking for beginning of value"},
		{`[1]`, "body", "undecodable", "is not a JSON object"},
		{`{"post_ids":[1]} {}`, "body", "undecodable", "is not JSON: invalid character '{' after top-level value"},
		{`{"post_ids":[1],"posts":[]}`, "posts", "unknown_field", "is not known here; known are post_ids, min_offset"},
		{`{}`, "post_ids", "undecodable", anArray},
		{`{"post_ids":null}`, "post_ids", "undecodable", anArray},
		{`{"post_ids":"1"}`, "post_ids", "undecodable", anArray},
		{`{"post_ids":[ ]}`, "post_ids", "empty", "names no post"},
		{`{"post_ids":["1,2"]}`, "post_ids", "undecodable", `"\"1" is not a whole number in range`},
		{`{"post_ids":[1.0]}`, "post_ids", "undecodable", `"1.0" is not a whole number in range`},
		{`{"post_ids":[null]}`, "post_ids", "undecodable", `"null" is not a whole number in range`},
		{`{"post_ids":[[1]]}`, "post_ids", "undecodable", `"[1]" is not a whole number in range`},
		{`{"post_ids":[1,"0"]}`, "post_ids", "zero_id", "is 0"},
		{`{"post_ids":[` + list + `]}`, "post_ids", "too_many", "has 1001 posts; 1000 at most"},
		{`{"post_ids":[1],"min_offset":3}`, "min_offset", "undecodable", aPlace},
		{`{"post_ids":[1],"min_offset":null}`, "min_offset", "undecodable", aPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":1,"offset":1,"x":1}]}`, "min_offset", "undecodable", aPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":1}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[{"offset":1}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":-1,"offset":1}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":1,"offset":-1}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[{"partition":1,"offset":9223372036854775807}]}`, "min_offset", "undecodable", noPlace},
		{`{"post_ids":[1],"min_offset":[` + places + `]}`, "min_offset", "too_many", "has 1001 places; 1000 at most"},
		{`{"post_ids":[1],"min_offset":[{"partition":4,"offset":1}]}`, "min_offset", "out_of_range", "partition 4 does not exist; the topic likes has 4, from 0 on"},
	} {
		r.post("/v1/likes:get", tt.body).requireInvalid(tt.field, tt.reason, tt.detail)
	}
	r.post("/v1/likes:get?post_ids=1", `{"post_ids":[1]}`).requireInvalid("post_ids", "unknown_field", "is not known here; none is")

	detail := r.ask(http.MethodPost, "/v1/likes:get", `{"post_ids":[1]}`).requireProblem(http.StatusUnsupportedMediaType, "unsupported-media-type")
	require.Equal(t, `Content-Type is ""; send application/json`, detail)
	detail = r.post("/v1/likes:get", strings.Repeat(" ", maxBody)+`{"post_ids":[1]}`).requireProblem(http.StatusRequestEntityTooLarge, "too-large")
	require.Equal(t, "the body has more than 262144 bytes", detail)
}

// A body that does not come whole is not read as a shorter one.
func TestUnreadBodies(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		kind   string
	}{
		{os.ErrDeadlineExceeded, http.StatusRequestTimeout, "request-timeout"},
		{io.ErrUnexpectedEOF, http.StatusBadRequest, "invalid-request"},
	} {
		r := newRig(t, nil, nil)
		const target, body = "/v1/likes:get", `{"post_ids":[1]}`
		req := httptest.NewRequest(http.MethodPost, target, io.MultiReader(strings.NewReader(body), iotest.ErrReader(tt.err)))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		a := answered{t, w.Code, w.Header(), w.Body.String()}
		a.requireProblem(tt.status, tt.kind)
		r.hold(http.MethodPost, target, body, req.Header, a)
	}
}

// Whoever likes and passes the place on reads an answer that has the like.
func TestReadYourOwnLike(t *testing.T) {
	at := newFakeLikes().partition(1)
	for name, ask := range map[string]func(r *rig, offset int64) answered{
		"one": func(r *rig, offset int64) answered {
			return r.get(fmt.Sprintf("/v1/posts/1/likes?min_offset=%d", offset))
		},
		"many": func(r *rig, offset int64) answered {
			return r.get(fmt.Sprintf("/v1/likes?post_ids=1&min_offset=%d:%d", at, offset))
		},
		"body": func(r *rig, offset int64) answered {
			return r.post("/v1/likes:get", fmt.Sprintf(`{"post_ids":[1],"min_offset":[{"partition":%d,"offset":%d}]}`, at, offset))
		},
		"reaction": func(r *rig, offset int64) answered {
			return r.get(fmt.Sprintf("/v1/posts/1/likes/7?min_offset=%d", offset))
		},
		"likers": func(r *rig, offset int64) answered {
			return r.get(fmt.Sprintf("/v1/posts/1/likers?min_offset=%d", offset))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.MaxWait, o.WriteTimeout = patience, 2*patience }, nil)
			asOf := r.likes.mu.asOf[at]
			require.Equal(t, http.StatusOK, ask(r, asOf-1).status)
			require.Empty(t, r.likes.mu.waits, "the event before as_of is covered already")

			done := make(chan answered, 1)
			go func() { done <- ask(r, asOf) }()
			select {
			case want := <-r.likes.mu.waits:
				require.Equal(t, wire.Position{Partition: at, Offset: asOf + 1}, want, "the event itself is covered by the offset after it")
			case <-time.After(patience):
				require.Fail(t, "the answer must wait")
			}
			require.Empty(t, done)
			r.likes.set(func() { r.likes.mu.asOf[at]++ })
			select {
			case a := <-done:
				require.Equal(t, http.StatusOK, a.status, a.body)
				require.Contains(t, a.body, fmt.Sprintf(`{"partition":%d,"offset":%d}`, at, asOf+1))
			case <-time.After(patience):
				require.Fail(t, "the answer must come")
			}
		})
	}
}

func TestNotCovered(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWait = time.Millisecond }, nil)
	at := r.likes.partition(1)
	r.get("/v1/posts/1/likes?min_offset=1000").requireJSON(http.StatusServiceUnavailable, fmt.Sprintf(`{
		"type":"urn:kudos:problem:not-covered","title":"The event is not here yet","status":503,
		"detail":"the reader has not come to min_offset within 1ms (reader.max_wait); as_of is how far it is",
		"as_of":[{"partition":%d,"offset":%d}]}`, at, r.likes.mu.asOf[at]))
	var got struct {
		AsOf []wire.Position `json:"as_of"`
	}
	a := r.get("/v1/likes?post_ids=1&min_offset=3:1000,0:5,3:7")
	a.requireProblem(http.StatusServiceUnavailable, "not-covered")
	a.decode(&got)
	require.Equal(t, []wire.Position{{Partition: 0, Offset: 10}, {Partition: 3, Offset: 40}}, got.AsOf)

	r.likes.mu.notReady[at] = &view.NotReadyError{Topic: "t", Partition: at, Behind: 5}
	r.get("/v1/posts/1/likes?min_offset=1000").requireProblem(http.StatusServiceUnavailable, "not-ready")

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	r = newRig(t, nil, nil)
	r.askWithin(gone, http.MethodGet, "/v1/posts/1/likes?min_offset=1000", "").requireProblem(http.StatusServiceUnavailable, "not-covered")
	require.Empty(t, r.logged.String(), "that a client has gone is no failure")
}

func TestNotReady(t *testing.T) {
	r := newRig(t, nil, nil)
	at := r.likes.partition(1)
	other := uint64(1)
	for r.likes.partition(other) == at {
		other++
	}
	r.likes.mu.notReady[at] = &view.NotReadyError{Topic: schema.TopicLikes, Partition: at, Behind: 17}
	for _, target := range []string{"/v1/posts/1/likes", fmt.Sprintf("/v1/likes?post_ids=%d,1", other), "/v1/posts/1/likers", "/v1/posts/1/likes/7"} {
		detail := r.get(target).requireProblem(http.StatusServiceUnavailable, "not-ready")
		require.Equal(t, fmt.Sprintf("likes/%d: the local copy is 17 records behind", at), detail)
	}
	require.Equal(t, http.StatusOK, r.get(fmt.Sprintf("/v1/posts/%d/likes", other)).status, "the other partitions answer")

	r.likes.mu.partitions = &view.NotReadyError{Topic: schema.TopicLikes, Partition: -1, Behind: -1}
	for _, target := range []string{"/v1/posts/1/likes?min_offset=1", "/v1/likes?post_ids=1&min_offset=1:1", "/v1/stats"} {
		require.Equal(t, "likes: the local copy is being opened", r.get(target).requireProblem(http.StatusServiceUnavailable, "not-ready"))
	}
}

func TestInternal(t *testing.T) {
	r := newRig(t, nil, nil)
	r.likes.mu.notReady[r.likes.partition(1)] = errors.New("disk is gone at /secret")
	detail := r.get("/v1/posts/1/likes").requireProblem(http.StatusInternalServerError, "internal")
	require.NotContains(t, detail, "secret")
	require.Contains(t, r.logged.String(), "disk is gone at /secret")
	require.Contains(t, r.logged.String(), "/v1/posts/1/likes")
}

// A post with user buckets is in several partitions: a place names one of them, unless the
// user tells which.
func TestPlacesOfASharedPost(t *testing.T) {
	r := newRig(t, nil, nil)
	target := fmt.Sprintf("/v1/posts/%d/", sharedPost)
	r.likes.set(func() { r.likes.mu.counts[sharedPost] = schema.Counts{Likes: 7} })
	var answer wire.PostLikes
	a := r.get(target + "likes?min_offset=3:39")
	a.decode(&answer)
	require.Equal(t, wire.PostLikes{PostID: sharedPost, Likes: 7, AsOf: wire.Position{Partition: 1, Offset: 20}}, answer)
	require.Equal(t, "1:20,3:40", a.header.Get("Kudos-As-Of"), "each partition that it is in")
	require.Empty(t, r.likes.mu.waits)

	for user, home := range map[uint64]int32{8: 1, 9: 3} {
		at := int64(20 * (1 + home/2)) // where the copy is
		require.Equal(t, http.StatusOK, r.get(fmt.Sprintf("%slikes/%d?min_offset=%d", target, user, at-1)).status)
		require.Empty(t, r.likes.mu.waits)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r.askWithin(gone, http.MethodGet, target+"likes/9?min_offset=40", "").requireProblem(http.StatusServiceUnavailable, "not-covered")
	require.Equal(t, wire.Position{Partition: 3, Offset: 41}, <-r.likes.mu.waits)
}
