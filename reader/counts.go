package reader

import (
	"bytes"

	"kudos/reader/query"
	"kudos/reader/wire"
	"kudos/schema"
)

func (a *api) getLikes(q *request) (reply, error) {
	post, covered := q.PathID("post_id"), q.minOffset()
	if _, err := a.coverPosts(q, covered, post); err != nil {
		return reply{}, err
	}
	q.posts = append(q.posts[:0], post)
	return a.likesOf(q, false)
}

// likesOf answers with the counts of the request's posts: as a page, or those of a single post.
func (a *api) likesOf(q *request, page bool) (reply, error) {
	counts, asOf, err := a.counts.Counts(q.posts)
	if err != nil {
		return reply{}, err
	}
	if page {
		q.body = wire.AppendManyLikes(q.body[:0], q.posts, counts, asOf, nil, nil)
	} else {
		answer := wire.PostLikes{PostID: q.posts[0], Counts: counts[0], AsOf: asOf[0]}
		q.body = answer.AppendJSON(q.body[:0])
	}
	return a.countsReply(q.body, asOf), nil
}

func (a *api) getManyLikes(q *request) (reply, error) {
	q.posts = q.Posts(q.posts[:0], wire.MaxPosts)
	user, covered := q.ID(query.Viewer), q.minOffsets()
	asOf, err := a.manyLikes(q, covered, user)
	if err != nil {
		return reply{}, err
	}
	r := a.countsReply(q.body, asOf)
	if user != 0 {
		r.caching = private
	}
	return r, nil
}

func (a *api) getManyLikesByBody(q *request) (reply, error) {
	raw, err := a.readJSON(q)
	if err != nil {
		return reply{}, err
	}
	fields, covered := q.readBody(raw, query.Viewer)
	user := uint64(0)
	if fields[query.Viewer] != nil {
		user = q.readID(query.Viewer, fields[query.Viewer])
	}
	if _, err := a.manyLikes(q, covered, user); err != nil {
		return reply{}, err
	}
	return reply{body: q.body, contentType: jsonType, caching: noCache}, nil
}

// manyLikes puts the counts of posts into the body, and a user's reactions, unless user is 0. asOf is of the counts.
func (a *api) manyLikes(q *request, covered []wire.Position, user uint64) (asOf []wire.Position, err error) {
	if covered, err = a.coverPosts(q, covered, q.posts...); err != nil {
		return nil, err
	}
	counts, asOf, err := a.counts.Counts(q.posts)
	if err != nil {
		return nil, err
	}
	if user == 0 {
		q.body = wire.AppendManyLikes(q.body[:0], q.posts, counts, asOf, nil, nil)
		return asOf, nil
	}
	list, reactionsAsOf, err := a.reactionsOf(q, user, q.posts, covered)
	if err != nil {
		return nil, err
	}
	reactions := make([]schema.Reaction, len(list))
	for i, r := range list {
		reactions[i] = r.is.Reaction
	}
	q.body = wire.AppendManyLikes(q.body[:0], q.posts, counts, asOf, reactions, reactionsAsOf)
	return asOf, nil
}

// countsReply ends the body with as_of. The entity tag leaves it out: it changes with every event, the counts with few.
func (a *api) countsReply(body []byte, asOf []wire.Position) reply {
	content := body[:bytes.LastIndex(body, []byte(`"as_of"`))]
	return reply{body: body, contentType: jsonType, caching: a.public, etag: etagOf(content),
		asOf: wire.PositionsText(asOf)}
}
