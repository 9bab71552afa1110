package main

import (
	"encoding/binary"
	"fmt"
)

// pairKey is the key of a pair: post and user, big-endian.
func pairKey(post, user uint64) string {
	var key [16]byte
	binary.BigEndian.PutUint64(key[:8], post)
	binary.BigEndian.PutUint64(key[8:], user)
	return string(key[:])
}

func postOf(pair string) uint64 { return binary.BigEndian.Uint64([]byte(pair[:8])) }

// rawCodec hands a record's value through: likes are decoded with their key.
type rawCodec struct{}

func (rawCodec) Encode(value any) ([]byte, error) { return value.([]byte), nil }
func (rawCodec) Decode(value []byte) (any, error) { return value, nil }

// byteCodec is a number of one byte: whether somebody likes (1, 0), or a delta (1, −1).
type byteCodec struct{}

func (byteCodec) Encode(value any) ([]byte, error) { return []byte{byte(value.(int8))}, nil }

func (byteCodec) Decode(value []byte) (any, error) {
	if len(value) != 1 {
		return nil, fmt.Errorf("%d bytes are not a number of one", len(value))
	}
	return int8(value[0]), nil
}

// countCodec is a count, as a varint.
type countCodec struct{}

func (countCodec) Encode(value any) ([]byte, error) {
	return binary.AppendVarint(nil, value.(int64)), nil
}

func (countCodec) Decode(value []byte) (any, error) {
	count, n := binary.Varint(value)
	if n != len(value) || n == 0 {
		return nil, fmt.Errorf("%x is not a count", value)
	}
	return count, nil
}
