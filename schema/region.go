package schema

// Region is an ISO 3166-1 alpha-2 or ISO 3166-2 code in upper case ("US", "US-CA"), padded with zero bytes. It is an
// array so that it can be a map key without an allocation. The zero value is not a region; UnknownRegion is.
type Region [6]byte

var UnknownRegion = Region{'Z', 'Z'} // replaces a missing or malformed region

// ParseRegion converts s to upper case and checks only its form: two letters, optionally a hyphen and one to three
// letters or digits. An empty s is a well-formed UnknownRegion; otherwise wellFormed is false, for the caller to count.
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
