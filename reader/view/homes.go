package view

import (
	"sync"
	"sync/atomic"

	"kudos/schema"
)

// homes knows the partition layout, which the progress records name.
type homes struct {
	present atomic.Pointer[presentLayout] // nil: no progress record was read yet

	mu    sync.Mutex
	heard map[int32]*schema.Progress // of each partition, the last whose layout was another
}

// presentLayout is the newest that any partition has named.
type presentLayout struct {
	schema.Layout
	// moving: not all partitions have reported that all is where the layout says. A reaction may be in any of them.
	moving bool
}

// sameLayout tells whether two progress records are of the same layout, and of the same state of moving to it.
func sameLayout(a, b *schema.Progress) bool {
	return a.Layouts == b.Layouts && a.Moving == b.Moving &&
		a.Partitions == b.Partitions && a.UserBuckets == b.UserBuckets
}

// tell reports a partition's progress record, after each of its transactions.
func (h *homes) tell(partition int32, p *schema.Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.heard[partition]; last != nil && sameLayout(last, p) {
		return
	}
	if h.heard == nil {
		h.heard = map[int32]*schema.Progress{}
	}
	own := *p
	h.heard[partition] = &own
	newest := &own
	for _, other := range h.heard {
		if other.Layouts > newest.Layouts {
			newest = other
		}
	}
	present := &presentLayout{Layout: newest.Layout()}
	for _, other := range h.heard {
		present.moving = present.moving || other.Moving || other.Layouts != newest.Layouts
	}
	h.present.Store(present)
}

// append appends the partitions that a post's reactions may be in, of n: in order, one unless it has user buckets or
// the layout is about to change.
func (h *homes) append(to []int32, post uint64, n int32) []int32 {
	present := h.present.Load()
	switch {
	case present == nil:
		return append(to, schema.PartitionFor(post, n))
	case present.moving:
		for p := range n {
			to = append(to, p)
		}
		return to
	case present.Buckets(post) == 1:
		return append(to, schema.PartitionFor(post, present.Partitions))
	}
	return append(to, present.Homes(post)...)
}

// ofUser returns the partitions that a user's reaction to a post may be in.
func (h *homes) ofUser(post, user uint64, n int32) []int32 {
	if present := h.present.Load(); present != nil && !present.moving {
		return []int32{present.Home(post, user)}
	}
	return h.append(nil, post, n)
}
