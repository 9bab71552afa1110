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
	// Reaction is that of the viewer, if the request names one.
	Reaction *string `json:"reaction"`
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

// manyCounts asks for the counts of posts and, unless viewer is 0, for that user's reactions to them.
func (a *asker) manyCounts(ctx context.Context, posts []uint64, viewer uint64, partitions int32) ([]*answer, error) {
	asked := map[string]any{"post_ids": idsOf(posts)}
	if viewer != 0 {
		asked["viewer"] = strconv.FormatUint(viewer, 10)
	}
	var body struct {
		Posts         []countsBody `json:"posts"`
		AsOf          []position   `json:"as_of"`
		ReactionsAsOf []position   `json:"reactions_as_of"`
	}
	const path = "/v1/likes:get"
	if err := a.post(ctx, path, asked, &body); err != nil {
		return nil, err
	}
	if len(body.Posts) != len(posts) {
		return nil, fmt.Errorf("%s: requested %d posts, got %d", path, len(posts), len(body.Posts))
	}
	var counts, reactions []*answer
	for i, b := range body.Posts {
		counts = append(counts, &answer{path: path, post: posts[i], counts: b.count()})
		counts[i].about(b.Post)
		switch {
		case viewer != 0 && b.Reaction != nil:
			r := &answer{path: path + " (viewer)", post: posts[i],
				reaction: &reaction{user: viewer, action: reactionNames[*b.Reaction], nameOnly: true}}
			reactions = append(reactions, r)
		case viewer != 0 || b.Reaction != nil:
			counts[i].broken = "has a reaction without a viewer, or the other way round"
		}
	}
	if err := locate(counts, body.AsOf, partitions); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := locate(reactions, body.ReactionsAsOf, partitions); err != nil {
		return nil, fmt.Errorf("%s: reactions: %w", path, err)
	}
	return append(counts, reactions...), nil
}

// manyReactions asks for a user's reactions to posts.
func (a *asker) manyReactions(ctx context.Context, posts []uint64, user uint64, partitions int32) ([]*answer, error) {
	var body struct {
		User      uint64         `json:"user_id,string"`
		Reactions []reactionBody `json:"reactions"`
		AsOf      []position     `json:"as_of"`
	}
	const path = "/v1/reactions:get"
	asked := map[string]any{"user_id": strconv.FormatUint(user, 10), "post_ids": idsOf(posts)}
	if err := a.post(ctx, path, asked, &body); err != nil {
		return nil, err
	}
	if len(body.Reactions) != len(posts) || body.User != user {
		return nil, fmt.Errorf("%s: requested %d posts for user %d, got %d for %d", path, len(posts), user,
			len(body.Reactions), body.User)
	}
	answers := make([]*answer, len(posts))
	for i, b := range body.Reactions {
		answers[i] = b.answer(path, posts[i], user)
	}
	if err := locate(answers, body.AsOf, partitions); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return answers, nil
}

// locate sets the position of each answer, by its post's partition. The list must have these partitions and no others.
func locate(answers []*answer, list []position, partitions int32) error {
	asOf := map[int32]position{}
	for i, p := range list {
		if i > 0 && p.Partition <= list[i-1].Partition {
			return fmt.Errorf("as_of must list each partition once, in order: %v", list)
		}
		asOf[p.Partition] = p
	}
	named := map[int32]bool{}
	for _, a := range answers {
		partition := owner(a.post, partitions)
		at, ok := asOf[partition]
		if a.asOf = at; !ok {
			a.broken = fmt.Sprintf("as_of %v lacks partition %d", list, partition)
			continue
		}
		named[partition] = true
	}
	for _, a := range answers {
		if len(named) != len(asOf) {
			a.several = fmt.Sprintf("as_of has partitions without any of the posts: %v", list)
		}
	}
	return nil
}

func (a *asker) post(ctx context.Context, path string, body, into any) error {
	request, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return a.ask(ctx, http.MethodPost, path, request, into)
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

type reactionBody struct {
	Post     uint64     `json:"post_id,string"`
	Reaction string     `json:"reaction"`
	Since    *time.Time `json:"since"`
	Region   *string    `json:"region"`
}

func (b *reactionBody) answer(path string, post, user uint64) *answer {
	ans := &answer{path: path, post: post}
	action, known := reactionNames[b.Reaction]
	stands := action != kudosv1.Action_UNLIKE
	switch {
	case !known:
		ans.broken = fmt.Sprintf("reaction %q", b.Reaction)
	case stands != (b.Since != nil), stands != (b.Region != nil):
		ans.broken = "a reaction must have since and region, NONE must have neither"
	}
	ans.reaction = &reaction{user: user, action: action}
	if b.Since != nil && b.Region != nil {
		ans.reaction.sinceMs, ans.reaction.region = b.Since.UnixMilli(), *b.Region
	}
	ans.about(b.Post)
	return ans
}

func (a *asker) reaction(ctx context.Context, post, user uint64) (*answer, error) {
	var body struct {
		reactionBody
		User uint64   `json:"user_id,string"`
		AsOf position `json:"as_of"`
	}
	path := fmt.Sprintf("/v1/posts/%d/likes/%d", post, user)
	if err := a.ask(ctx, http.MethodGet, path, nil, &body); err != nil {
		return nil, err
	}
	ans := body.answer(path, post, user)
	if ans.asOf = body.AsOf; body.User != user {
		ans.broken = fmt.Sprintf("is for user %d", body.User)
	}
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
	Posts      int64     `json:"posts"`
	Likes      int64     `json:"likes"`
	Dislikes   int64     `json:"dislikes"`
	Events     int64     `json:"events"`
	Behind     int64     `json:"events_behind"`
	LagMs      int64     `json:"lag_ms"`
	Partitions []statsOf `json:"partitions"`
	Reactions  []statsOf `json:"reactions"` // of the partitions that it keeps
	// Transactions are those open just then, which no fold decides.
	Transactions []json.RawMessage `json:"transactions"`
}

type statsOf struct {
	AsOf  position `json:"as_of"`
	Ready bool     `json:"ready"`
}

func (a *asker) stats(ctx context.Context) (*stats, error) {
	s := &stats{}
	return s, a.ask(ctx, http.MethodGet, "/v1/stats", nil, s)
}
