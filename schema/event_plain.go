package schema

import (
	"bytes"
	"math"
)

// DecodePlainEvent decodes an event from JSON as programs usually write it: an object with known names, each once,
// unsigned numbers (quoted or not) and strings without escapes. It takes a tenth of the time of encoding/json.
//
// If it returns true, DecodeEvent of the same value without a key gives the same event, and the object has no unknown
// names. If it returns false, e is undefined, and the value may still be valid: call DecodeEvent.
func DecodePlainEvent(value []byte, e *Event) bool {
	return len(value) <= MaxEventBytes && e.decodePlain(value) && e.Check() == nil
}

// Bits for the fields that an object has.
const (
	plainPostID = 1 << iota
	plainUserID
	plainTimeMs
	plainAction
	plainRegion
)

func plainField(name []byte) int {
	switch string(name) {
	case "post_id", "postId":
		return plainPostID
	case "user_id", "userId":
		return plainUserID
	case "time_ms", "timeMs":
		return plainTimeMs
	case "action":
		return plainAction
	case "region":
		return plainRegion
	}
	return 0
}

func (e *Event) decodePlain(b []byte) bool {
	*e = Event{Region: UnknownRegion}
	c := plainCursor{rest: b}
	if !c.take('{') {
		return false
	}
	for seen := 0; ; {
		name, ok := c.text()
		field := plainField(name)
		if !ok || field == 0 || seen&field != 0 || !c.take(':') || !e.setPlain(field, &c) {
			return false
		}
		seen |= field
		if !c.take(',') {
			return c.take('}') && c.atEnd()
		}
	}
}

func (e *Event) setPlain(field int, c *plainCursor) (ok bool) {
	switch field {
	case plainPostID:
		e.PostID, ok = c.number()
	case plainUserID:
		e.UserID, ok = c.number()
	case plainTimeMs:
		var ms uint64
		ms, ok = c.number()
		e.TimeMs = int64(ms)
		ok = ok && ms <= math.MaxInt64
	case plainAction:
		e.Action = jsonAction(c.word())
		ok = e.Action != 0
	case plainRegion:
		raw := c.word()
		ok = len(raw) > 0 && raw[0] == '"'
		if ok {
			e.Region, e.RegionMalformed = jsonRegion(raw)
		}
	}
	return ok
}

type plainCursor struct{ rest []byte } // scans a JSON value as long as it is plain

func (c *plainCursor) space() {
	for len(c.rest) > 0 && (c.rest[0] == ' ' || c.rest[0] == '\t' || c.rest[0] == '\n' || c.rest[0] == '\r') {
		c.rest = c.rest[1:]
	}
}

func (c *plainCursor) atEnd() bool { c.space(); return len(c.rest) == 0 }

func (c *plainCursor) take(char byte) bool {
	c.space()
	if len(c.rest) == 0 || c.rest[0] != char {
		return false
	}
	c.rest = c.rest[1:]
	return true
}

// text consumes a string of printable ASCII without escapes, and returns it without its quotes.
func (c *plainCursor) text() ([]byte, bool) {
	if !c.take('"') {
		return nil, false
	}
	end := bytes.IndexByte(c.rest, '"')
	if end < 0 {
		return nil, false
	}
	text := c.rest[:end]
	for _, char := range text {
		if char < ' ' || char > '~' || char == '\\' {
			return nil, false
		}
	}
	c.rest = c.rest[end+1:]
	return text, true
}

// word consumes a string with its quotes, true, or false; it returns nil for anything else.
func (c *plainCursor) word() []byte {
	c.space()
	start := c.rest
	for _, constant := range []string{"true", "false"} {
		if bytes.HasPrefix(start, []byte(constant)) {
			c.rest = start[len(constant):]
			return start[:len(constant)]
		}
	}
	text, ok := c.text()
	if !ok {
		return nil
	}
	return start[:len(text)+len(`""`)]
}

func (c *plainCursor) number() (n uint64, ok bool) {
	quoted := c.take('"')
	digits := 0
	for digits < len(c.rest) && '0' <= c.rest[digits] && c.rest[digits] <= '9' {
		digits++
	}
	text := c.rest[:digits]
	if digits == 0 || (digits > 1 && text[0] == '0') {
		return 0, false
	}
	for _, digit := range text {
		d := uint64(digit - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	c.rest = c.rest[digits:]
	// The closing quote must directly follow the digits; take would skip whitespace.
	if quoted {
		if len(c.rest) == 0 || c.rest[0] != '"' {
			return 0, false
		}
		c.rest = c.rest[1:]
	}
	return n, true
}
