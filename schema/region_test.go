package schema

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseRegion(t *testing.T) {
	for _, tt := range []struct {
		in, want   string
		wellFormed bool
	}{
		{"", "ZZ", true},
		{"US", "US", true},
		{"us", "US", true},
		{"De", "DE", true},
		{"ZZ", "ZZ", true},
		{"US-CA", "US-CA", true},
		{"us-ca", "US-CA", true},
		{"fr-75c", "FR-75C", true},
		{"JP-1", "JP-1", true},
		{"U", "ZZ", false},
		{"USA", "ZZ", false},
		{"U1", "ZZ", false},
		{"1S", "ZZ", false},
		{"US-", "ZZ", false},
		{"US_CA", "ZZ", false},
		{"US-CALI", "ZZ", false},
		{"U-SCA", "ZZ", false},
		{"US--A", "ZZ", false},
		{"US-C ", "ZZ", false},
		{" US", "ZZ", false},
		{"US\x00", "ZZ", false},
		{"\x00\x00", "ZZ", false},
		{"ÜS", "ZZ", false},
		{"\xff\xfe", "ZZ", false},
		{"@[", "ZZ", false},    // the characters next to A and Z
		{"`{", "ZZ", false},    // next to a and z
		{"US-/:", "ZZ", false}, // next to 0 and 9
	} {
		region, wellFormed := ParseRegion(tt.in)
		require.Equal(t, tt.want, region.String(), "%q", tt.in)
		require.Equal(t, tt.wellFormed, wellFormed, "%q", tt.in)

		fromBytes, wellFormed := ParseRegion([]byte(tt.in))
		require.Equal(t, region, fromBytes)
		require.Equal(t, tt.wellFormed, wellFormed)
	}
	require.Equal(t, "", Region{}.String(), "the zero value is not a region")
}
