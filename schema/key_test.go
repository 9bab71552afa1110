package schema

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPostKey(t *testing.T) {
	for id, key := range map[uint64]string{1: "1", 42: "42", math.MaxUint64: "18446744073709551615"} {
		require.Equal(t, key, string(AppendPostKey(nil, id)))
		got, err := ParsePostKey([]byte(key))
		require.NoError(t, err)
		require.Equal(t, id, got)
	}
}

func TestParsePostKey(t *testing.T) {
	// Event.Check rejects a zero id.
	for key, want := range map[string]uint64{"007": 7, "00000000000000000000000000000042": 42, "0": 0} {
		got, err := ParsePostKey([]byte(key))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for key, want := range map[string]string{
		"":                      "key of 0 bytes is not a decimal post id",
		"+7":                    `key "+7" is not a decimal post id: invalid syntax`,
		"-7":                    `key "-7" is not a decimal post id: invalid syntax`,
		"1_0":                   `key "1_0" is not a decimal post id: invalid syntax`,
		"0x10":                  `key "0x10" is not a decimal post id: invalid syntax`,
		" 7":                    `key " 7" is not a decimal post id: invalid syntax`,
		"18446744073709551616":  `key "18446744073709551616" is not a decimal post id: value out of range`,
		strings.Repeat("0", 65): "key of 65 bytes is not a decimal post id",
	} {
		_, err := ParsePostKey([]byte(key))
		require.EqualError(t, err, want)
	}
}

func TestStateKeys(t *testing.T) {
	pair, counts := AppendPairKey(nil, 1<<40|7, 9), AppendCountsKey(nil, 1<<40|7)
	require.Equal(t, []byte{0, 0, 1, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9}, pair)
	require.Equal(t, pair[:8], counts, "a post's counts must sort right before its reactions")

	post, user, ok := ParsePairKey(pair)
	require.True(t, ok)
	require.Equal(t, [2]uint64{1<<40 | 7, 9}, [2]uint64{post, user})
	post, ok = ParseCountsKey(counts)
	require.True(t, ok)
	require.Equal(t, uint64(1<<40|7), post)

	// Neither parser accepts keys of the other kind, or of the program's own records.
	for _, key := range [][]byte{nil, counts[:7], append(bytes.Clone(counts), 0), pair[:15],
		append(bytes.Clone(pair), 0), []byte(StateProgressKey)} {
		_, _, isPair := ParsePairKey(key)
		_, isCounts := ParseCountsKey(key)
		require.False(t, isPair || isCounts, "%q", key)
	}
	_, _, isPair := ParsePairKey(counts)
	_, isCounts := ParseCountsKey(pair)
	require.False(t, isPair || isCounts)
}
