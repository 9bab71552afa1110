package reader

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

const reactionsByBody = "/v1/reactions:get"

func TestManyReactions(t *testing.T) {
	r := newRig(t, nil, nil)
	r.post(reactionsByBody, `{"user_id":"7","post_ids":["2",1,"1"]}`).RequireHeader("Cache-Control", "private, no-cache").
		RequireJSON(200, `{"user_id":"7","reactions":[{"post_id":"2","reaction":"NONE"},
		{"post_id":"1","reaction":"LIKE","since":"2025-11-21T10:00:00.123Z","region":"DE"},
		{"post_id":"1","reaction":"LIKE","since":"2025-11-21T10:00:00.123Z","region":"DE"}],
		"as_of":[{"partition":1,"offset":20},{"partition":2,"offset":30}]}`)
	r.post(reactionsByBody, `{"user_id":7,"post_ids":[1],"min_offset":[{"partition":1,"offset":19}]}`).Require(200)
	for body, field := range map[string]string{
		`{"post_ids":[1]}`: "user_id", `{"user_id":7}`: "post_ids", `{"user_id":0,"post_ids":[1]}`: "user_id",
		`{"user_id":7,"post_ids":[1],"x":1}`: "x", `{"user_id":[7],"post_ids":[1]}`: "user_id",
		`{"user_id":7,"post_ids":[1],"min_offset":[{"partition":4,"offset":1}]}`: "min_offset",
	} {
		a := r.post(reactionsByBody, body).RequireProblem(http.StatusBadRequest, "invalid-request", "")
		require.Contains(t, a.Body, `"field":"`+field+`"`, body)
	}
	r.api.reactions = nil
	r.post(reactionsByBody, `{"user_id":7,"post_ids":[1]}`).RequireProblem(http.StatusNotFound, "no-reactions", "")
}

// A feed page needs one request: counts, and the viewer's own reactions.
func TestCountsWithTheViewersReactions(t *testing.T) {
	r := newRig(t, nil, nil)
	const want = `{"posts":[{"post_id":"2","likes":-1,"dislikes":0,"reaction":"NONE"},
		{"post_id":"1","likes":3,"dislikes":1,"reaction":"LIKE"}],
		"as_of":[{"partition":1,"offset":20},{"partition":2,"offset":30}],
		"reactions_as_of":[{"partition":1,"offset":20},{"partition":2,"offset":30}]}`
	a := r.get("/v1/likes?post_ids=2,1&viewer=7").RequireJSON(200, want)
	a.RequireHeader("Cache-Control", "private, no-cache")
	r.post(byBody, `{"post_ids":[2,1],"viewer":"7"}`).RequireJSON(200, want)
	etag := a.Header.Get("ETag")
	require.NotEqual(t, etag, r.get("/v1/likes?post_ids=2,1&viewer=8").Require(200).Header.Get("ETag"))
	r.get("/v1/likes?post_ids=2,1&viewer=7", "If-None-Match", etag).Require(http.StatusNotModified)
	r.get("/v1/likes?post_ids=1&viewer=0").RequireInvalid("viewer", "zero_id", "is 0")
	r.post(byBody, `{"post_ids":[1],"viewer":-1}`).RequireProblem(http.StatusBadRequest, "invalid-request", "")
	r.api.reactions = nil
	r.get("/v1/likes?post_ids=1&viewer=7").RequireProblem(http.StatusNotFound, "no-reactions", "")
	r.get("/v1/likes?post_ids=1").Require(200)
}

// peerRig is a reader that answers others. Its position is 1000 ahead of that of the reader that asks.
type peerRig struct {
	*rig
	url   string
	asked atomic.Int32
	whose atomic.Value // the client of the last question
}

func newPeerRig(t *testing.T) *peerRig {
	p := &peerRig{rig: newRig(t, nil, nil)}
	mux := http.NewServeMux()
	mux.Handle(peerPath, p.peer)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		p.whose.Store(r.Header.Get(forwarded))
		if r.ProtoMajor != 2 {
			t.Errorf("peers talk HTTP/2, not %s", r.Proto)
		}
		mux.ServeHTTP(w, r)
	}))
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	p.url = s.URL
	p.likes.set(func() {
		for i := range p.likes.mu.asOf {
			p.likes.mu.asOf[i] += 1000
		}
		p.likes.mu.likers = []wire.Liker{{UserID: 5, Since: 1, Region: "DE"}, {UserID: 6, Since: 2, Region: "US"}}
	})
	return p
}

var notKept = &view.NotReadyError{Topic: schema.TopicState, Partition: 1, NotKept: true, Reason: "not kept"}

// newSharing returns a reader that keeps all partitions but 1, which others keep.
func newSharing(t *testing.T, holders ...string) *rig {
	r := newRig(t, nil, nil)
	r.likes.mu.notReady[1] = notKept
	r.likes.mu.holders = append([]string{"http://self"}, holders...)
	counts := newFakeLikes()
	counts.mu.asOf[1] = 5000
	r.counts = counts // of all partitions
	o := r.options
	o.AdvertisedURL = "http://self"
	r.peers = newPeers(o, r.likes.Holders)
	t.Cleanup(r.peers.close)
	return r
}

// dead is an address at which nobody listens.
func dead(t *testing.T) string {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}

