package schema

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/language"
)

func TestRegionsOf(t *testing.T) {
	rules := RegionRules("100:1:US-CA,XK;200:1:DE-BY")
	regions, err := rules.Parse()
	require.NoError(t, err)
	all := []string{"US", "US-CA", "US-NY", "DE-BY", "XK", "XK-1", "QQ", "QQ-A", "ZZ"}
	for offset, want := range map[int64][]string{
		99:  all, // before the first rule
		100: {"US", "US-CA", "US", "DE", "XK", "XK", "?", "?", "ZZ"},
		199: {"US", "US-CA", "US", "DE", "XK", "XK", "?", "?", "ZZ"},
		200: {"US", "US", "US", "DE-BY", "?", "?", "?", "?", "ZZ"},
	} {
		for i, named := range all {
			region, wellFormed := ParseRegion(named)
			require.True(t, wellFormed)
			counted, known := regions.Of(region, offset)
			require.Equal(t, want[i] != "?", known, "%s at %d", named, offset)
			require.Equal(t, strings.ReplaceAll(want[i], "?", "ZZ"), counted.String(), "%s at %d", named, offset)
		}
	}
	everywhere, err := rules.Everywhere().Parse()
	require.NoError(t, err)
	bavaria, _ := ParseRegion("DE-BY")
	counted, _ := everywhere.Of(bavaria, 0)
	require.Equal(t, bavaria, counted, "another partition has the last rule from its first offset on")
	require.Empty(t, RegionRules("").Everywhere())
}

// The codes of a version never change: what has been folded by it stays the same. A changed list is another version.
func TestCountries(t *testing.T) {
	require.Len(t, countries, 1+countriesVersion)
	var codes []string
	for code := countries[1]; code != ""; code = code[2:] {
		codes = append(codes, code[:2])
		region, err := language.ParseRegion(code[:2])
		require.NoError(t, err)
		require.True(t, region.IsCountry(), code[:2])
		require.Equal(t, code[:2], region.String())
	}
	require.Len(t, slices.Compact(codes), 249)
	require.True(t, slices.IsSorted(codes))
}

func TestExtraRegions(t *testing.T) {
	extra, err := ParseExtraRegions([]string{" us-ny ", "US-CA", "XK", "us-ca"})
	require.NoError(t, err)
	require.Equal(t, "US-CA,US-NY,XK", extra)
	for _, wrong := range []string{"", "ZZ", "USA", "US-CALI", "*"} {
		_, err := ParseExtraRegions([]string{"US-CA", wrong})
		require.ErrorContains(t, err, fmt.Sprintf("%q is not a region such as US-CA", wrong))
	}
	many := make([]string, MaxExtraRegions+1)
	for i := range many {
		many[i] = fmt.Sprintf("US-%d", i)
	}
	_, err = ParseExtraRegions(many)
	require.ErrorContains(t, err, "201 regions; at most 200 can be added to the countries")
	extra, err = ParseExtraRegions(many[1:])
	require.NoError(t, err)
	r := RegionRules("")
	for i := range int64(maxRegionRules) {
		r, err = r.With(1<<62+i, extra, 0)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(r), maxRegions)
}

func TestRegionRulesWith(t *testing.T) {
	for _, tt := range []struct {
		have, want  RegionRules
		from, start int64
	}{
		{"", "7:1:DE-BY", 7, 0},
		{"0:1:", "0:1:;7:1:DE-BY", 7, 0},
		{"0:1:;5:1:US-CA", "0:1:;5:1:US-CA;7:1:DE-BY", 7, 4},
		{"0:1:;5:1:US-CA", "5:1:US-CA;7:1:DE-BY", 7, 5}, // the first event is by the second rule
		{"0:1:;5:1:US-CA", "7:1:DE-BY", 7, 7},           // nothing is left that another rule was for
		{"0:1:;7:1:US-CA", "0:1:;7:1:DE-BY", 7, 0},      // the rule held for no event
		{"7:1:US-CA", "7:1:DE-BY", 7, 0},                // nor did this one
		{"0:1:;1:1:XK;2:1:", "0:1:;1:1:XK;2:1:;3:1:DE-BY", 3, 0},
	} {
		got, err := tt.have.With(tt.from, "DE-BY", tt.start)
		require.NoError(t, err, tt)
		require.Equal(t, tt.want, got, tt)
		require.Equal(t, "DE-BY", got.Extra())
	}
	_, err := RegionRules("0:1:;1:1:XK;2:1:;3:1:XK").With(4, "", 0)
	require.ErrorContains(t, err, "the regions were changed 4 times since the oldest event in likes; wait until")
	_, err = RegionRules("9:1:").With(4, "", 0)
	require.ErrorContains(t, err, "not in canonical form")
}

func TestRegionRulesAreCanonical(t *testing.T) {
	for _, wrong := range []RegionRules{"0", "0:1", "x:1:", "0:0:", "0:2:", "00:1:", "0:1:US-NY,US-CA", "0:1:us-ca",
		"0:1:ZZ", "0:1:US-CA,US-CA", "0:1:,", "0:1:;", ";0:1:", "0:1:;0:1:", "5:1:;4:1:", "-1:1:"} {
		_, err := wrong.Parse()
		require.ErrorContains(t, err, "region rule", wrong)
	}
}

// Version 4 has the fields of version 2, a flag for alternating, and the regions.
func TestGoldenProgressWithRegions(t *testing.T) {
	text := hex.EncodeToString([]byte("0:1:;7:1:US-CA"))
	behind := goldenProgressV1[2 : len(goldenProgressV1)-8]
	for flags, want := range map[string]Progress{"00": {}, "01": {Migrating: true}, "02": {Alternating: true},
		"03": {Migrating: true, Alternating: true}} {
		p := goldenProgress
		p.Migrating, p.Alternating, p.Regions = want.Migrating, want.Alternating, "0:1:;7:1:US-CA"
		golden := "04" + behind + "000000" + flags + "00000000" + "00000000" + "0000000e" + text + "4d6b5533"
		require.Equal(t, golden, hex.EncodeToString(AppendProgress(nil, &p)))
		var got Progress
		require.NoError(t, DecodeProgress(unhex(t, golden), &got))
		require.Equal(t, p, got)
	}
	for _, rest := range []string{
		"00000004" + "00000000" + "00000000" + "0000000e" + text, // an unknown flag
		"00000000" + "00000000" + "00000000" + "00000000",        // nothing that needs version 4
		"00000000" + "00000000" + "00000000" + "000000ff" + text, // longer than the value
		"00000000" + "00000000" + "00000000" + "00000004" + hex.EncodeToString([]byte("0:9:")),
	} {
		require.ErrorContains(t, DecodeProgress(unhex(t, "04"+behind+rest), &Progress{}), "and is malformed", rest)
	}
}
