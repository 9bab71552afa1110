package oracle

import (
	"encoding/json"
	"fmt"
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

// fakeReader answers as a reader does, from a fold of its own, and then spoils the answer.
type fakeReader struct {
	t      testing.TB
	counts bool // counts only
	spoil  func(path string, body map[string]any)
	before func() // called with the lock held, before each answer

	mu struct {
		sync.Mutex
		fold *fold
		want map[uint64]*expected // nil: the fold has moved on
	}
}

type object = map[string]any

func (f *fakeReader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		f.before()
	}
	if f.mu.want == nil {
		f.mu.want = f.mu.fold.expected()
	}
	want := f.mu.want
	of := func(id string) (uint64, *expected) {
		post, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			f.t.Error(err)
		}
		if want[post] == nil {
			return post, &expected{}
		}
		return post, want[post]
	}
	asOf := func(p int32) any { return object{"partition": p, "offset": f.mu.fold.next[p]} }
	at := func(post uint64) any { return asOf(home(post, fakePartitions)) }
	var body object
	part := strings.Split(r.URL.Path, "/") // "", v1, posts, ID, …
	switch {
	case r.URL.Path == "/v1/stats":
		body = f.stats(want, asOf)
	case r.URL.Path == "/v1/likes:get":
		var request struct {
			Posts []string `json:"post_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			f.t.Error(err)
		}
		list, partitions := []any{}, map[int32]bool{}
		for _, id := range request.Posts {
			post, e := of(id)
			partitions[home(post, fakePartitions)] = true
			list = append(list, object{"post_id": id, "likes": e.counts.Likes, "dislikes": e.counts.Dislikes})
		}
		places := []any{}
		for p := range int32(fakePartitions) {
			if partitions[p] {
				places = append(places, asOf(p))
			}
		}
		body = object{"posts": list, "as_of": places}
	case len(part) == 5 && part[4] == "likes":
		post, e := of(part[3])
		body = object{"post_id": part[3], "likes": e.counts.Likes, "dislikes": e.counts.Dislikes, "as_of": at(post)}
	case f.counts:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"type":"urn:kudos:problem:no-reactions"}`)
		return
	case part[4] == "likes":
		post, e := of(part[3])
		user, _ := of(part[5])
		body = object{"post_id": part[3], "user_id": part[5], "reaction": "NONE", "as_of": at(post)}
		if p := e.reactionOf(user); p.action != kudosv1.Action_UNLIKE {
			body["reaction"], body["region"], body["since"] = p.action.String(), p.region, time.UnixMilli(p.sinceMs).UTC()
		}
	default:
		post, e := of(part[3])
		body = pageOf(r, e, part[3])
		body["as_of"] = at(post)
	}
	if f.spoil != nil {
		f.spoil(r.URL.Path, body)
	}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		f.t.Error(err)
	}
}

func (f *fakeReader) stats(want map[uint64]*expected, asOf func(int32) any) object {
	var sum Count
	posts, events, partitions := 0, int64(0), []any{}
	for _, e := range want {
		sum.Likes, sum.Dislikes = sum.Likes+e.counts.Likes, sum.Dislikes+e.counts.Dislikes
		if e.counts != (Count{}) {
			posts++
		}
	}
	for p := range int32(fakePartitions) {
		partitions = append(partitions, object{"as_of": asOf(p), "ready": true})
		events += f.mu.fold.next[p]
	}
	return object{"posts": posts, "likes": sum.Likes, "dislikes": sum.Dislikes, "events": events, "events_behind": 0, "lag_ms": 5, "partitions": partitions}
}

// pageOf makes a page of likers; a token is the user before.
func pageOf(r *http.Request, e *expected, post string) object {
	size, _ := strconv.Atoi(r.URL.Query().Get("page_size"))
	after, _ := strconv.ParseUint(r.URL.Query().Get("page_token"), 10, 64)
	body, likers := object{"post_id": post}, []any{}
	for _, l := range e.likers {
		if l.user <= after {
			continue
		}
		if len(likers) == size {
			body["next_page_token"] = likers[size-1].(object)["user_id"]
			break
		}
		likers = append(likers, object{"user_id": fmt.Sprint(l.user), "since": time.UnixMilli(l.sinceMs).UTC(), "region": l.region})
	}
	body["likers"] = likers
	return body
}

// fakeLog has 20 users who like five posts, of whom some withdraw it and others dislike.
func fakeLog() []Event {
	var log []Event
	for _, post := range []uint64{1, 2, 3, 4, 8} {
		for user := uint64(2); user <= 40; user += 2 {
			log = append(log, Event{Post: post, User: user, Action: kudosv1.Action_LIKE, TimeMs: int64(1000*post + user), Region: "DE"})
		}
		for user := uint64(2); user <= 10; user += 2 {
			log = append(log, Event{Post: post, User: user, Action: kudosv1.Action_DISLIKE, TimeMs: 20_000, Region: "FR"})
		}
		log = append(log, Event{Post: post, User: 12, Action: kudosv1.Action_UNLIKE, TimeMs: 20_001, Region: "FR"})
	}
	return log
}

