package reader

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"kudos/reader/wire"
	"kudos/schema"
)

const (
	pageSize, pageToken = "page_size", "page_token"
	defaultPageSize     = 100
	maxPageSize         = 1000
)

func (a *api) getReaction(q *request) (reply, error) {
	post, user, covered := q.PathID("post_id"), q.PathID("user_id"), q.minOffset()
	err := a.cover(q, covered, func() ([]int32, error) { return a.likes.PartitionsOfUser(post, user) })
	if err != nil {
		return reply{}, err
	}
	reaction, asOf, err := a.likes.Reaction(post, user)
	if err != nil {
		return reply{}, err
	}
	body := wire.UserReaction{PostID: post, UserID: user, Reaction: wire.ReactionName(reaction.Reaction), AsOf: asOf}
	if reaction.Reaction != schema.NoReaction {
		body.Since, body.Region = new(wire.Millis(reaction.SinceMs)), reaction.Region.String()
	}
	return encode(q, private, body)
}

func (a *api) listLikers(q *request) (reply, error) {
	post, limit, covered := q.PathID("post_id"), q.Number(pageSize, maxPageSize, defaultPageSize), q.minOffset()
	var after uint64
	if token := q.Value(pageToken); token != "" && post != 0 {
		var wrong string
		if after, wrong = parsePageToken(token, post); wrong != "" {
			q.Refuse(pageToken, string(schema.Undecodable), "%s; start again without it", wrong)
		}
	}
	if err := a.coverPost(q, covered, post); err != nil {
		return reply{}, err
	}
	likers, next, asOf, err := a.likes.Likers(post, after, limit)
	if err != nil {
		return reply{}, err
	}
	page := wire.Likers{PostID: post, Likers: append([]wire.Liker{}, likers...), AsOf: asOf} // [], not null
	if next != 0 {
		page.NextPageToken = newPageToken(post, next)
	}
	return encode(q, private, page)
}

// A page token is the version, the post, the user after whom the page begins (8 bytes each, big-endian), and a checksum
// of these: a token that is made up, or is another post's, is rejected instead of giving some page.
const (
	pageTokenVersion = 1
	pageTokenSize    = 1 + 8 + 8 + 4
)

func newPageToken(post, after uint64) string {
	b := append(make([]byte, 0, pageTokenSize), pageTokenVersion)
	b = binary.BigEndian.AppendUint64(b, post)
	b = binary.BigEndian.AppendUint64(b, after)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePageToken parses a token. wrong says what is wrong with it, or is "".
func parsePageToken(token string, post uint64) (after uint64, wrong string) {
	const none = "is not the next_page_token of a page"
	const content = pageTokenSize - 4
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	switch {
	case err != nil || len(b) == 0:
		return 0, none
	case b[0] != pageTokenVersion:
		return 0, "has an unknown format; it may come from another version of the reader"
	case len(b) != pageTokenSize, crc32.ChecksumIEEE(b[:content]) != binary.BigEndian.Uint32(b[content:]):
		return 0, none
	case binary.BigEndian.Uint64(b[1:]) != post:
		return 0, "belongs to another post"
	}
	return binary.BigEndian.Uint64(b[9:]), ""
}
