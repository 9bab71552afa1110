package oracle

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema/kudosv1"
)

func compared(answers []*answer, partitions int32, log []Event) *ReaderResult {
	v, posts := &ReaderResult{}, []uint64{}
	for _, a := range answers {
		posts = append(posts, a.post)
	}
	r, f := newReplay(posts, partitions), NewFold(partitions)
	r.begin(v, &Watched{answers: answers})
	for _, e := range log {
		p := f.PartitionOf(e.Post)
		r.reach(p, f.next[p])
		r.add(p, f.next[p], e)
		f.append(e)
	}
	r.end(f.next)
	return v
}

// watchedWhile watches a fake reader that folds one event of the log before each response, and checks what it said.
func watchedWhile(t *testing.T, spoil func(path string, body object)) *ReaderResult {
	t.Helper()
	log := fakeLog()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := &fakeReader{t: t, spoil: spoil}
	f.mu.fold = NewFold(fakePartitions)
	more, rounds := log, 0
	f.before = func() {
		if len(more) > 0 {
			f.mu.fold.append(more[0])
			f.mu.want, more = nil, more[1:]
		} else if rounds++; rounds == 60 { // and then as many requests at rest
			cancel()
		}
	}
	w, err := Watch(ctx, f.serve(), []uint64{1, 2, 3, 8, 99}, []uint64{2, 12, 14, 15}, fakePartitions, watchEvery)
	require.NoError(t, err)
	require.Empty(t, more)
	require.Zero(t, w.Unavailable)
	return compared(w.answers, fakePartitions, log)
}

func TestReaderDuringChanges(t *testing.T) {
	v := watchedWhile(t, nil)
	require.Zero(t, v.Differences.Total, v.Differences.String())
	require.Greater(t, v.Places, 50)

	once := func(at int, suffix string, do func(object)) func(string, object) {
		answers := 0
		return func(path string, body object) {
			if strings.HasSuffix(path, suffix) {
				if answers++; answers == at {
					do(body)
				}
			}
		}
	}
	move := func(by int64) func(object) {
		return func(b object) {
			at := b["as_of"].(object)
			at["offset"] = at["offset"].(int64) + by
		}
	}
	const count, page = "/v1/posts/1/likes", "/v1/posts/1/likers"
	for name, tt := range map[string]struct {
		spoil func(string, object)
		want  string
	}{
		"count":              {once(2, count, func(b object) { b["likes"] = 0 }), "I8 /v1/posts/1/likes: post 1 as of"},
		"older than as_of":   {once(1, count, move(+1)), "I8 /v1/posts/1/likes: post 1 as of"},
		"newer than as_of":   {once(1, count, move(-1)), "I8 /v1/posts/1/likes: post 1 as of"},
		"as_of decreases":    {once(5, count, move(-10)), "is before the previous one"},
		"as_of past the end": {once(7, count, move(+1000)), "but likes ends at"},
		"wrong partition": {once(1, count, func(b object) {
			b["as_of"].(object)["partition"] = 1 - owner(1, fakePartitions)
		}), "the post is in partition"},
		"count in a batch": {once(1, ":get", func(b object) {
			b["posts"].([]any)[0].(object)["likes"] = 99
		}), "I8 /v1/likes:get: post 1 as of"},
		"page": {once(2, page, func(b object) {
			b["likers"].([]any)[0].(object)["region"] = "FR"
		}), "region:FR"},
		"reaction": {once(6, "/likes/14", func(b object) { b["region"] = "FR" }), "region:FR"},
	} {
		t.Run(name, func(t *testing.T) { require.Contains(t, watchedWhile(t, tt.spoil).Differences.String(), tt.want) })
	}
}

// Nothing is older than what all readers had read at an earlier check.
func TestReplayOverSeveralChecks(t *testing.T) {
	r, f := newReplay([]uint64{1}, 1), NewFold(1)
	check := func(likes int64, offset int64) string {
		v := &ReaderResult{}
		a := &answer{post: 1, asOf: position{Offset: offset}, counts: &Count{Likes: likes}}
		r.begin(v, &Watched{answers: []*answer{a}})
		for range 2 {
			e := Event{Post: 1, User: uint64(f.next[0] + 1), Action: kudosv1.Action_LIKE, TimeMs: 1}
			r.reach(0, f.next[0])
			r.add(0, f.next[0], e)
			f.append(e)
		}
		r.end(f.next)
		maps.Copy(r.read, f.next)
		require.Equal(t, map[string]int{"counts": 1}, v.Kinds)
		return v.Differences.String()
	}
	const right = "no differences"
	require.Equal(t, right, check(1, 1))
	require.Equal(t, right, check(2, 2))
	require.Equal(t, right, check(5, 5))
	require.Contains(t, check(5, 5), "as_of 0@5, but the readers had read up to 6")
	require.Contains(t, check(8, 9), "want {Likes:9 Dislikes:0}, have {Likes:8 Dislikes:0}")
}

