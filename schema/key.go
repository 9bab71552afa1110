package schema

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

const ProgressKey = "_" // the key of the progress record at the end of each transaction in like-updates

// AppendPostKey appends the canonical record key of a post: its id in decimal ASCII.
func AppendPostKey(dst []byte, postID uint64) []byte { return strconv.AppendUint(dst, postID, 10) }

// ParsePostKey parses a record key. It accepts non-canonical keys ("007"), because the number is unambiguous; such an
// event is forwarded to the partition that owns the post.
func ParsePostKey(key []byte) (uint64, error) {
	if len(key) == 0 || len(key) > 64 {
		return 0, fmt.Errorf("key of %d bytes is not a decimal post id", len(key))
	}
	id, err := strconv.ParseUint(string(key), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("key %q is not a decimal post id: %w", key, errors.Unwrap(err))
	}
	return id, nil
}

// ParseLikeKey parses a key of likes: <post>, or <post>/<bucket> for a post with user buckets (Layout.AppendKey). It
// ignores the bucket, which follows from the user: an event in the wrong bucket is forwarded.
func ParseLikeKey(key []byte) (uint64, error) {
	post, bucket, cut := bytes.Cut(key, []byte("/"))
	if cut {
		if _, err := strconv.ParseUint(string(bucket), 10, 32); err != nil {
			return 0, fmt.Errorf("key %q has no number after the slash: %w", key[:min(len(key), 64)],
				errors.Unwrap(err))
		}
	}
	return ParsePostKey(post)
}

// Sizes of state-table keys: 16 bytes for a pair, 8 for a post's counts. The program's own keys have any other size: of
// a user who was voided, 17, which sort first, because there is no post 0.
const (
	PairKeySize      = 16
	PostKeySize      = 8
	VoidKeySize      = 17
	StateProgressKey = "_progress" // the key of a partition's progress record
)

// AppendPairKey appends the state-table key of (post, user), big-endian: a post's counts sort first, then its users.
func AppendPairKey(dst []byte, postID, userID uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, postID), userID)
}

// AppendCountsKey appends the state-table key of a post's counts.
func AppendCountsKey(dst []byte, postID uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, postID)
}

// AppendVoidKey appends the state-table key of a user who was voided: eight zeros, "v", the user.
func AppendVoidKey(dst []byte, userID uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, "\x00\x00\x00\x00\x00\x00\x00\x00v"...), userID)
}

// VoidKeys returns the bounds of these keys: from the first one to what follows the last one.
func VoidKeys() (from, to []byte) {
	return AppendVoidKey(nil, 0), append(AppendVoidKey(nil, math.MaxUint64), 0)
}

// ParseVoidKey is the inverse of AppendVoidKey.
func ParseVoidKey(key []byte) (userID uint64, ok bool) {
	if len(key) != VoidKeySize || !bytes.HasPrefix(key, AppendVoidKey(nil, 0)[:9]) {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[9:]), true
}

// ParsePairKey is the inverse of AppendPairKey.
func ParsePairKey(key []byte) (postID, userID uint64, ok bool) {
	if len(key) != PairKeySize {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[8:]), true
}

// ParseCountsKey is the inverse of AppendCountsKey.
func ParseCountsKey(key []byte) (postID uint64, ok bool) {
	if len(key) != PostKeySize {
		return 0, false
	}
	return binary.BigEndian.Uint64(key), true
}