func (f *fold) append(e Event) (partition int32, offset int64) {
	partition = f.home(e.Post)
	offset = f.next[partition]
	f.add(e, offset)
	f.next[partition]++
	return partition, offset
}

func foldOf(log []Event) *fold {
	f := newFold(fakePartitions)
	for _, e := range log {
		f.append(e)
	}
	return f
}

func compareAtRest(t *testing.T, f *fakeReader, depth Depth) (*ReaderVerdict, error) {
	t.Helper()
	f.t = t
	f.mu.fold = foldOf(fakeLog())
	server := httptest.NewServer(f)
	defer server.Close()
	v := &ReaderVerdict{}
	c := newComparison(server.URL, f.mu.fold, v)
	defer c.asker.close()
	for p, next := range f.mu.fold.next {
		c.covered[p] = span{next, next + 1}
	}
	return v, c.run(t.Context(), depth)
}

func TestReaderAtRest(t *testing.T) {
	v, err := compareAtRest(t, &fakeReader{}, Everything)
	require.NoError(t, err)
	require.Zero(t, v.Differences.Total, v.Differences.String())
	require.Greater(t, v.Answers, 5*20)
	v, err = compareAtRest(t, &fakeReader{counts: true}, CountsOnly)
	require.NoError(t, err)
	require.Zero(t, v.Differences.Total, v.Differences.String())
	_, err = compareAtRest(t, &fakeReader{}, CountsOnly)
	require.ErrorContains(t, err, "is answered by a reader that keeps counts only")
}

