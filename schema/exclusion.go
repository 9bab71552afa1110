package schema

import (
	"encoding/json"
	"fmt"
)

// Exclusion is the value of a record of trending-exclusions, whose key is the post's
// id in decimal: moderation takes the post out of rankings, or puts it back. A
// tombstone puts it back, too. JSON, so that a script can write it.
type Exclusion struct {
	Excluded bool `json:"excluded"`
	// Reason is for people.
	Reason string `json:"reason,omitempty"`
}

// AppendExclusion appends the record's value.
func AppendExclusion(b []byte, e Exclusion) ([]byte, error) {
	value, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding an exclusion: %w", err)
	}
	return append(b, value...), nil
}

// DecodeExclusion reads a record's value; none (a tombstone) is no exclusion.
func DecodeExclusion(value []byte) (e Exclusion, err error) {
	if len(value) == 0 {
		return e, nil
	}
	if err := json.Unmarshal(value, &e); err != nil {
		return e, fmt.Errorf("decoding an exclusion: %w", err)
	}
	return e, nil
}
