package schema

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// eventJSON has the names of the contract and of Protobuf's JSON. Fields are raw: an error can name the invalid one.
type eventJSON struct {
	PostID  rawJSON `json:"post_id"`
	PostID2 rawJSON `json:"postId"`
	UserID  rawJSON `json:"user_id"`
	UserID2 rawJSON `json:"userId"`
	TimeMs  rawJSON `json:"time_ms"`
	TimeMs2 rawJSON `json:"timeMs"`
	Action  rawJSON `json:"action"`
	Region  rawJSON `json:"region"`
}

// rawJSON is a value as written, except that a string has no escapes: "LI\u004bE" is "LIKE".
type rawJSON []byte

func (r *rawJSON) UnmarshalJSON(b []byte) error {
	var text string
	if b[0] == '"' && bytes.IndexByte(b, '\\') >= 0 && json.Unmarshal(b, &text) == nil {
		b = []byte(`"` + text + `"`)
	}
	*r = append((*r)[:0], b...)
	return nil
}

func (e *Event) decodeJSON(b []byte) (err error) {
	var j eventJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return poison(Undecodable, "", "not JSON: %v", err)
	}
	if e.PostID, err = jsonInt("post_id", parseUint, j.PostID, j.PostID2); err != nil {
		return err
	}
	if e.UserID, err = jsonInt("user_id", parseUint, j.UserID, j.UserID2); err != nil {
		return err
	}
	if e.TimeMs, err = jsonInt("time_ms", parseInt, j.TimeMs, j.TimeMs2); err != nil {
		return err
	}
	e.Action = jsonAction(j.Action)
	e.Region, e.RegionMalformed = jsonRegion(j.Region)
	return nil
}

func parseUint(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }
func parseInt(s string) (int64, error)   { return strconv.ParseInt(s, 10, 64) }

// jsonInt decodes a number or a string (browsers' numbers are exact only up to 2^53), under one of two names.
func jsonInt[T int64 | uint64](field string, parse func(string) (T, error), raws ...rawJSON) (v T, err error) {
	given := false
	for _, raw := range raws {
		if absent(raw) {
			continue
		}
		n, err := parse(string(unquote(raw)))
		if err != nil {
			return 0, poison(Undecodable, field, "%.40s is not a whole number in range", raw)
		}
		if given && n != v {
			return 0, poison(Undecodable, field, "is given twice with different values")
		}
		v, given = n, true
	}
	return v, nil
}

func absent(raw rawJSON) bool { return len(raw) == 0 || string(raw) == "null" }

func unquote(raw rawJSON) []byte {
	if len(raw) >= 2 && raw[0] == '"' {
		return raw[1 : len(raw)-1]
	}
	return raw
}

// jsonAction decodes an action's name, or true and false for LIKE and UNLIKE. Others are 0, which Event.Check rejects.
func jsonAction(raw rawJSON) Action {
	switch string(raw) {
	case `"LIKE"`, "true":
		return Like
	case `"UNLIKE"`, "false":
		return Unlike
	case `"DISLIKE"`:
		return Dislike
	}
	return 0
}

// jsonRegion accepts any value: a malformed region must not lose the like.
func jsonRegion(raw rawJSON) (r Region, malformed bool) {
	if absent(raw) {
		return UnknownRegion, false
	}
	if raw[0] != '"' {
		return UnknownRegion, true
	}
	r, wellFormed := ParseRegion([]byte(unquote(raw)))
	return r, !wellFormed
}
