package reader

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

func TestCounts(t *testing.T) {
	r := newRig(t, nil, nil)
	a := r.get(likesOf1).RequireJSON(200, `{"post_id":"1","likes":3,"dislikes":1,"as_of":{"partition":1,"offset":20}}`).
		RequireHeader("Cache-Control", "public, max-age=1").RequireHeader("Kudos-As-Of", "1:20")
	require.Regexp(t, `^W/"[0-9a-f]{1,16}"$`, a.Header.Get("ETag"))
	for post, want := range map[string]string{
		"2":                    `"likes":-1,"dislikes":0`,                 // a defect that must be visible
		"99":                   `{"post_id":"99","likes":0,"dislikes":0,`, // a post that was never liked
		"18446744073709551615": `{"post_id":"18446744073709551615","likes":1152921504606846976,`,
		"007":                  `{"post_id":"7"`,
	} {
		require.Contains(t, r.get("/v1/posts/"+post+"/likes").Body, want)
	}
}

func TestManyCounts(t *testing.T) {
	r := newRig(t, nil, nil)
	const want = `{"posts":[{"post_id":"2","likes":-1,"dislikes":0},{"post_id":"1","likes":3,"dislikes":1},` +
		`{"post_id":"2","likes":-1,"dislikes":0},{"post_id":"99","likes":0,"dislikes":0}],` +
		`"as_of":[{"partition":1,"offset":20},{"partition":2,"offset":30},{"partition":3,"offset":40}]}`
	a := r.get("/v1/likes?post_ids=2,1,2,99").RequireJSON(200, want).
		RequireHeader("Kudos-As-Of", "1:20,2:30,3:40").RequireHeader("Cache-Control", "public, max-age=1")
	require.NotEmpty(t, a.Header.Get("ETag"))
	r.get("/v1/likes?post_ids=2%2C1%2c2,99").RequireJSON(200, want)
	r.get("/v1/likes?post_ids=2&post_ids=1,2&post_ids=99").RequireJSON(200, want)
	r.post(byBody, `{"post_ids":["2",1, 2 ,"99"]}`).RequireJSON(200, want).RequireHeader("ETag", "")

	list := strings.TrimSuffix(strings.Repeat("1,", wire.MaxPosts), ",")
	long := r.get("/v1/likes?post_ids=" + list)
	long.RequireHeader("Content-Length", fmt.Sprint(len(long.Body))) // it is not chunked
	for _, a := range []apikit.Answer{long, r.post(byBody, `{"post_ids":[`+list+`]}`)} {
		var many struct{ Posts []wire.PostLikes }
		a.Decode(&many)
		require.Len(t, many.Posts, wire.MaxPosts)
	}
}

// The entity tag does not cover as_of, which changes with every event.
func TestETag(t *testing.T) {
	for _, target := range []string{likesOf1, "/v1/likes?post_ids=1,2"} {
		r := newRig(t, nil, nil)
		first := r.get(target)
		etag := first.Header.Get("ETag")
		r.likes.set(func() { r.likes.mu.asOf[1]++ })
		for _, given := range []string{etag, strings.TrimPrefix(etag, "W/"), `"x", ` + etag, "*"} {
			a := r.get(target, "If-None-Match", given).Require(http.StatusNotModified).
				RequireHeader("ETag", etag).RequireHeader("Cache-Control", "public, max-age=1")
			require.Empty(t, a.Body)
			require.NotEqual(t, first.Header.Get("Kudos-As-Of"), a.Header.Get("Kudos-As-Of"),
				"a 304 still reports its offset")
		}
		r.get(target, "If-None-Match", `W/"0"`).Require(200)

		r.likes.set(func() { r.likes.mu.counts[1] = schema.Counts{Likes: 1, Dislikes: 3} })
		require.NotEqual(t, etag, r.get(target, "If-None-Match", etag).Require(200).Header.Get("ETag"))
	}
}

