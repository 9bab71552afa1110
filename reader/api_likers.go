package reader

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"

	"kudos/reader/wire"
	"kudos/schema"
)

const (
	defaultPageSize = 100
	maxPageSize     = 1000
)

// getReaction answers what a user has for a post.
func (a *api) getReaction(w http.ResponseWriter, r *http.Request, held *slot) error {
	in := read(r, minOffset)
	post, user, covered := in.PathID("post_id"), in.PathID("user_id"), in.minOffset()
	if err := in.refusal(); err != nil {
		return err
	}
	err := a.coverOne(r.Context(), held, covered, func() ([]int32, error) { return a.likes.HomesOfUser(post, user) })
	if err != nil {
		return err
	}
	reaction, asOf, err := a.likes.Reaction(post, user)
	if err != nil {
		return err
	}
	body := wire.UserReaction{PostID: post, UserID: user, Reaction: wire.ReactionName(reaction.Reaction), AsOf: asOf}
	if reaction.Reaction != schema.NoReaction {
		since := wire.Millis(reaction.SinceMs)
		body.Since, body.Region = &since, reaction.Region.String()
	}
	return a.writeJSON(w, r, a.headers.private, body)
}

// listLikers answers a page of those who like a post.
func (a *api) listLikers(w http.ResponseWriter, r *http.Request, held *slot) error {
	const pageSize, pageToken = "page_size", "page_token"
	in := read(r, pageSize, pageToken, minOffset)
	post, limit, covered := in.PathID("post_id"), in.Number(pageSize, maxPageSize, defaultPageSize), in.minOffset()
	var after uint64
	if token := in.Value(pageToken); token != "" && post != 0 {
		var wrong string
		if after, wrong = parsePageToken(token, post); wrong != "" {
			in.Refuse(pageToken, string(schema.Undecodable), "%s", wrong)
		}
	}
	if err := in.refusal(); err != nil {
		return err
	}
	if err := a.coverPost(r.Context(), held, post, covered); err != nil {
		return err
	}
	likers, next, asOf, err := a.likes.Likers(post, after, limit)
	if err != nil {
		return err
	}
	page := wire.Likers{PostID: post, Likers: make([]wire.Liker, len(likers)), AsOf: asOf}
	for i, l := range likers {
		page.Likers[i] = wire.Liker{UserID: l.UserID, Since: wire.Millis(l.SinceMs), Region: l.Region.String()}
	}
	if next != 0 {
		page.NextPageToken = newPageToken(post, next)
	}
	return a.writeJSON(w, r, a.headers.private, page)
}

// A page token is version, post and the user after whom the page begins (8 bytes each,
// big-endian), and a checksum of that: whoever makes one up, or takes another post's,
// is told so instead of given some page.
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

// parsePageToken says what is wrong with the token, "" if nothing is.
func parsePageToken(token string, post uint64) (after uint64, wrong string) {
	const again = "; begin again without it"
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) == 0 || (b[0] == pageTokenVersion && len(b) != pageTokenSize) {
		return 0, "is not the next_page_token of a page" + again
	}
	if b[0] != pageTokenVersion {
		return 0, "is not of a form that this reader knows, which may be another version" + again
	}
	content := b[:pageTokenSize-4]
	if crc32.ChecksumIEEE(content) != binary.BigEndian.Uint32(b[len(content):]) {
		return 0, "is not the next_page_token of a page" + again
	}
	if binary.BigEndian.Uint64(content[1:]) != post {
		return 0, "is of another post's page" + again
	}
	return binary.BigEndian.Uint64(content[9:]), ""
}