// A stream that breaks off resumes elsewhere, after the last event, and does not go back.
func TestFollow(t *testing.T) {
	const newer, older = `{"post_id":"1","likes":2,"dislikes":0,"as_of":{"partition":0,"offset":2}}`,
		`{"post_id":"1","likes":1,"dislikes":0,"as_of":{"partition":0,"offset":1}}`
	event := func(id, data string) string { return "id: " + id + "\nevent: likes\ndata: " + data + "\n\n" }
	serve := func(answer func(lastID string) (int, string)) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, body := answer(r.Header.Get("Last-Event-ID"))
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	asked := make(chan string, 100)
	followed := func(first, second string) (*Watched, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		one := serve(func(string) (int, string) { return http.StatusOK, "retry: 5\n\n" + event("a", first) + ":\n\n" })
		down := serve(func(string) (int, string) {
			return http.StatusServiceUnavailable, `{"type":"urn:kudos:problem:not-ready"}`
		})
		two := serve(func(lastID string) (int, string) { asked <- lastID; return http.StatusOK, event("b", second) })
		n := 0
		return Follow(ctx, []string{one, down, two}, []uint64{1}, func(map[uint64]Count) bool { n++; return n == 2 })
	}
	log := []Event{{Post: 1, User: 1, Action: kudosv1.Action_LIKE, TimeMs: 1},
		{Post: 1, User: 2, Action: kudosv1.Action_LIKE, TimeMs: 2}}
	found := func(w *Watched) string { return compared(w.answers, 1, log).Differences.String() }
	w, err := followed(older, newer)
	require.NoError(t, err)
	require.Equal(t, "a", <-asked)
	require.Equal(t, []int{2, 1}, []int{w.Streams, w.Unavailable})
	require.Equal(t, "no differences", found(w))
	w, err = followed(newer, older)
	require.NoError(t, err)
	require.Contains(t, found(w), "post 1: as_of 0@1 is before the previous one, 0@2")
	w, err = followed(older, strings.Replace(newer, `"likes":2`, `"likes":3`, 1))
	require.NoError(t, err)
	require.Contains(t, found(w), "want {Likes:2 Dislikes:0}, have {Likes:3 Dislikes:0}")
	_, err = followed(older, `{"likes":"two"}`)
	require.ErrorContains(t, err, "is not a likes event")
}

// A user who likes a post continuously is listed exactly once, although the pages are from different times.
func TestPagesDuringChanges(t *testing.T) {
	const like, unlike = kudosv1.Action_LIKE, kudosv1.Action_UNLIKE
	log := []Event{
		{Post: 1, User: 1, Action: like, TimeMs: 1}, {Post: 1, User: 2, Action: like, TimeMs: 2},
		{Post: 1, User: 3, Action: like, TimeMs: 3}, {Post: 1, User: 5, Action: like, TimeMs: 5},
		{Post: 1, User: 2, Action: unlike, TimeMs: 9}, {Post: 1, User: 4, Action: like, TimeMs: 10},
		{Post: 1, User: 3, Action: unlike, TimeMs: 11}, {Post: 1, User: 3, Action: like, TimeMs: 12},
	}
	found := func(pages ...*answer) string {
		l := &listing{listed: map[uint64]bool{}}
		for i, p := range pages {
			p.post, p.asOf.Partition, p.listing = 1, owner(1, fakePartitions), l
			p.page.first, p.page.last = i == 0, i == len(pages)-1
			for _, liker := range p.page.likers {
				l.listed[liker.user] = true
			}
		}
		return compared(pages, fakePartitions, log).Differences.String()
	}
	at := func(offset int64, after uint64, likers ...liker) *answer {
		return &answer{asOf: position{Offset: offset}, page: &page{likers: likers, after: after}}
	}
	one, two, three, four, five := liker{1, 1, ""}, liker{2, 2, ""}, liker{3, 3, ""}, liker{4, 10, ""}, liker{5, 5, ""}
	const right = "no differences"
	require.Equal(t, right, found(at(4, 0, one, two), at(4, 2, three, five)))
	require.Equal(t, right, found(at(4, 0, one, two), at(6, 2, three, four, five)))
	require.Equal(t, right, found(at(4, 0, one, two), at(8, 2, four, five)), "user 3 withdrew the like in between")
	require.Contains(t, found(at(4, 0, one, two), at(6, 2, four, five)),
		"user 3 liked post 1 from the first page to the last")
	require.Contains(t, found(at(4, 0, one), at(5, 1, two, three, five)), "want {user:3")
	require.Contains(t, found(at(4, 0, one, two), at(6, 2, three, four)), "is the last page, but leaves out {user:5")
	require.Contains(t, found(at(4, 0, one, two), at(6, 2, two, three)), "user 2 comes after user 2")
}