// A large response is compressed if the client accepts that; caches keep it apart from the other one.
func TestLargeResponsesAreCompressed(t *testing.T) {
	r := newRig(t, nil, nil)
	for accepted, coding := range map[string]string{
		"": "", "identity": "", "gzip": "gzip", "br, gzip": "br", "br;q=0, gzip;q=0.5": "gzip", "br;q=0": "",
	} {
		for posts, large := range map[int]bool{50: false, 200: true} {
			target := "/v1/likes?post_ids=1" + strings.Repeat(",1", posts-1)
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
			req.Header.Set("Accept-Encoding", accepted)
			plain, have := r.get(target), apikit.Ask(t, r.api, req) // which does not validate the body
			have.RequireHeader("ETag", plain.Header.Get("ETag"))
			want, vary := "", ""
			if large {
				want, vary = coding, "Accept-Encoding"
			}
			have.RequireHeader("Content-Encoding", want).RequireHeader("Vary", vary)
			require.Equal(t, plain.Body, decoded(t, want, have.Body))
			r.get(target, "If-None-Match", plain.Header.Get("ETag")).Require(304).RequireHeader("Vary", vary)
		}
	}
}

func decoded(t *testing.T, coding, body string) string {
	r := io.Reader(strings.NewReader(body))
	switch coding {
	case "br":
		r = brotli.NewReader(r)
	case "gzip":
		unzipped, err := gzip.NewReader(r)
		require.NoError(t, err)
		r = unzipped
	}
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.True(t, coding == "" || len(body) < len(text)/5)
	return string(text)
}

func TestCacheMaxAge(t *testing.T) {
	for age, want := range map[time.Duration]string{0: "no-cache", time.Minute: "public, max-age=60"} {
		newRig(t, func(o *Options) { o.CacheMaxAge = age }, nil).get(likesOf1).RequireHeader("Cache-Control", want)
	}
}

// A truncated body is not read as a shorter one.
func TestUnreadBodies(t *testing.T) {
	r := newRig(t, nil, nil)
	post := func(err error) apikit.Answer {
		body := io.MultiReader(strings.NewReader(`{"post_ids":[1]}`), iotest.ErrReader(err))
		return r.askWithin(t.Context(), http.MethodPost, byBody, body, "Content-Type", "application/json")
	}
	post(os.ErrDeadlineExceeded).RequireProblem(http.StatusRequestTimeout, "request-timeout", "")
	post(io.ErrUnexpectedEOF).RequireProblem(http.StatusBadRequest, "invalid-request", "")
}

// asks are the requests (target and body) that may wait for an event of post 1 at OFFSET.
var asks = map[string][2]string{
	"one":      {likesOf1 + "?min_offset=OFFSET", ""},
	"many":     {"/v1/likes?post_ids=1,2&min_offset=0:5,1:OFFSET", ""},
	"body":     {byBody, `{"post_ids":[1],"min_offset":[{"partition":1,"offset":OFFSET}]}`},
	"reaction": {"/v1/posts/1/likes/7?min_offset=OFFSET", ""},
	"likers":   {"/v1/posts/1/likers?min_offset=OFFSET", ""},
}

func (r *rig) askFor(request [2]string, offset int64) apikit.Answer {
	r.T.Helper()
	at := strings.NewReplacer("OFFSET", fmt.Sprint(offset))
	if request[1] != "" {
		return r.post(request[0], at.Replace(request[1]))
	}
	return r.get(at.Replace(request[0]))
}

func longWait(o *Options) { o.MaxWait, o.WriteTimeout = patience, 2*patience }

// A client that passes the offset of its like gets a response that includes the like.
func TestReadYourOwnLike(t *testing.T) {
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, longWait, nil)
			r.askFor(ask, 19).Require(200)
			require.Empty(t, r.likes.mu.waits, "the event before as_of is already covered")

			done := testkit.Later(func() apikit.Answer { return r.askFor(ask, 20) })
			want := testkit.Receive(t, r.likes.mu.waits, "the request must wait")
			require.Equal(t, wire.Position{Partition: 1, Offset: 21}, want,
				"the event itself is covered by the offset after it")
			require.Empty(t, done)
			r.likes.set(func() { r.likes.mu.asOf[1]++ })
			a := testkit.Receive(t, done, "the request must be answered").Require(200)
			require.Contains(t, a.Body, `{"partition":1,"offset":21}`)
		})
	}
}

func TestNotCovered(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWait = time.Millisecond }, nil)
	notCovered := func(asOf string) string {
		return apikit.Problem(503, "not-covered", "Event not yet visible",
			"the reader did not reach min_offset within 1ms (reader.max_wait); as_of is its position",
			`"as_of":[`+asOf+"]")
	}
	r.get(likesOf1+"?min_offset=1000").RequireJSON(503, notCovered(`{"partition":1,"offset":20}`))
	r.get("/v1/likes?post_ids=1&min_offset=3:1000,0:5,3:7").
		RequireJSON(503, notCovered(`{"partition":0,"offset":10},{"partition":3,"offset":40}`))

	r.likes.mu.notReady[1] = &view.NotReadyError{Topic: "t", Partition: 1, Behind: 5}
	r.get(likesOf1+"?min_offset=1000").RequireProblem(503, "not-ready", "")

	r = newRig(t, nil, nil)
	r.getGone(likesOf1+"?min_offset=1000").RequireProblem(503, "not-covered", "")
	require.Empty(t, r.logged.String(), "a disconnected client is not a failure")
}

