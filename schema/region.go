package schema

// Region is an ISO 3166-1 alpha-2 or ISO 3166-2 code in upper case ("US", "US-CA"), padded with zero bytes. An array,
// so that it is a map key without an allocation. The zero value is not a region; UnknownRegion is.
type Region [6]byte

// UnknownRegion stands for a region that was not given or not well formed.
var UnknownRegion = Region{'Z', 'Z'}

// ParseRegion upper-cases s and checks its form only: two letters, and possibly a
// hyphen with one to three letters or digits. Nothing given is UnknownRegion and
// well formed; anything else is UnknownRegion and not, for the caller to count.
func ParseRegion[T string | []byte](s T) (r Region, wellFormed bool) {
	if len(s) == 0 {
		return UnknownRegion, true
	}
	if len(s) != 2 && (len(s) < 4 || len(s) > 6 || s[2] != '-') {
		return UnknownRegion, false
	}
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		letter := 'A' <= c && c <= 'Z'
		digit := '0' <= c && c <= '9'
		if !letter && i != 2 && (i < 2 || !digit) {
			return UnknownRegion, false
		}
		r[i] = c
	}
	return r, true
}

// String returns the code without its padding.
func (r Region) String() string { return string(r.bytes()) }

func (r *Region) bytes() []byte {
	n := len(r)
	for n > 0 && r[n-1] == 0 {
		n--
	}
	return r[:n]
}
