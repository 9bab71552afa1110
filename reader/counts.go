package reader

import (
	"bytes"

	"kudos/httpserver/problem"
	"kudos/reader/wire"
)

func (a *api) getLikes(q *request) (reply, error) {
	post, covered := q.PathID("post_id"), q.minOffset()
	if err := a.coverPost(q, covered, post); err != nil {
		return reply{}, err
	}
	q.posts = append(q.posts[:0], post)
	counts, asOf, err := a.likes.Counts(q.posts)
	if err != nil {
		return reply{}, err
	}
	answer := wire.PostLikes{PostID: post, Counts: counts[0], AsOf: asOf[0]}
	q.body = answer.AppendJSON(q.body[:0])
	return a.countsReply(q.body, asOf), nil
}

func (a *api) getManyLikes(q *request) (reply, error) {
	q.posts = q.Posts(q.posts[:0], wire.MaxPosts)
	asOf, err := a.manyLikes(q, q.minOffsets())
	if err != nil {
		return reply{}, err
	}
	return a.countsReply(q.body, asOf), nil
}

func (a *api) getManyLikesByBody(q *request) (reply, error) {
	if err := q.refusal(); err != nil {
		return reply{}, err
	}
	if p := problem.RequireMediaType(q.Request, "application/json"); p != nil {
		return reply{}, refuse(p)
	}
	raw, err := a.bodies.Read(q.w, q.Request)
	if err != nil {
		return reply{}, refuse(problem.UnreadBody(err, maxBody))
	}
	if err := a.work(q); err != nil {
		return reply{}, err
	}
	if _, err := a.manyLikes(q, q.readBody(raw)); err != nil {
		return reply{}, err
	}
	return reply{body: q.body, contentType: jsonType, caching: noCache}, nil
}

func (a *api) manyLikes(q *request, covered []wire.Position) (asOf []wire.Position, err error) {
	if err := a.cover(q, covered, nil); err != nil {
		return nil, err
	}
	counts, asOf, err := a.likes.Counts(q.posts)
	if err != nil {
		return nil, err
	}
	q.body = wire.AppendManyLikes(q.body[:0], q.posts, counts, asOf)
	return asOf, nil
}

// countsReply ends the body with as_of. The entity tag leaves it out: it changes with every event, the counts with few.
func (a *api) countsReply(body []byte, asOf []wire.Position) reply {
	content := body[:bytes.LastIndex(body, []byte(`"as_of"`))]
	return reply{
		body: body, contentType: jsonType, caching: a.public, etag: etagOf(content), asOf: wire.PositionsText(asOf),
	}
}
