package view

import (
	"sync"
	"sync/atomic"

	"kudos/schema"
)

// homes knows the layout, which the progress records of the partitions tell.
type homes struct {
	present atomic.Pointer[presentLayout] // nil: no progress record was read yet

	mu    sync.Mutex
	heard map[int32]*schema.Progress // of each partition, the last whose layout was another
}

// presentLayout is the newest that any partition tells of.
type presentLayout struct {
	schema.Layout
	number uint32
	// moving: not all partitions have told that all is where the layout says. A reaction may
	// be in any of them.
	moving bool
}

// sameLayout tells whether two progress records are of the same layout, and of the same
// state of moving to it.
func sameLayout(a, b *schema.Progress) bool {
	return a.Layouts == b.Layouts && a.Moving == b.Moving && a.Partitions == b.Partitions && a.UserBuckets == b.UserBuckets
}

// tell takes a partition's progress record, in one of each of its transactions.
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
	present := &presentLayout{Layout: newest.Layout(), number: newest.Layouts}
	for _, other := range h.heard {
		present.moving = present.moving || other.Moving || other.Layouts != newest.Layouts
	}
	h.present.Store(present)
}

// of returns the partitions that a post's reactions may be in, of n: in order, one unless
// it has user buckets or the layout is about to change.
func (h *homes) of(post uint64, n int32) []int32 {
	present := h.present.Load()
	switch {
	case present == nil:
		return []int32{schema.PartitionFor(post, n)}
	case !present.moving:
		return present.Homes(post)
	}
	all := make([]int32, n)
	for p := range n {
		all[p] = p
	}
	return all
}

// only returns the partition that a post is in, if it is in one.
func (h *homes) only(post uint64, n int32) (partition int32, ok bool) {
	present := h.present.Load()
	if present == nil {
		return schema.PartitionFor(post, n), true
	}
	return schema.PartitionFor(post, present.Partitions), !present.moving && present.Buckets(post) == 1
}

// ofUser returns the partitions that a user's reaction to a post may be in.
func (h *homes) ofUser(post, user uint64, n int32) []int32 {
	if present := h.present.Load(); present != nil && !present.moving {
		return []int32{present.Home(post, user)}
	}
	return h.of(post, n)
}