func TestNotReady(t *testing.T) {
	r := newRig(t, nil, nil)
	r.likes.mu.notReady[1] = &view.NotReadyError{Topic: schema.TopicLikes, Partition: 1, Behind: 17}
	for _, target := range []string{likesOf1, "/v1/likes?post_ids=2,1", "/v1/posts/1/likers", "/v1/posts/1/likes/7"} {
		r.get(target).RequireProblem(503, "not-ready", "likes/1: the view is 17 records behind")
	}
	r.get("/v1/posts/2/likes").Require(200) // the other partitions answer

	r.likes.mu.partitions = &view.NotReadyError{Topic: schema.TopicLikes, Partition: -1, Behind: -1}
	for _, target := range []string{likesOf1 + "?min_offset=1", "/v1/likes?post_ids=1&min_offset=1:1", "/v1/stats"} {
		r.get(target).RequireProblem(503, "not-ready", "likes: the view is being opened")
	}
}

func TestInternal(t *testing.T) {
	r := newRig(t, nil, nil)
	r.likes.mu.notReady[1] = errors.New("disk is gone at /secret")
	a := r.get(likesOf1).RequireProblem(http.StatusInternalServerError, "internal", "")
	require.NotContains(t, a.Body, "secret")
	require.Contains(t, r.logged.String(), "disk is gone at /secret")
	require.Contains(t, r.logged.String(), likesOf1)
}

// A post with user buckets is in several partitions: min_offset must name one, unless the request names the user.
func TestPositionsOfAPostWithUserBuckets(t *testing.T) {
	r := newRig(t, nil, nil)
	target := fmt.Sprintf("/v1/posts/%d/", sharedPost)
	r.likes.set(func() { r.likes.mu.counts[sharedPost] = schema.Counts{Likes: 7} })
	r.get(target+"likes?min_offset=3:39").
		RequireJSON(200, `{"post_id":"77","likes":7,"dislikes":0,"as_of":{"partition":1,"offset":20}}`).
		RequireHeader("Kudos-As-Of", "1:20,3:40") // each of its partitions
	require.Empty(t, r.likes.mu.waits)

	for user, owner := range map[uint64]int32{8: 1, 9: 3} {
		at := int64(20 * (1 + owner/2)) // the view's position
		r.get(fmt.Sprintf("%slikes/%d?min_offset=%d", target, user, at-1)).Require(200)
		require.Empty(t, r.likes.mu.waits)
	}
	r.getGone(target+"likes/9?min_offset=40").RequireProblem(503, "not-covered", "")
	require.Equal(t, wire.Position{Partition: 3, Offset: 41}, <-r.likes.mu.waits)
}

// TestResponsesAreOneSnapshot: while events arrive, each response is what a view stopped at its position returns.
func TestResponsesAreOneSnapshot(t *testing.T) {
	targets := map[string][2]string{
		"one now":      {likesOf1, ""},
		"many now":     {"/v1/likes?post_ids=1,2", ""},
		"body now":     {byBody, `{"post_ids":[1,2]}`},
		"reaction now": {"/v1/posts/1/likes/7", ""},
		"likers now":   {"/v1/posts/1/likers", ""},
	}
	maps.Copy(targets, asks)
	position := regexp.MustCompile(`\{"partition":(\d),"offset":(\d+)\}`)
	for name, ask := range targets {
		t.Run(name, func(t *testing.T) {
			r, still := newRig(t, nil, nil), newRig(t, nil, nil)
			r.likes.beforeLook = r.likes.move // an event arrives before each read
			for range 3 {
				a := r.askFor(ask, 1).Require(200)
				asOf := position.FindStringSubmatch(a.Body)
				require.NotNil(t, asOf, a.Body)
				partition, _ := strconv.Atoi(asOf[1])
				offset, _ := strconv.ParseInt(asOf[2], 10, 64)
				require.Greater(t, offset, still.likes.mu.asOf[partition], "the view has moved since the last response")
				for still.likes.mu.asOf[partition] < offset {
					still.likes.move()
				}
				want := still.askFor(ask, 1)
				require.Equal(t, want.Body, a.Body)
				require.Equal(t, want.Header, a.Header)
			}
		})
	}
}

