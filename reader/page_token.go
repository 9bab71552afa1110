package reader

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"kudos/reader/wire"
)

// cursor is where a page of likers begins: after a user, and not before a position.
type cursor struct {
	after uint64
	asOf  wire.Position
}

// A page token is the version, the post, the user after whom the page begins (8 bytes each, big-endian), the position
// of the previous page (partition, 4 bytes, and offset, 8), and a checksum of these: a token that is made up, or is
// another post's, is rejected instead of giving some page.
const (
	pageTokenVersion = 2
	pageTokenSize    = 1 + 8 + 8 + 4 + 8 + 4
)

func newPageToken(post uint64, from cursor) string {
	b := append(make([]byte, 0, pageTokenSize), pageTokenVersion)
	b = binary.BigEndian.AppendUint64(b, post)
	b = binary.BigEndian.AppendUint64(b, from.after)
	b = binary.BigEndian.AppendUint32(b, uint32(from.asOf.Partition))
	b = binary.BigEndian.AppendUint64(b, uint64(from.asOf.Offset))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePageToken parses a token. wrong says what is wrong with it, or is "".
func parsePageToken(token string, post uint64) (from cursor, wrong string) {
	const none = "is not the next_page_token of a page"
	const content = pageTokenSize - 4
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	switch {
	case err != nil || len(b) == 0, len(token) != base64.RawURLEncoding.EncodedLen(len(b)): // it skips line breaks
		return from, none
	case b[0] != pageTokenVersion:
		return from, "has an unknown format; it may come from another version of the reader"
	case len(b) != pageTokenSize, crc32.ChecksumIEEE(b[:content]) != binary.BigEndian.Uint32(b[content:]):
		return from, none
	case binary.BigEndian.Uint64(b[1:]) != post:
		return from, "belongs to another post"
	}
	return cursor{after: binary.BigEndian.Uint64(b[9:]), asOf: wire.Position{
		Partition: int32(binary.BigEndian.Uint32(b[17:])), Offset: int64(binary.BigEndian.Uint64(b[21:]))}}, ""
}
