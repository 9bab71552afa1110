package rankings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// exclusions are the records of trending-exclusions: their offsets, and the set of excluded posts after each.
type exclusions struct {
	offsets []int64
	sets    []map[uint64]bool
}

func readExclusions(records []Record) (*exclusions, error) {
	x := &exclusions{sets: []map[uint64]bool{{}}}
	for _, rec := range records {
		post, err := strconv.ParseUint(string(rec.Key), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("trending-exclusions offset %d: key %q is not a post id", rec.Offset, rec.Key)
		}
		var value struct {
			Excluded bool `json:"excluded"`
		}
		if len(rec.Value) > 0 {
			if err := json.Unmarshal(rec.Value, &value); err != nil {
				return nil, fmt.Errorf("trending-exclusions offset %d: %w", rec.Offset, err)
			}
		}
		set := maps.Clone(x.sets[len(x.offsets)])
		set[post] = value.Excluded
		x.offsets, x.sets = append(x.offsets, rec.Offset), append(x.sets, set)
	}
	return x, nil
}

func (x *exclusions) before(offset int64) map[uint64]bool {
	n, _ := slices.BinarySearch(x.offsets, offset)
	return x.sets[n]
}

func (x *exclusions) atEnd() map[uint64]bool { return x.sets[len(x.offsets)] }
