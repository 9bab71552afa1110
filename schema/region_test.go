package schema

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseRegion(t *testing.T) {
	regions := map[string]string{"": "ZZ", "US": "US", "us": "US", "De": "DE", "ZZ": "ZZ", "US-CA": "US-CA",
		"us-ca": "US-CA", "fr-75c": "FR-75C", "JP-1": "JP-1"}
	malformed := []string{"U", "USA", "U1", "1S", "US-", "US_CA", "US-CALI", "U-SCA", "US--A", "US-C ", " US",
		"US\x00", "\x00\x00", "ÜS", "\xff\xfe",
		"@[", "`{", "US-/:"} // the characters next to A and Z, to a and z, and to 0 and 9
	for _, in := range malformed {
		regions[in] = "ZZ"
	}
	for in, want := range regions {
		region, wellFormed := ParseRegion(in)
		require.Equal(t, want, region.String(), "%q", in)
		require.Equal(t, !slices.Contains(malformed, in), wellFormed, "%q", in)

		fromBytes, wellFormed := ParseRegion([]byte(in))
		require.Equal(t, region, fromBytes)
		require.Equal(t, !slices.Contains(malformed, in), wellFormed)
	}
	require.Equal(t, "", Region{}.String(), "the zero value is not a region")
}
