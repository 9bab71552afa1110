package producer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// likes are all different: each user likes one post.
type likes struct {
	posts uint64
	next  uint64 // user
}

func newLikes(firstUser, posts uint64) *likes { return &likes{posts: posts, next: firstUser} }

// reserve returns the first of n users that nobody else gets. One load at a time.
func (l *likes) reserve(n int) (first uint64) {
	first = l.next
	l.next += uint64(n)
	return first
}

// post is the one that a user likes: users in a row like posts far from each other.
func (l *likes) post(user uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // 2^64 / φ, odd
	return 1 + user*golden>>32%l.posts
}

// request writes the bytes of requests.
type request struct {
	likes *likes
	addr  string
	lines int // of a batch; 0: single likes
	body  []byte
}

// append appends the request whose first like is of the user.
func (r *request) append(b []byte, user uint64) []byte {
	if r.lines == 0 {
		b = append(b, "PUT /v1/posts/"...)
		b = strconv.AppendUint(b, r.likes.post(user), 10)
		b = append(b, "/likes/"...)
		b = strconv.AppendUint(b, user, 10)
		b = append(b, " HTTP/1.1\r\nHost: "...)
		b = append(b, r.addr...)
		return append(b, "\r\nContent-Length: 0\r\n\r\n"...)
	}
	r.body = r.body[:0]
	for i := range uint64(r.lines) {
		r.body = append(r.body, `{"post_id":`...)
		r.body = strconv.AppendUint(r.body, r.likes.post(user+i), 10)
		r.body = append(r.body, `,"user_id":"`...)
		r.body = strconv.AppendUint(r.body, user+i, 10)
		r.body = append(r.body, `","action":"LIKE"}`+"\n"...)
	}
	// A writer of many has use for the lines that went wrong only.
	b = append(b, "POST /v1/likes:batch?lines=errors HTTP/1.1\r\nHost: "...)
	b = append(b, r.addr...)
	b = append(b, "\r\nContent-Type: application/x-ndjson\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(r.body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, r.body...)
}

// maxAnswerBytes bounds what is read of an answer: problems of a whole batch fit.
const maxAnswerBytes = 4 << 20

// answer is what a request came to.
type answer struct {
	accepted int64 // likes
	refused  bool  // 429
	failure  string
	closed   bool // the connection serves no further request
}

// read reads the answer to a request of this many likes.
func (r *request) read(in *bufio.Reader) (answer, error) {
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return answer{}, fmt.Errorf("reading an answer: %w", err)
	}
	defer response.Body.Close()
	accepted := response.StatusCode == http.StatusAccepted
	if accepted && r.lines == 0 { // 202 is all there is to know
		if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswerBytes)); err != nil {
			return answer{}, fmt.Errorf("reading an answer: %w", err)
		}
		return answer{accepted: 1, closed: response.Close}, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return answer{}, fmt.Errorf("reading an answer: %w", err)
	}
	// The members of a batch's answer and of a problem.
	var told struct {
		Accepted         int64
		Rejected, Failed int
		Detail           string
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return answer{}, fmt.Errorf("an answer with status %d is not the producer's: %w", response.StatusCode, err)
	}
	a := answer{accepted: told.Accepted, refused: response.StatusCode == http.StatusTooManyRequests, closed: response.Close}
	switch {
	case !accepted:
		a.failure = fmt.Sprintf("%s: %.200s", response.Status, told.Detail)
	case told.Accepted != int64(r.lines):
		a.failure = fmt.Sprintf("%d of %d lines were accepted, %d rejected, %d failed", told.Accepted, r.lines, told.Rejected, told.Failed)
	}
	return a, nil
}