func TestPeersAreAsked(t *testing.T) {
	peer := newPeerRig(t)
	r := newSharing(t, peer.url)
	const since = `"since":"2025-11-21T10:00:00.123Z","region":"DE"`
	r.get(likesOf1+"/7").RequireJSON(200, `{"post_id":"1","user_id":"7","reaction":"LIKE",`+since+
		`,"as_of":{"partition":1,"offset":1020}}`)
	r.post(reactionsByBody, `{"user_id":7,"post_ids":[2,1]}`).RequireJSON(200, `{"user_id":"7","reactions":[
		{"post_id":"2","reaction":"NONE"},{"post_id":"1","reaction":"LIKE",`+since+`}],
		"as_of":[{"partition":1,"offset":1020},{"partition":2,"offset":30}]}`)
	page := r.get("/v1/posts/1/likers?page_size=1").Require(200)
	require.Contains(t, page.Body, `"user_id":"5"`)
	var likers wire.Likers
	page.Decode(&struct {
		Token *string `json:"next_page_token"`
	}{&likers.NextPageToken})
	next := r.get("/v1/posts/1/likers?page_token=" + likers.NextPageToken).Require(200)
	require.Contains(t, next.Body, `"likers":[{"user_id":"6","since":"1970-01-01T00:00:00.002Z","region":"US"}]`)
	r.get("/v1/posts/2/likers").Require(200)
	require.EqualValues(t, 4, peer.asked.Load(), "only for what is not kept here")
	require.Equal(t, "192.0.2.1", peer.whose.Load(), "the client, for the peer's limits")

	// What a peer refuses for good is the answer.
	peer.likes.set(func() {
		peer.likes.mu.beyondEnd = &view.BeyondEndError{Want: wire.Position{Partition: 1, Offset: 2000}, End: 1020}
	})
	r.get(likesOf1+"/7?min_offset=1999").RequireInvalid("min_offset", "out_of_range",
		"there is no event at partition 1, offset 1999: that partition of the topic likes ends at 1020")
}

// A page must not be older than the one before, even from another reader.
func TestPagesAreFromTheirPositionOn(t *testing.T) {
	r := newSharing(t, newPeerRig(t).url)
	page := r.get("/v1/posts/1/likers?page_size=1").Require(200)
	r.likes.set(func() { r.likes.mu.notReady[1] = nil }) // at offset 20, and the page was of 1020
	r.options.MaxWait = 1
	token := page.Body[strings.Index(page.Body, `token":"`)+len(`token":"`):]
	token, _, _ = strings.Cut(token, `"`)
	r.get("/v1/posts/1/likers?page_token="+token).RequireProblem(503, "not-covered", "")
	r.likes.set(func() { r.likes.mu.asOf[1] = 1020 })
	r.get("/v1/posts/1/likers?page_token=" + token).Require(200)
}

func TestNextPeerIsAskedIfOneDoesNotAnswer(t *testing.T) {
	gone, other, good := dead(t), newPeerRig(t), newPeerRig(t)
	other.likes.mu.notReady[1] = notKept
	r := newSharing(t, gone, other.url, good.url)
	for range 3 {
		r.get(likesOf1 + "/7").Require(200)
	}
	require.EqualValues(t, 3, other.asked.Load())
	require.EqualValues(t, 3, good.asked.Load())
	require.Equal(t, []string{other.url, good.url, gone}, r.peers.order(1), "who was away is asked last")

	r.likes.set(func() { r.likes.mu.holders = []string{"http://self", gone, other.url} })
	a := r.get(likesOf1+"/7").RequireProblem(503, "not-ready", "")
	require.Contains(t, a.Body, "no reader answers for the reactions of partition 1 (generation 7)")
	require.Contains(t, a.Body, other.url+": by generation 7 of group reader-reactions, other readers keep partition 1")
	r.likes.set(func() { r.likes.mu.holders = nil })
	require.Contains(t, r.get(likesOf1+"/7").RequireProblem(503, "not-ready", "").Body, "none keeps them yet")
	r.get("/v1/posts/2/likes/7").Require(200)
}

// A partition that has not reached the layout by which it was asked may lack reactions that it owns.
func TestPeerWaitsForTheLayout(t *testing.T) {
	p := newPeerRig(t)
	p.options.MaxWait = 1
	ask := func(body string) *http.Response {
		path := strings.Replace(peerPath, "{partition}", "1", 1)
		req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		req.SetPathValue("partition", "1")
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		p.peer.ServeHTTP(w, req)
		return w.Result()
	}
	require.Equal(t, 200, ask(`{"user_id":"7","post_ids":[1],"layout":{"Number":0}}`).StatusCode)
	require.Equal(t, 503, ask(`{"user_id":"7","post_ids":[1],"layout":{"Number":1}}`).StatusCode)
	p.likes.set(func() { p.likes.mu.layout = 1 })
	require.Equal(t, 200, ask(`{"user_id":"7","post_ids":[1],"layout":{"Number":1}}`).StatusCode)
	for _, bad := range []string{`{}`, `[]`, `{"post_ids":[]}`, `{"post_ids":[1],"limit":1001}`} {
		require.Equal(t, 400, ask(bad).StatusCode, bad)
	}
}
