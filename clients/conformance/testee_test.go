package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kudos/schema"
)

// runAsTestee makes the test binary run as a testee. Its value is what that does wrong.
const runAsTestee = "KUDOS_TEST_TESTEE"

func TestMain(m *testing.M) {
	if wrong := os.Getenv(runAsTestee); wrong != "" {
		os.Exit(client(wrong).serve())
	}
	os.Exit(m.Run())
}

// client is a small client and its testee. Its value is what it does wrong.
type client string

func (c client) serve() (code int) {
	in := json.NewDecoder(os.Stdin)
	for {
		var q request
		if err := in.Decode(&q); err == io.EOF {
			if c == "exits with 1" {
				return 1
			}
			return 0
		} else if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		answer := c.do(&q)
		answer["id"] = q.ID
		switch c {
		case "never answers":
			time.Sleep(time.Hour)
		case "ends":
			return 7
		case "leaves":
			return 0
		case "wrong id":
			answer["id"] = q.ID + 1
		case "long line":
			answer["more"] = strings.Repeat("x", maxAnswerBytes)
		case "no JSON":
			fmt.Println("hello")
			continue
		}
		line, _ := json.Marshal(answer)
		fmt.Printf("%s\n", line)
	}
}

type request struct {
	ID          int      `json:"id"`
	Op          string   `json:"op"`
	BaseURL     string   `json:"base_url"`
	PostID      string   `json:"post_id"`
	UserID      string   `json:"user_id"`
	Action      string   `json:"action"`
	TimeMs      string   `json:"time_ms"`
	Region      string   `json:"region"`
	Partitions  int32    `json:"partitions"`
	UserBuckets []string `json:"user_buckets"`
	Partition   int32    `json:"partition"`
	Databases   int32    `json:"databases"`
	MinOffset   *struct {
		Partition int    `json:"partition"`
		Offset    string `json:"offset"`
	} `json:"min_offset"`
	Events int `json:"events"`
}

func (c client) do(q *request) map[string]any {
	if c == "has no "+client(q.Op) {
		return map[string]any{"unsupported": true}
	}
	if c == "fails" {
		return map[string]any{"error": "out of order"}
	}
	if f, err := strconv.ParseFloat(q.PostID, 64); c == "ids are doubles" && err == nil {
		q.PostID = strconv.FormatFloat(f, 'f', -1, 64)
	}
	post, _ := strconv.ParseUint(q.PostID, 10, 64)
	user, _ := strconv.ParseUint(q.UserID, 10, 64)
	if c == "ids are signed" {
		post = min(post, 1<<63-1)
	}
	switch q.Op {
	case "event":
		return c.event(q, post, user)
	case "partition":
		buckets, _ := schema.ParseUserBuckets(q.UserBuckets)
		layout, _ := schema.NewLayout(q.Partitions, buckets)
		if c == "no user buckets" {
			layout, _ = schema.NewLayout(q.Partitions, "")
		}
		key, partition := layout.AppendKey(nil, post, user), layout.PartitionOf(post, user)
		if c == "wrong hash" {
			h := fnv.New32a()
			h.Write(key)
			partition = int32(h.Sum32()&0x7fffffff) % q.Partitions
		}
		return map[string]any{"key": string(key), "partition": partition}
	case "database":
		return map[string]any{"database": q.Partition % q.Databases}
	case "react":
		return c.react(q)
	case "count":
		return c.count(q)
	case "stream":
		return map[string]any{"likes": c.stream(q)}
	}
	return map[string]any{"unsupported": true}
}

func (c client) event(q *request, post, user uint64) map[string]any {
	timeMs, _ := strconv.ParseInt(q.TimeMs, 10, 64)
	event := schema.Event{PostID: post, UserID: user, TimeMs: timeMs}
	for _, a := range []schema.Action{schema.Like, schema.Unlike, schema.Dislike} {
		if a.String() == q.Action {
			event.Action = a
		}
	}
	event.Region, _ = schema.ParseRegion(q.Region)
	value := schema.AppendEvent(nil, &event)
	switch c {
	case "events are JSON":
		value = fmt.Appendf(nil, `{"post_id":"%s","user_id":"%s","action":"%s","time_ms":"%s","region":"%s"}`,
			q.PostID, q.UserID, q.Action, cmp.Or(q.TimeMs, "0"), q.Region)
	case "ids are JSON numbers":
		value, _ = json.Marshal(map[string]any{"post_id": float64(post), "user_id": float64(user), "action": q.Action})
	}
	key := strconv.FormatUint(post, 10)
	if c == "quoted keys" {
		key = strconv.Quote(key)
	}
	return map[string]any{"key": key, "value": hex.EncodeToString(value)}
}

