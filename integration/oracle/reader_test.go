package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema/kudosv1"
)

const fakePartitions = 2

// fakeReader responds like a reader, from its own fold, and then corrupts the response.
type fakeReader struct {
	t      testing.TB
	counts bool // keeps counts only
	spoil  func(path string, body object)
	before func() // called with the lock held, before each response

	mu struct {
		sync.Mutex
		fold *Fold
		want map[uint64]*expected // nil: the fold has changed
	}
}

type object = map[string]any

func (f *fakeReader) serve() (base string) {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(*http.Request) object{
		"GET /v1/stats": f.stats, "POST /v1/likes:get": f.many, "GET /v1/posts/{post}/likes": f.one,
		"GET /v1/posts/{post}/likes/{user}": f.reaction, "GET /v1/posts/{post}/likers": f.page,
		"POST /v1/reactions:get": f.manyReactions,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.before != nil {
				f.before()
			}
			if f.mu.want == nil {
				f.mu.want = f.mu.fold.expected()
			}
			body := answer(r)
			if f.counts && (body["reaction"] != nil || body["likers"] != nil) {
				w.WriteHeader(http.StatusNotFound)
				body = object{"type": "urn:kudos:problem:no-reactions"}
			} else if id := r.PathValue("post"); id != "" {
				post, _ := f.of(id)
				body["post_id"], body["as_of"] = id, f.asOf(owner(post, fakePartitions))
			}
			if f.spoil != nil {
				f.spoil(r.URL.Path, body)
			}
			if err := json.NewEncoder(w).Encode(body); err != nil {
				f.t.Error(err)
			}
		})
	}
	server := httptest.NewServer(mux)
	f.t.Cleanup(server.Close)
	return server.URL
}

func (f *fakeReader) of(id string) (uint64, *expected) {
	post, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		f.t.Error(err)
	}
	return post, cmp.Or(f.mu.want[post], &expected{})
}

func (f *fakeReader) asOf(p int32) any { return object{"partition": p, "offset": f.mu.fold.next[p]} }

func (f *fakeReader) one(r *http.Request) object {
	_, e := f.of(r.PathValue("post"))
	return object{"likes": e.counts.Likes, "dislikes": e.counts.Dislikes}
}

