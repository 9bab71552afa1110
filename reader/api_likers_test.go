package reader

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/schema"
)

func asOfJSON(f *fakeLikes, post uint64) string {
	p := f.partition(post)
	return fmt.Sprintf(`{"partition":%d,"offset":%d}`, p, f.mu.asOf[p])
}

func TestReaction(t *testing.T) {
	r := newRig(t, nil, nil)
	asOf := asOfJSON(r.likes, 1)
	a := r.get("/v1/posts/1/likes/7").requireJSON(http.StatusOK,
		`{"post_id":"1","user_id":"7","reaction":"LIKE","since":"2025-11-21T10:00:00.123Z","region":"DE","as_of":`+asOf+`}`)
	require.Equal(t, "private, no-cache", a.header.Get("Cache-Control"))
	r.get("/v1/posts/1/likes/8").requireJSON(http.StatusOK,
		`{"post_id":"1","user_id":"8","reaction":"DISLIKE","since":"2025-11-21T10:00:00.000Z","region":"ZZ","as_of":`+asOf+`}`)
	r.get("/v1/posts/1/likes/9").requireJSON(http.StatusOK, `{"post_id":"1","user_id":"9","reaction":"NONE","as_of":`+asOf+`}`)

	r.get("/v1/posts/1/likes/me").requireInvalid("user_id", "undecodable", `"me" is not a whole number in range`)
	r.get("/v1/posts/0/likes/1").requireInvalid("post_id", "zero_id", "is 0")
	r.get("/v1/posts/1/likes/7?min_offset=x").requireInvalid("min_offset", "undecodable", `"x" is not a whole number in range`)
}

func TestLikers(t *testing.T) {
	r := newRig(t, nil, nil)
	var want []string
	for user := uint64(1); user <= 5; user++ {
		r.likes.mu.likers = append(r.likes.mu.likers, view.Liker{UserID: 1<<64 - 6 + user, SinceMs: 1763719200000 + int64(user), Region: schema.Region{'U', 'S', '-', 'C', 'A'}})
		want = append(want, fmt.Sprintf(`{"user_id":"%d","since":"2025-11-21T10:00:00.00%dZ","region":"US-CA"}`, 1<<64-6+user, user))
	}
	a := r.get("/v1/posts/1/likers")
	a.requireJSON(http.StatusOK, `{"post_id":"1","likers":[`+want[0]+`,`+want[1]+`,`+want[2]+`,`+want[3]+`,`+want[4]+`],"as_of":`+asOfJSON(r.likes, 1)+`}`)
	require.Equal(t, "private, no-cache", a.header.Get("Cache-Control"))
	r.get("/v1/posts/3/likers").requireJSON(http.StatusOK, `{"post_id":"3","likers":[],"as_of":`+asOfJSON(r.likes, 3)+`}`)

	var users []uint64
	target, pages := "/v1/posts/1/likers?page_size=2", 0
	for {
		var page struct {
			Likers []struct {
				UserID uint64 `json:"user_id,string"`
			}
			NextPageToken string `json:"next_page_token"`
		}
		r.get(target).decode(&page)
		for _, l := range page.Likers {
			users = append(users, l.UserID)
		}
		if pages++; page.NextPageToken == "" {
			break
		}
		require.LessOrEqual(t, len(page.NextPageToken), 100)
		target = "/v1/posts/1/likers?page_size=2&page_token=" + page.NextPageToken
	}
	require.Equal(t, 3, pages)
	require.Equal(t, []uint64{1<<64 - 5, 1<<64 - 4, 1<<64 - 3, 1<<64 - 2, 1<<64 - 1}, users)
}

func TestInvalidPages(t *testing.T) {
	r := newRig(t, nil, nil)
	for size, want := range map[string]string{
		"0": "is 0; it must be between 1 and 1000", "1001": "is 1001; it must be between 1 and 1000",
	} {
		r.get("/v1/posts/1/likers?page_size="+size).requireInvalid("page_size", "out_of_range", want)
	}
	for _, size := range []string{"x", "-1", "%2B1", "1.5", "99999999999"} {
		a := r.get("/v1/posts/1/likers?page_size=" + size)
		a.requireInvalid("page_size", "undecodable", fmt.Sprintf("%q is not a whole number in range", strings.Replace(size, "%2B", "+", 1)))
	}

	const none = "is not the next_page_token of a page; begin again without it"
	token := newPageToken(1, 7)
	require.Equal(t, http.StatusOK, r.get("/v1/posts/1/likers?page_token="+token).status)
	r.get("/v1/posts/2/likers?page_token="+token).requireInvalid("page_token", "undecodable", "is of another post's page; begin again without it")
	for _, bad := range []string{"x", "AQ", token + "A", token[1:], token[:len(token)-1], token + "=", "!" + token[1:]} {
		r.get("/v1/posts/1/likers?page_token="+bad).requireInvalid("page_token", "undecodable", none)
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	for i := range raw {
		forged := append([]byte(nil), raw...)
		forged[i] ^= 0x10
		detail := none
		if i == 0 {
			detail = "is not of a form that this reader knows, which may be another version; begin again without it"
		}
		r.get("/v1/posts/1/likers?page_token="+base64.RawURLEncoding.EncodeToString(forged)).requireInvalid("page_token", "undecodable", detail)
	}
	r.get("/v1/posts/0/likers?page_token=x").requireInvalid("post_id", "zero_id", "is 0")
}

func TestWithoutReactions(t *testing.T) {
	r := newRig(t, nil, nil)
	r.likes.mu.noReactions = true
	for _, target := range []string{"/v1/posts/1/likers", "/v1/posts/1/likes/7"} {
		require.Equal(t, "who likes what is not kept here (reader.reactions is false)",
			r.get(target).requireProblem(http.StatusNotFound, "no-reactions"))
	}
	require.Equal(t, http.StatusOK, r.get("/v1/posts/1/likes").status)
}