func (c client) react(q *request) map[string]any {
	kind, method := "likes", http.MethodPut
	switch q.Action {
	case "DISLIKE":
		kind = "dislikes"
	case "UNLIKE":
		method = http.MethodDelete
	}
	began := strconv.FormatInt(time.Now().UnixMilli(), 10)
	body, problem := c.send(method, func() string {
		timeMs := cmp.Or(q.TimeMs, began)
		if c == "a new time for a retry" {
			timeMs = cmp.Or(q.TimeMs, strconv.FormatInt(time.Now().UnixMilli(), 10))
		}
		query := url.Values{"time_ms": {timeMs}, "region": {q.Region}}
		return q.BaseURL + "/v1/posts/" + q.PostID + "/" + kind + "/" + q.UserID + "?" + query.Encode()
	})
	if problem != "" {
		return map[string]any{"problem": problem}
	}
	var position struct{ Partition, Offset int64 }
	_ = json.Unmarshal(body, &position)
	if c == "offsets are JSON numbers" {
		return map[string]any{"partition": position.Partition, "offset": position.Offset}
	}
	return map[string]any{"partition": position.Partition, "offset": strconv.FormatInt(position.Offset, 10)}
}

func (c client) count(q *request) map[string]any {
	at := q.BaseURL + "/v1/posts/" + q.PostID + "/likes"
	switch {
	case q.MinOffset != nil && c == "min_offset without the partition":
		at += "?min_offset=" + q.MinOffset.Offset
	case q.MinOffset != nil:
		at += fmt.Sprintf("?min_offset=%d:%s", q.MinOffset.Partition, q.MinOffset.Offset)
	}
	body, problem := c.send(http.MethodGet, func() string { return at })
	if problem != "" {
		return map[string]any{"problem": problem}
	}
	var counts struct{ Likes, Dislikes int64 }
	_ = json.Unmarshal(body, &counts)
	return map[string]any{"likes": fmt.Sprint(counts.Likes), "dislikes": fmt.Sprint(counts.Dislikes)}
}

// send sends a request until there is a response that is not to be retried.
func (c client) send(method string, at func() string) (body []byte, problem string) {
	for {
		r, _ := http.NewRequest(method, at(), nil)
		resp, err := http.DefaultClient.Do(r)
		if err != nil && c == "never retries" {
			return nil, "unreachable"
		} else if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode < 300 {
			return body, ""
		}
		var p struct{ Type string }
		_ = json.Unmarshal(body, &p)
		retry := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}
		if c == "retries a 400" {
			retry = append(retry, http.StatusBadRequest)
		}
		if !slices.Contains(retry, resp.StatusCode) || c == "never retries" {
			return nil, strings.TrimPrefix(p.Type, "urn:kudos:problem:")
		}
		c.wait(resp)
	}
}

func (c client) wait(resp *http.Response) {
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	if c != "ignores Retry-After" {
		time.Sleep(time.Duration(seconds) * time.Second)
	}
}

func (c client) stream(q *request) (likes []string) {
	last, dispatched := "", ""
	for len(likes) < q.Events {
		r, _ := http.NewRequest(http.MethodGet, q.BaseURL+"/v1/stream?post_ids="+q.PostID, nil)
		if dispatched != "" && c != "no Last-Event-ID" {
			r.Header.Set("Last-Event-ID", dispatched)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		c.wait(resp)
		in := bufio.NewReader(resp.Body)
		event, data := "", ""
		for len(likes) < q.Events {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			line = strings.TrimSuffix(line, "\n")
			if c != "no CR LF" {
				line = strings.TrimSuffix(line, "\r")
			}
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case name == "id":
				last = value
				if c == "takes the id of half an event" {
					dispatched = last
				}
			case name == "event":
				event = value
			case name == "data" && c != "only one line of data":
				data += value + "\n"
			case name == "data":
				data = value
			case line == "":
				if dispatched = last; event == "likes" || c == "any event" && data != "" {
					likes = append(likes, likesOf(data))
				}
				event, data = "", ""
			}
		}
		resp.Body.Close()
	}
	return likes
}

func likesOf(data string) string {
	var counts struct{ Likes json.Number }
	_ = json.NewDecoder(bytes.NewBufferString(data)).Decode(&counts)
	return counts.Likes.String()
}
