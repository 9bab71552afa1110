package reader

import (
	"bytes"
	"context"
	"net/http"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/wire"
)

// scratch is the room that an answer with counts is made in.
type scratch struct {
	posts []uint64
	body  []byte
}

// getLikes answers the counts of one post.
func (a *api) getLikes(w http.ResponseWriter, r *http.Request, held *slot) error {
	in := read(r, minOffset)
	post, covered := in.PathID("post_id"), in.minOffset()
	if err := in.refusal(); err != nil {
		return err
	}
	if err := a.coverPost(r.Context(), held, post, covered); err != nil {
		return err
	}
	s := a.scratch.Get().(*scratch)
	defer a.scratch.Put(s)
	s.posts = append(s.posts[:0], post)
	counts, asOf, err := a.likes.Counts(s.posts)
	if err != nil {
		return err
	}
	answer := wire.PostLikes{PostID: post, Likes: counts[0].Likes, Dislikes: counts[0].Dislikes, AsOf: asOf[0]}
	s.body = answer.AppendJSON(s.body[:0])
	a.writeCounts(w, r, s.body, asOf)
	return nil
}

// getManyLikes answers the counts of posts in the query.
func (a *api) getManyLikes(w http.ResponseWriter, r *http.Request, held *slot) error {
	in := read(r, query.PostIDs, minOffset)
	s := a.scratch.Get().(*scratch)
	defer a.scratch.Put(s)
	s.posts = in.Posts(s.posts[:0], wire.MaxPosts)
	covered := in.minOffsets()
	if err := in.refusal(); err != nil {
		return err
	}
	asOf, err := a.manyLikes(r.Context(), held, s, covered)
	if err != nil {
		return err
	}
	a.writeCounts(w, r, s.body, asOf)
	return nil
}

// getManyLikesByBody answers the counts of posts in the body.
func (a *api) getManyLikesByBody(w http.ResponseWriter, r *http.Request, held *slot) error {
	in := read(r)
	if err := in.refusal(); err != nil {
		return err
	}
	if p := problem.RequireMediaType(r, "application/json"); p != nil {
		return refuse(p)
	}
	raw, err := a.bodies.Read(w, r)
	if err != nil {
		return refuse(problem.UnreadBody(err, maxBody))
	}
	if err := a.work(held); err != nil {
		return err
	}
	s := a.scratch.Get().(*scratch)
	defer a.scratch.Put(s)
	var covered []wire.Position
	if s.posts, covered, err = parseManyLikes(raw, s.posts[:0]); err != nil {
		return err
	}
	if _, err := a.manyLikes(r.Context(), held, s, covered); err != nil {
		return err
	}
	a.write(w, r, written{body: s.body, contentType: a.headers.json, caching: a.headers.noCache})
	return nil
}

// manyLikes makes the body of an answer about s.posts.
func (a *api) manyLikes(ctx context.Context, held *slot, s *scratch, covered []wire.Position) ([]wire.Position, error) {
	if err := a.cover(ctx, held, covered); err != nil {
		return nil, err
	}
	counts, asOf, err := a.likes.Counts(s.posts)
	if err != nil {
		return nil, err
	}
	s.body = wire.AppendManyLikes(s.body[:0], s.posts, counts, asOf)
	return asOf, nil
}

// writeCounts writes a body that ends with as_of, which the entity tag leaves out: it
// moves with every event, and the counts with few.
func (a *api) writeCounts(w http.ResponseWriter, r *http.Request, body []byte, asOf []wire.Position) {
	content := body[:bytes.LastIndex(body, []byte(`"as_of"`))]
	a.write(w, r, written{
		body: body, contentType: a.headers.json, caching: a.headers.public,
		etag: etagOf(content), asOf: wire.PositionsText(asOf),
	})
}