// batch answers for each post of a request, with the position of each of their partitions.
func (f *fakeReader) batch(r *http.Request, answer func(e *expected, user, viewer uint64) object) (list, places []any) {
	var request struct {
		Posts  []string `json:"post_ids"`
		User   uint64   `json:"user_id,string"`
		Viewer uint64   `json:"viewer,string"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		f.t.Error(err)
	}
	partitions := map[int32]bool{}
	for _, id := range request.Posts {
		post, e := f.of(id)
		partitions[owner(post, fakePartitions)] = true
		body := answer(e, request.User, request.Viewer)
		body["post_id"] = id
		list = append(list, body)
	}
	for _, p := range slices.Sorted(maps.Keys(partitions)) {
		places = append(places, f.asOf(p))
	}
	return list, places
}

func (f *fakeReader) many(r *http.Request) object {
	viewed := false
	list, places := f.batch(r, func(e *expected, _, viewer uint64) object {
		body := object{"likes": e.counts.Likes, "dislikes": e.counts.Dislikes}
		if viewed = viewer != 0; viewed {
			body["reaction"] = reactionBodyOf(e, viewer)["reaction"]
		}
		return body
	})
	if viewed {
		return object{"posts": list, "as_of": places, "reactions_as_of": slices.Clone(places)}
	}
	return object{"posts": list, "as_of": places}
}

func (f *fakeReader) manyReactions(r *http.Request) object {
	var of uint64
	list, places := f.batch(r, func(e *expected, user, _ uint64) object { of = user; return reactionBodyOf(e, user) })
	return object{"user_id": strconv.FormatUint(of, 10), "reactions": list, "as_of": places}
}

func (f *fakeReader) reaction(r *http.Request) object {
	_, e := f.of(r.PathValue("post"))
	user, _ := f.of(r.PathValue("user"))
	body := reactionBodyOf(e, user)
	body["user_id"] = r.PathValue("user")
	return body
}

func reactionBodyOf(e *expected, user uint64) object {
	p := e.reactionOf(user)
	if p.action == kudosv1.Action_UNLIKE {
		return object{"reaction": "NONE"}
	}
	return object{"reaction": p.action.String(), "region": p.region, "since": time.UnixMilli(p.sinceMs).UTC()}
}

func (f *fakeReader) stats(*http.Request) object {
	var sum Count
	posts, events, partitions := 0, int64(0), []any{}
	for _, e := range f.mu.want {
		if sum = sum.plus(e.counts); e.counts != (Count{}) {
			posts++
		}
	}
	for p := range int32(fakePartitions) {
		partitions = append(partitions, object{"as_of": f.asOf(p), "ready": true})
		events += f.mu.fold.next[p]
	}
	return object{"posts": posts, "likes": sum.Likes, "dislikes": sum.Dislikes, "events": events, "events_behind": 0,
		"lag_ms": 5, "partitions": partitions, "reactions": slices.Clone(partitions)}
}

// page returns a page of likers; a token is the previous user.
func (f *fakeReader) page(r *http.Request) object {
	_, e := f.of(r.PathValue("post"))
	size, _ := strconv.Atoi(r.URL.Query().Get("page_size"))
	after, _ := strconv.ParseUint(r.URL.Query().Get("page_token"), 10, 64)
	body, likers := object{}, []any{}
	for _, l := range e.likers {
		if l.user <= after {
			continue
		}
		if len(likers) == size {
			body["next_page_token"] = likers[size-1].(object)["user_id"]
			break
		}
		likers = append(likers, object{"user_id": fmt.Sprint(l.user), "since": time.UnixMilli(l.sinceMs).UTC(),
			"region": l.region})
	}
	body["likers"] = likers
	return body
}

// fakeLog has 20 users who like five posts; some of them withdraw, others dislike.
func fakeLog() []Event {
	var log []Event
	for _, post := range []uint64{1, 2, 3, 4, 8} {
		for user := uint64(2); user <= 40; user += 2 {
			log = append(log, Event{Post: post, User: user, Action: kudosv1.Action_LIKE,
				TimeMs: int64(1000*post + user), Region: "DE"})
		}
		for user := uint64(2); user <= 10; user += 2 {
			log = append(log, Event{Post: post, User: user, Action: kudosv1.Action_DISLIKE, TimeMs: 20_000,
				Region: "FR"})
		}
		log = append(log, Event{Post: post, User: 12, Action: kudosv1.Action_UNLIKE, TimeMs: 20_001, Region: "FR"})
	}
	return log
}

func (f *Fold) append(e Event) {
	p := f.PartitionOf(e.Post)
	f.Add(e, f.next[p])
	f.next[p]++
}

func compareAtRest(t *testing.T, f *fakeReader, depth Depth) (*ReaderResult, error) {
	t.Helper()
	f.t = t
	f.mu.fold = NewFold(fakePartitions)
	for _, e := range fakeLog() {
		f.mu.fold.append(e)
	}
	v := &ReaderResult{}
	c := newComparison(f.serve(), f.mu.fold, v)
	defer c.asker.close()
	for p, next := range f.mu.fold.next {
		c.covered[p] = span{next, next + 1}
	}
	return v, c.run(t.Context(), depth)
}

func TestIdleReader(t *testing.T) {
	v, err := compareAtRest(t, &fakeReader{}, Everything)
	require.NoError(t, err)
	require.Zero(t, v.Differences.Total, v.Differences.String())
	require.Greater(t, v.Answers, 5*20)
	v, err = compareAtRest(t, &fakeReader{counts: true}, CountsOnly)
	require.NoError(t, err)
	require.Zero(t, v.Differences.Total, v.Differences.String())
	_, err = compareAtRest(t, &fakeReader{}, CountsOnly)
	require.ErrorContains(t, err, "a reader that keeps only counts must reject the request")
}

type change func(object)

func set(field string, value any) change { return func(b object) { b[field] = value } }

// within changes an object in a response, inFirst the first object of a list, and listed the list itself.
func within(field string, do change) change { return func(b object) { do(b[field].(object)) } }
func inFirst(list string, do change) change {
	return func(b object) { do(b[list].([]any)[0].(object)) }
}
func listed(list string, do func([]any) []any) change {
	return func(b object) { b[list] = do(b[list].([]any)) }
}

func withoutFirst(list []any) []any { return list[1:] }
func reversed(list []any) []any     { slices.Reverse(list); return list }

// liked turns a reaction into a like since a time, from Germany.
func liked(sinceMs int64) change {
	return func(b object) { b["reaction"], b["since"], b["region"] = "LIKE", time.UnixMilli(sinceMs), "DE" }
}

func TestEachWrongAnswerIsSeen(t *testing.T) {
	const post, many, stats = "/v1/posts/3/likes", "/v1/likes:get", "/v1/stats"
	const likers, pages = "/v1/posts/4/likers", "/v1/posts/3/likers" // the first in one page
	const reactions = "/v1/reactions:get"
	const like, withdrawn, dislike = "/v1/posts/2/likes/14", "/v1/posts/2/likes/12", "/v1/posts/2/likes/2"
	never := fmt.Sprintf("/v1/posts/%d/likes", neverLiked)
	type spoilt struct {
		path   string // of the responses to corrupt
		change change
		want   string
	}
	differ := map[string]spoilt{
		"count":            {post, set("likes", 15), "post 3: want {Likes:14 Dislikes:5}, have {Likes:15 Dislikes:5}"},
		"dislikes":         {post, set("dislikes", 0), "post 3: want"},
		"post never liked": {never, set("likes", 1), "want {Likes:0"},
		"another post":     {post, set("post_id", "4"), "is for post 4"},
		"count in a batch": {many, inFirst("posts", set("likes", 1)), "/v1/likes:get: post 1: want"},
		"order of a batch": {many, listed("posts", reversed), "post 1: is for post 8"},
		"as_of left out":   {many, listed("as_of", withoutFirst), "lacks partition 0"},
		"as_of too low":    {post, within("as_of", set("offset", 5)), "/v1/posts/3/likes: post 3: as of"},
		"as_of too high": {pages, within("as_of", set("offset", 5000)),
			"/v1/posts/3/likers?page_size=3: post 3: as of"},
		"wrong as_of partition": {post, within("as_of", set("partition", 1-owner(3, fakePartitions))), "post 3: as of"},
		"liker left out": {likers, listed("likers", func(list []any) []any { return slices.Delete(list, 3, 4) }),
			"want {user:20 sinceMs:4020 region:DE}, have {user:22"},
		"first left out": {likers, listed("likers", withoutFirst), "leaves out {user:14"},
		"last left out": {likers, listed("likers", func(list []any) []any { return list[:13] }),
			"is the last page, but leaves out {user:40"},
		"liker twice": {likers, listed("likers", func(list []any) []any { return append(list[:1:1], list...) }),
			"want {user:16"},
		"not a liker":         {likers, inFirst("likers", set("user_id", "13")), "want {user:14"},
		"likers not in order": {likers, listed("likers", reversed), "/v1/posts/4/likers?page_size=1000: post 4"},
		"since":               {likers, inFirst("likers", set("since", time.UnixMilli(4015))), "sinceMs:4015"},
		"region":              {likers, inFirst("likers", set("region", "FR")), "region:FR"},
		"page too long": {pages, listed("likers", func(list []any) []any { return slices.Repeat(list, 2) }),
			"has 6 likers"},
		"same page again": {pages, set("next_page_token", "0"), "user 14 comes after user 18"},
		"endless pages": {pages, func(b object) { b["likers"], b["next_page_token"] = []any{}, "0" },
			"the pages do not end; 0 likers listed, want 14"},
		"ends too early": {pages, func(b object) { delete(b, "next_page_token") },
			"is the last page, but leaves out {user:20"},
		"pages skipped": {pages, func(b object) {
			if b["likers"].([]any)[0].(object)["user_id"] == "14" {
				b["next_page_token"] = "30"
			}
		}, "8 likers listed, want 14"},
		"wrong page token":        {pages, set("next_page_token", "30"), "user 32 comes after user 36"},
		"withdrawn like":          {withdrawn, liked(1), "/v1/posts/2/likes/12: post 2: want"},
		"user without a reaction": {never + "/1", liked(1), "want {user:1 action:2 "},
		"dislike for none": {dislike, func(b object) {
			b["reaction"] = "NONE"
			delete(b, "since")
			delete(b, "region")
		}, "want {user:2 action:3 "},
		"since of a like":  {like, set("since", time.UnixMilli(2013)), "sinceMs:2013"},
		"region of a like": {like, set("region", "FR"), "region:FR"},
		"since left out": {like, func(b object) { delete(b, "since") },
			"a reaction must have since and region"},
		"another user":     {like, set("user_id", "16"), "is for user 16"},
		"unknown reaction": {like, set("reaction", "LOVE"), `reaction "LOVE"`},
		"reaction in a batch": {reactions, inFirst("reactions", set("reaction", "LIKE")),
			"/v1/reactions:get: post "},
		"since in a batch": {reactions, inFirst("reactions", set("since", time.UnixMilli(4))),
			"sinceMs:4 "},
		"order of reactions": {reactions, listed("reactions", reversed),
			"/v1/reactions:get: post 1: is for post 8"},
		"position of reactions left out": {reactions, listed("as_of", withoutFirst), "lacks partition"},
		"viewer's reaction": {many, func(b object) {
			if b["reactions_as_of"] != nil {
				inFirst("posts", set("reaction", "DISLIKE"))(b)
			}
		}, "/v1/likes:get (viewer): post "},
		"viewer's reaction left out": {many, func(b object) {
			if b["reactions_as_of"] != nil {
				delete(b["posts"].([]any)[0].(object), "reaction")
			}
		}, "has a reaction without a viewer"},
		"partition of no post": {many, listed("as_of", func(list []any) []any {
			return append(list, object{"partition": 7, "offset": 1})
		}), "as_of has partitions without any of the posts"},
		"viewer's position too low": {many, func(b object) {
			if b["reactions_as_of"] != nil {
				inFirst("reactions_as_of", set("offset", 5))(b)
			}
		}, "(viewer): post "},
		"total": {stats, set("likes", 1),
			"/v1/stats: want {posts:5 likes:70 dislikes:25}, have {posts:5 likes:1 "},
		"events":                  {stats, set("events", 1), "events is 1"},
		"not ready":               {stats, inFirst("partitions", set("ready", false)), "ready false"},
		"partitions not in order": {stats, listed("partitions", reversed), "/v1/stats: partition 0"},
	}
	fail := map[string]spoilt{
		"too few posts":      {many, listed("posts", withoutFirst), "requested 5 posts, got 4"},
		"as_of not in order": {many, listed("as_of", reversed), "once, in order"},
		"unknown field":      {post, set("shares", 1), `unknown field "shares"`},
		"partition left out": {stats, listed("partitions", withoutFirst), "partitions are missing"},
	}
	compared := func(t *testing.T, s spoilt) (*ReaderResult, error) {
		return compareAtRest(t, &fakeReader{spoil: func(path string, body object) {
			if strings.HasSuffix(path, s.path) {
				s.change(body)
			}
		}}, Everything)
	}
	for name, s := range differ {
		t.Run(name, func(t *testing.T) {
			v, err := compared(t, s)
			require.NoError(t, err)
			require.Contains(t, v.Differences.String(), s.want)
			require.Equal(t, v.Differences.Total, v.Differences.Of("I7"))
		})
	}
	for name, s := range fail {
		t.Run(name, func(t *testing.T) {
			_, err := compared(t, s)
			require.ErrorContains(t, err, s.want)
		})
	}
}
