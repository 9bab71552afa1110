package rankings

import (
	"encoding/json"
	"fmt"
	"maps"
	"sort"
	"strconv"
	"sync"
)

// exclusions are the records of trending-exclusions.
type exclusions struct {
	changes []change // by offset

	mu   sync.Mutex
	sets map[int]map[uint64]bool // by the number of changes that made them
}

type change struct {
	offset   int64
	post     uint64
	excluded bool
}

func readExclusions(records []Record) (*exclusions, error) {
	x := &exclusions{sets: map[int]map[uint64]bool{0: {}}}
	for _, rec := range records {
		post, err := strconv.ParseUint(string(rec.Key), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("trending-exclusions offset %d: key %q is no post", rec.Offset, rec.Key)
		}
		var value struct {
			Excluded bool `json:"excluded"`
		}
		if len(rec.Value) > 0 {
			if err := json.Unmarshal(rec.Value, &value); err != nil {
				return nil, fmt.Errorf("trending-exclusions offset %d: %w", rec.Offset, err)
			}
		}
		x.changes = append(x.changes, change{rec.Offset, post, value.Excluded})
	}
	return x, nil
}

// before are the posts that are excluded by the records before an offset.
func (x *exclusions) before(offset int64) map[uint64]bool {
	n := sort.Search(len(x.changes), func(i int) bool { return x.changes[i].offset >= offset })
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sets[n] == nil {
		set := map[uint64]bool{}
		for _, c := range x.changes[:n] {
			set[c.post] = c.excluded
		}
		maps.DeleteFunc(set, func(_ uint64, excluded bool) bool { return !excluded })
		x.sets[n] = set
	}
	return x.sets[n]
}

// end is the offset behind the last record.
func (x *exclusions) end() int64 {
	if len(x.changes) == 0 {
		return 0
	}
	return x.changes[len(x.changes)-1].offset + 1
}