const floodSlots = 4 // reader.max_concurrent_requests in these tests, or what one address may have of it

// fromAny lets a test name the address that a request comes from.
func fromAny(o *Options) { o.TrustedProxies = []string{"192.0.2.1", "127.0.0.0/8"} }

const forwarded = "X-Forwarded-For"

// Requests that wait for min_offset take no slots from others, and none waits for an event that is not in likes.
func TestRegressFarMinOffset(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		r := newRig(t, func(o *Options) { longWait(o); fromAny(o); o.MaxConcurrentRequests = floodSlots }, nil)
		waiting := make(chan apikit.Answer, floodSlots)
		const far = likesOf1 + "?min_offset=1000"
		for i := range floodSlots {
			go func() { waiting <- r.get(far, forwarded, []string{"192.0.2.7", "192.0.2.7", "::1", "192.0.2.8"}[i]) }()
			testkit.Receive(t, r.likes.mu.waits, "the request must wait")
			if i == 1 {
				r.get(far, forwarded, "192.0.2.7").RequireProblem(http.StatusTooManyRequests, "too-many-requests",
					"this address holds as many of the requests that wait for min_offset as it leaves free for others "+
						"(reader.max_concurrent_requests); if it is a proxy, list it in reader.trusted_proxies")
			}
		}
		for _, target := range []string{likesOf1, likesOf1 + "?min_offset=0", "/v1/stats", "/openapi.yaml"} {
			r.get(target).Require(200)
		}
		r.post(byBody, `{"post_ids":[1]}`).Require(200)
		r.get(far).RequireProblem(http.StatusTooManyRequests, "too-many-requests",
			"the limit of requests that wait for min_offset is reached (reader.max_concurrent_requests)")

		r.likes.set(func() { r.likes.mu.asOf[1] = 1001 })
		for range floodSlots {
			testkit.Receive(t, waiting, "the request must be answered").Require(200)
		}
		all := int64(floodSlots)
		require.True(t, r.working.TryAcquire(all) && r.waiting.TryAcquire(all), "all slots are free again")
		for kind, n := range map[string]int{"min_offset": 1, "address_min_offset": 1, "requests": 0} {
			require.EqualValues(t, n, r.Metric("kudos_reader_refused_total", "kind", kind), kind)
		}
	})
	t.Run("beyond the end", func(t *testing.T) {
		r := startRole(t, func(o *Options) {
			o.MaxConcurrentRequests, o.MaxWait, o.WriteTimeout = 2*floodSlots, 2*patience, 4*patience
		})
		var flood []<-chan apikit.Answer
		for i := range floodSlots {
			flood = append(flood, r.getLater(fmt.Sprintf("%s?min_offset=%d", likesOf1, likesEnd+i)))
		}
		r.get(likesOf1).Require(200)
		for _, one := range flood {
			a := testkit.Receive(t, one, "the request must be answered at once").RequireProblem(http.StatusBadRequest,
				"invalid-request", fmt.Sprintf("of the topic likes ends at %d", likesEnd))
			require.Contains(t, a.Body, `"field":"min_offset","reason":"out_of_range"`)
		}
	})
}

// A request whose body does not arrive takes no slot.
func TestRegressUnfinishedBodies(t *testing.T) {
	r := startRole(t, func(o *Options) {
		o.MaxConcurrentRequests, o.ReadTimeout, o.WriteTimeout = floodSlots, 2*patience, 4*patience
	})
	for range 3 * floodSlots {
		r.Unfinished(byBody, "application/json", `{"post_ids":`)
	}
	r.get(likesOf1).Require(200)
	r.get("/v1/posts").RequireProblem(http.StatusNotFound, "not-found", "")
}

// Every request that waits for min_offset gets an error if there is no such event.
func TestBeyondEnd(t *testing.T) {
	r := newRig(t, longWait, nil)
	r.likes.mu.beyondEnd = &view.BeyondEndError{Want: wire.Position{Partition: 3, Offset: 1001}, End: 40}
	for name, ask := range asks {
		t.Log(name)
		r.askFor(ask, 1000).RequireInvalid("min_offset", "out_of_range",
			"there is no event at partition 3, offset 1000: that partition of the topic likes ends at 40")
	}
	require.Empty(t, r.logged.String())
}
