package view

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"kudos/schema"
)

// recentCounts is a bounded cache of posts' counts in front of the stores of all partitions. An entry is what the store
// has: a partition's writer changes it with the store, while no reader pins that, and readers add what they have read
// while they pin it.
type recentCounts struct {
	shards [256]recentShard
	sets   uint64        // of a shard
	opened atomic.Uint64 // how often a partition's store was opened
}

type recentShard struct {
	mu   sync.Mutex
	sets []recentSet // nil: nothing was put
}

// recentSet has the entries of equal hash, the last ones put first.
type recentSet [4]recentCount

// recentCount is the counts of a post in one partition, since its store was opened (from 1).
type recentCount struct {
	opened, post uint64
	counts       schema.Counts
}

func newRecentCounts(bytes int64) *recentCounts {
	r := &recentCounts{}
	r.sets = max(1, uint64(bytes)/uint64(unsafe.Sizeof(recentSet{}))/uint64(len(r.shards)))
	return r
}

// lock returns the shard of a post, locked, and the index of its set.
func (r *recentCounts) lock(post uint64) (s *recentShard, set uint64) {
	hash := post * 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: close ids spread evenly
	set, _ = bits.Mul64(hash<<8, r.sets)
	s = &r.shards[hash>>56]
	s.mu.Lock()
	return s, set
}

func (r *recentCounts) get(opened, post uint64) (c schema.Counts, ok bool) {
	s, set := r.lock(post)
	defer s.mu.Unlock()
	if s.sets == nil {
		return c, false
	}
	for i := range s.sets[set] {
		if e := &s.sets[set][i]; e.post == post && e.opened == opened {
			return e.counts, true
		}
	}
	return c, false
}

func (r *recentCounts) put(opened, post uint64, c schema.Counts) {
	s, set := r.lock(post)
	defer s.mu.Unlock()
	if s.sets == nil {
		s.sets = make([]recentSet, r.sets)
	}
	entries, i := &s.sets[set], 0
	for i < len(entries)-1 && (entries[i].post != post || entries[i].opened != opened) {
		i++
	}
	copy(entries[1:i+1], entries[:i])
	entries[0] = recentCount{opened, post, c}
}
