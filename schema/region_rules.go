package schema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RegionRules say which regions count as themselves, by offset of likes: others count under their country, or as
// UnknownRegion. So regions are bounded by the log, not by what writers make up. Each rule is "<offset>:<version>:" and
// extra regions, in order and separated by commas; it holds from that offset on. Rules are separated by semicolons.
// Before the first, every well-formed region counts as itself.
type RegionRules string

// MaxExtraRegions bounds a rule and maxRegionRules the rules, because each transaction of the fold contains them.
const MaxExtraRegions, maxRegionRules = 200, 4

// countriesVersion is the version of countries that new rules have. A list that changes is another version: the fold
// of what was written by a rule must stay the same.
const countriesVersion = 1

// countries are, by version, the codes of ISO 3166-1 alpha-2. 1: as of 2026.
var countries = [...]string{1: "" +
	"ADAEAFAGAIALAMAOAQARASATAUAWAXAZBABBBDBEBFBGBHBIBJBLBMBNBOBQBRBSBTBVBWBYBZCACCCDCFCGCHCICKCLCMCNCOCRCUCV" +
	"CWCXCYCZDEDJDKDMDODZECEEEGEHERESETFIFJFKFMFOFRGAGBGDGEGFGGGHGIGLGMGNGPGQGRGSGTGUGWGYHKHMHNHRHTHUIDIEILIM" +
	"INIOIQIRISITJEJMJOJPKEKGKHKIKMKNKPKRKWKYKZLALBLCLILKLRLSLTLULVLYMAMCMDMEMFMGMHMKMLMMMNMOMPMQMRMSMTMUMVMW" +
	"MXMYMZNANCNENFNGNINLNONPNRNUNZOMPAPEPFPGPHPKPLPMPNPRPSPTPWPYQARERORSRURWSASBSCSDSESGSHSISJSKSLSMSNSOSRSS" +
	"STSVSXSYSZTCTDTFTGTHTJTKTLTMTNTOTRTTTVTWTZUAUGUMUSUYUZVAVCVEVGVIVNVUWFWSYEYTZAZMZW"}

// Regions are parsed RegionRules.
type Regions []regionRule

type regionRule struct {
	from         int64
	countries    [26 * 26]bool // by countryIndex
	subdivisions map[Region]bool
}

func countryIndex(r Region) int { return int(r[0]-'A')*26 + int(r[1]-'A') }

func (r *regionRule) list(region Region) {
	if region[2] == 0 {
		r.countries[countryIndex(region)] = true
	} else {
		r.subdivisions[region] = true
	}
}

// ParseExtraRegions returns the canonical list of the regions that count as themselves besides countries.
func ParseExtraRegions(list []string) (string, error) {
	var extra []string
	for _, text := range list {
		region, wellFormed := ParseRegion(strings.TrimSpace(text))
		if !wellFormed || region == UnknownRegion {
			return "", fmt.Errorf("%q is not a region such as US-CA", text)
		}
		extra = append(extra, region.String())
	}
	slices.Sort(extra)
	if extra = slices.Compact(extra); len(extra) > MaxExtraRegions {
		return "", fmt.Errorf("%d regions; at most %d can be added to the countries", len(extra), MaxExtraRegions)
	}
	return strings.Join(extra, ","), nil
}

// Extra returns the extra regions of the last rule.
func (r RegionRules) Extra() string { return string(r[strings.LastIndexByte(string(r), ':')+1:]) }

// Everywhere returns the last rule for all offsets, such as those of another partition; "" if there is none.
func (r RegionRules) Everywhere() RegionRules {
	if r == "" {
		return ""
	}
	return FixedRegions(r.Extra())
}

// FixedRegions are the rules of a partition that has these extra regions from its first offset on.
func FixedRegions(extra string) RegionRules {
	return RegionRules(fmt.Sprintf("0:%d:%s", countriesVersion, extra))
}

// With adds a rule from an offset on, and drops those that hold only for offsets before start.
func (r RegionRules) With(from int64, extra string, start int64) (RegionRules, error) {
	list := r.list()
	if n := len(list) - 1; n >= 0 && strings.HasPrefix(list[n], fmt.Sprint(from, ":")) {
		list = list[:n] // it held for no offset
	}
	list = append(list, fmt.Sprintf("%d:%d:%s", from, countriesVersion, extra))
	rules, err := RegionRules(strings.Join(list, ";")).Parse()
	for ; len(rules) > 1 && rules[1].from <= start; rules = rules[1:] {
		list = list[1:]
	}
	if len(list) > maxRegionRules {
		err = fmt.Errorf("the regions were changed %d times since the oldest event in likes; "+
			"wait until retention has deleted the oldest", maxRegionRules)
	}
	return RegionRules(strings.Join(list, ";")), err
}

func (r RegionRules) list() []string {
	if r == "" {
		return nil
	}
	return strings.Split(string(r), ";")
}

// Parse is for use by Of. It accepts only the canonical form.
func (r RegionRules) Parse() (Regions, error) {
	var rules Regions
	for _, text := range r.list() {
		from, rest, _ := strings.Cut(text, ":")
		number, extra, _ := strings.Cut(rest, ":")
		offset, err := strconv.ParseInt(from, 10, 64)
		version, errVersion := strconv.Atoi(number)
		if err = errors.Join(err, errVersion); err != nil || offset < 0 || version < 1 || version >= len(countries) {
			return nil, fmt.Errorf("region rule %q has an unknown version or is malformed", text)
		}
		rule := regionRule{from: offset, subdivisions: map[Region]bool{}}
		rule.list(UnknownRegion)
		for code := countries[version]; code != ""; code = code[2:] {
			rule.list(Region{code[0], code[1]})
		}
		var list []string
		if extra != "" {
			list = strings.Split(extra, ",")
		}
		canonical, err := ParseExtraRegions(list)
		if err != nil || text != fmt.Sprintf("%d:%d:%s", offset, version, canonical) ||
			len(rules) > 0 && rules[len(rules)-1].from >= offset {
			return nil, fmt.Errorf("region rule %q is not in canonical form", text)
		}
		for _, code := range list {
			region, _ := ParseRegion(code)
			rule.list(region)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// Of returns the region under which an event at an offset counts. known is false if neither it nor its country is.
func (r Regions) Of(region Region, offset int64) (counted Region, known bool) {
	for i := len(r) - 1; i >= 0; i-- {
		rule := &r[i]
		switch {
		case offset < rule.from:
			continue
		case region[2] != 0 && rule.subdivisions[region]:
			return region, true
		case rule.countries[countryIndex(region)]:
			return Region{region[0], region[1]}, true
		}
		return UnknownRegion, false
	}
	return region, true
}