func TestEachWrongAnswerIsSeen(t *testing.T) {
	first := func(body object, list string) object { return body[list].([]any)[0].(object) }
	for name, tt := range map[string]struct {
		path  string // that the answers have which are spoilt
		spoil func(object)
		want  string
		fails bool // Reader is an error
	}{
		"count":               {path: "/v1/posts/3/likes", spoil: func(b object) { b["likes"] = 15 }, want: "post 3: want {Likes:14 Dislikes:5}, have {Likes:15 Dislikes:5}"},
		"dislikes":            {path: "/v1/posts/3/likes", spoil: func(b object) { b["dislikes"] = 0 }, want: "post 3: want"},
		"nobody":              {path: fmt.Sprintf("/v1/posts/%d/likes", neverLiked), spoil: func(b object) { b["likes"] = 1 }, want: "want {Likes:0"},
		"another post":        {path: "/v1/posts/3/likes", spoil: func(b object) { b["post_id"] = "4" }, want: "answers of post 4"},
		"count of many":       {path: ":get", spoil: func(b object) { first(b, "posts")["likes"] = 1 }, want: "/v1/likes:get: post 1: want"},
		"order of many":       {path: ":get", spoil: func(b object) { slices.Reverse(b["posts"].([]any)) }, want: "post 1: answers of post 8"},
		"too few":             {path: ":get", spoil: func(b object) { b["posts"] = b["posts"].([]any)[1:] }, want: "asked for 5 posts, answered of 4", fails: true},
		"place left out":      {path: ":get", spoil: func(b object) { b["as_of"] = b["as_of"].([]any)[1:] }, want: "lacks partition 0"},
		"places not in order": {path: ":get", spoil: func(b object) { slices.Reverse(b["as_of"].([]any)) }, want: "not in order", fails: true},
		"behind":              {path: "/v1/posts/3/likes", spoil: func(b object) { b["as_of"].(object)["offset"] = 5 }, want: "/v1/posts/3/likes: post 3: as of"},
		"ahead":               {path: "/v1/posts/3/likers", spoil: func(b object) { b["as_of"].(object)["offset"] = 5000 }, want: "/v1/posts/3/likers?page_size=3: post 3: as of"},
		"place elsewhere":     {path: "/v1/posts/3/likes", spoil: func(b object) { b["as_of"].(object)["partition"] = 1 - home(3, fakePartitions) }, want: "post 3: as of"},
		"something unknown":   {path: "/v1/posts/3/likes", spoil: func(b object) { b["shares"] = 1 }, want: `unknown field "shares"`, fails: true},
		"liker left out":      {path: "/v1/posts/4/likers", spoil: func(b object) { b["likers"] = slices.Delete(b["likers"].([]any), 3, 4) }, want: "want {user:20 sinceMs:4020 region:DE}, have {user:22"},
		"first left out":      {path: "/v1/posts/4/likers", spoil: func(b object) { b["likers"] = b["likers"].([]any)[1:] }, want: "leaves out {user:14"},
		"last left out":       {path: "/v1/posts/4/likers", spoil: func(b object) { b["likers"] = b["likers"].([]any)[:13] }, want: "is the last page, and leaves out {user:40"},
		"liker twice":         {path: "/v1/posts/4/likers", spoil: func(b object) { b["likers"] = append([]any{first(b, "likers")}, b["likers"].([]any)...) }, want: "want {user:16"},
		"no liker":            {path: "/v1/posts/4/likers", spoil: func(b object) { first(b, "likers")["user_id"] = "13" }, want: "want {user:14"},
		"likers not in order": {path: "/v1/posts/4/likers", spoil: func(b object) { slices.Reverse(b["likers"].([]any)) }, want: "/v1/posts/4/likers?page_size=1000: post 4"},
		"since":               {path: "/v1/posts/4/likers", spoil: func(b object) { first(b, "likers")["since"] = time.UnixMilli(4015) }, want: "sinceMs:4015"},
		"region":              {path: "/v1/posts/4/likers", spoil: func(b object) { first(b, "likers")["region"] = "FR" }, want: "region:FR"},
		"page too long":       {path: "/v1/posts/3/likers", spoil: func(b object) { b["likers"] = slices.Repeat(b["likers"].([]any), 2) }, want: "has 6 likers"},
		"same page again":     {path: "/v1/posts/3/likers", spoil: func(b object) { b["next_page_token"] = "0" }, want: "user 14 comes after user 18"},
		"no end":              {path: "/v1/posts/3/likers", spoil: func(b object) { b["likers"], b["next_page_token"] = []any{}, "0" }, want: "the pages do not end; 0 likers are listed, 14 there are"},
		"ends too early":      {path: "/v1/posts/3/likers", spoil: func(b object) { delete(b, "next_page_token") }, want: "is the last page, and leaves out {user:20"},
		"pages skipped": {path: "/v1/posts/3/likers", spoil: func(b object) {
			if first(b, "likers")["user_id"] == "14" {
				b["next_page_token"] = "30"
			}
		}, want: "8 likers are listed, 14 there are"},
		"page from elsewhere":  {path: "/v1/posts/3/likers", spoil: func(b object) { b["next_page_token"] = "30" }, want: "user 32 comes after user 36"},
		"withdrawn like":       {path: "/v1/posts/2/likes/12", spoil: func(b object) { b["reaction"], b["since"], b["region"] = "LIKE", time.UnixMilli(1), "DE" }, want: "/v1/posts/2/likes/12: post 2: want"},
		"stranger":             {path: fmt.Sprintf("/v1/posts/%d/likes/1", neverLiked), spoil: func(b object) { b["reaction"], b["since"], b["region"] = "LIKE", time.UnixMilli(1), "DE" }, want: "want {user:1 action:2 "},
		"dislike for none":     {path: "/v1/posts/2/likes/2", spoil: func(b object) { b["reaction"] = "NONE"; delete(b, "since"); delete(b, "region") }, want: "want {user:2 action:3 "},
		"since of a like":      {path: "/v1/posts/2/likes/14", spoil: func(b object) { b["since"] = time.UnixMilli(2013) }, want: "sinceMs:2013"},
		"region of a like":     {path: "/v1/posts/2/likes/14", spoil: func(b object) { b["region"] = "FR" }, want: "region:FR"},
		"since left out":       {path: "/v1/posts/2/likes/14", spoil: func(b object) { delete(b, "since") }, want: "since and region go with a reaction"},
		"another user":         {path: "/v1/posts/2/likes/14", spoil: func(b object) { b["user_id"] = "16" }, want: "answers of user 16"},
		"reaction of no name":  {path: "/v1/posts/2/likes/14", spoil: func(b object) { b["reaction"] = "LOVE" }, want: `reaction "LOVE"`},
		"total":                {path: "/v1/stats", spoil: func(b object) { b["likes"] = 1 }, want: "/v1/stats: want {posts:5 likes:70 dislikes:25}, have {posts:5 likes:1 "},
		"events":               {path: "/v1/stats", spoil: func(b object) { b["events"] = 1 }, want: "events is 1"},
		"not ready":            {path: "/v1/stats", spoil: func(b object) { first(b, "partitions")["ready"] = false }, want: "ready false"},
		"partition left out":   {path: "/v1/stats", spoil: func(b object) { b["partitions"] = b["partitions"].([]any)[1:] }, want: "partitions are missing", fails: true},
		"partition out of row": {path: "/v1/stats", spoil: func(b object) { slices.Reverse(b["partitions"].([]any)) }, want: "/v1/stats: partition 0"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := compareAtRest(t, &fakeReader{spoil: func(path string, body object) {
				if strings.HasSuffix(path, tt.path) {
					tt.spoil(body)
				}
			}}, Everything)
			if tt.fails {
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			require.Contains(t, v.Differences.String(), tt.want)
			require.Equal(t, v.Differences.Total, v.Differences.Of("I7"))
		})
	}
}
