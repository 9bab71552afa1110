package oracle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"kudos/schema/kudosv1"
)

const (
	askTimeout = 30 * time.Second
	askBytes   = 16 << 20
	askBatch   = 1000 // posts in one request
)

// asker queries a reader over HTTP, as any client would, and rejects fields that are not part of the API.
type asker struct {
	base   string
	client http.Client
}

func newAsker(base string) *asker {
	return &asker{base: base, client: http.Client{Timeout: askTimeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

func (a *asker) close() { a.client.CloseIdleConnections() }

var errCut = errors.New("the response was cut short")

type refusal struct {
	status       int
	kind, detail string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.kind, r.detail) }

func refused(err error, status int, kind string) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == status && r.kind == "urn:kudos:problem:"+kind
}

func (a *asker) ask(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, askBytes))
	if err != nil {
		return fmt.Errorf("%s %s: %w: %w", method, path, errCut, err)
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Type, Detail string }
		_ = json.Unmarshal(text, &problem)
		return fmt.Errorf("%s %s: %w", method, path, &refusal{resp.StatusCode, problem.Type, problem.Detail})
	}
	if err := strictly(text, into); err != nil {
		return fmt.Errorf("%s %s: invalid response %.200q: %w", method, path, text, err)
	}
	return nil
}

func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// position is a position in likes, as the API encodes it. An as_of includes exactly the records below the offset.
type position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

func (p position) String() string { return fmt.Sprintf("%d@%d", p.Partition, p.Offset) }

type countsBody struct {
	Post     uint64 `json:"post_id,string"`
	Likes    int64  `json:"likes"`
	Dislikes int64  `json:"dislikes"`
}

func (b countsBody) count() *Count { return &Count{b.Likes, b.Dislikes} }

type countsAsOf struct {
	countsBody
	AsOf position `json:"as_of"`
}

func (a *asker) counts(ctx context.Context, post uint64) (*answer, error) {
	var body countsAsOf
	path := fmt.Sprintf("/v1/posts/%d/likes", post)
	if err := a.ask(ctx, http.MethodGet, path, nil, &body); err != nil {
		return nil, err
	}
	ans := &answer{path: path, post: post, asOf: body.AsOf, counts: body.count()}
	ans.about(body.Post)
	return ans, nil
}

func (a *asker) manyCounts(ctx context.Context, posts []uint64, partitions int32) ([]*answer, error) {
	request, err := json.Marshal(map[string]any{"post_ids": idsOf(posts)})
	if err != nil {
		return nil, err
	}
	var body struct {
		Posts []countsBody `json:"posts"`
		AsOf  []position   `json:"as_of"`
	}
	const path = "/v1/likes:get"
	if err := a.ask(ctx, http.MethodPost, path, request, &body); err != nil {
		return nil, err
	}
	if len(body.Posts) != len(posts) {
		return nil, fmt.Errorf("%s: requested %d posts, got %d", path, len(posts), len(body.Posts))
	}
	asOf := map[int32]position{}
	for i, p := range body.AsOf {
		if i > 0 && p.Partition <= body.AsOf[i-1].Partition {
			return nil, fmt.Errorf("%s: as_of must list each partition once, in order: %v", path, body.AsOf)
		}
		asOf[p.Partition] = p
	}
	answers, named := make([]*answer, len(posts)), map[int32]bool{}
	for i, b := range body.Posts {
		partition := owner(posts[i], partitions)
		at, ok := asOf[partition]
		answers[i] = &answer{path: path, post: posts[i], asOf: at, counts: b.count()}
		answers[i].about(b.Post)
		if !ok {
			answers[i].broken = fmt.Sprintf("as_of %v lacks partition %d", body.AsOf, partition)
			continue
		}
		named[partition] = true
	}
	if len(named) != len(asOf) {
		return nil, fmt.Errorf("%s: as_of has partitions without any of the posts: %v", path, body.AsOf)
	}
	return answers, nil
}

func idsOf(posts []uint64) []string {
	ids := make([]string, len(posts))
	for i, post := range posts {
		ids[i] = strconv.FormatUint(post, 10)
	}
	return ids
}

var reactionNames = map[string]kudosv1.Action{"LIKE": kudosv1.Action_LIKE, "DISLIKE": kudosv1.Action_DISLIKE,
	"NONE": kudosv1.Action_UNLIKE}

func (a *asker) reaction(ctx context.Context, post, user uint64) (*answer, error) {
	var body struct {
		Post     uint64     `json:"post_id,string"`
		User     uint64     `json:"user_id,string"`
		Reaction string     `json:"reaction"`
		Since    *time.Time `json:"since"`
		Region   *string    `json:"region"`
		AsOf     position   `json:"as_of"`
	}
	path := fmt.Sprintf("/v1/posts/%d/likes/%d", post, user)
	if err := a.ask(ctx, http.MethodGet, path, nil, &body); err != nil {
		return nil, err
	}
	ans := &answer{path: path, post: post, asOf: body.AsOf}
	action, known := reactionNames[body.Reaction]
	stands := action != kudosv1.Action_UNLIKE
	switch {
	case !known:
		ans.broken = fmt.Sprintf("reaction %q", body.Reaction)
	case body.User != user:
		ans.broken = fmt.Sprintf("is for user %d", body.User)
	case stands != (body.Since != nil), stands != (body.Region != nil):
		ans.broken = "a reaction must have since and region, NONE must have neither"
	}
	ans.reaction = &reaction{user: user, action: action}
	if body.Since != nil && body.Region != nil {
		ans.reaction.sinceMs, ans.reaction.region = body.Since.UnixMilli(), *body.Region
	}
	ans.about(body.Post)
	return ans, nil
}

func (a *asker) likers(
	ctx context.Context, post uint64, size int, token string, after uint64,
) (ans *answer, next string, err error) {
	var body struct {
		Post   uint64 `json:"post_id,string"`
		Likers []struct {
			User   uint64    `json:"user_id,string"`
			Since  time.Time `json:"since"`
			Region string    `json:"region"`
		} `json:"likers"`
		Next string   `json:"next_page_token"`
		AsOf position `json:"as_of"`
	}
	path := fmt.Sprintf("/v1/posts/%d/likers?page_size=%d", post, size)
	if token != "" {
		path += "&page_token=" + url.QueryEscape(token)
	}
	if err := a.ask(ctx, http.MethodGet, path, nil, &body); err != nil {
		return nil, "", err
	}
	p := &page{first: token == "", last: body.Next == "", after: after}
	for _, l := range body.Likers {
		p.likers = append(p.likers, liker{l.User, l.Since.UnixMilli(), l.Region})
	}
	ans = &answer{path: path, post: post, asOf: body.AsOf, page: p}
	if len(p.likers) > size {
		ans.broken = fmt.Sprintf("has %d likers", len(p.likers))
	}
	ans.about(body.Post)
	return ans, body.Next, nil
}

type stats struct {
	Posts      int64 `json:"posts"`
	Likes      int64 `json:"likes"`
	Dislikes   int64 `json:"dislikes"`
	Events     int64 `json:"events"`
	Behind     int64 `json:"events_behind"`
	LagMs      int64 `json:"lag_ms"`
	Partitions []struct {
		AsOf  position `json:"as_of"`
		Ready bool     `json:"ready"`
	} `json:"partitions"`
}

func (a *asker) stats(ctx context.Context) (*stats, error) {
	s := &stats{}
	return s, a.ask(ctx, http.MethodGet, "/v1/stats", nil, s)
}
