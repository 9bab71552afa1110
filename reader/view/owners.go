package view

import (
	"sync"
	"sync/atomic"

	"kudos/schema"
)

// owners tracks the partition layout, which progress records name.
type owners struct {
	present atomic.Pointer[presentLayout] // nil: no progress record yet

	mu    sync.Mutex
	heard map[int32]*schema.Progress // by partition: its first progress record with the current layout
}

// presentLayout is the newest layout that any partition has named.
type presentLayout struct {
	schema.Layout
	// migrating: not all partitions have reported that everything is where it belongs. A reaction may be in any then.
	migrating bool
}

// sameLayout reports whether two progress records have the same layout and the same state of migrating to it.
func sameLayout(a, b *schema.Progress) bool {
	return a.Layouts == b.Layouts && a.Migrating == b.Migrating &&
		a.Partitions == b.Partitions && a.UserBuckets == b.UserBuckets
}

// tell takes a partition's progress record, after each of its transactions.
func (h *owners) tell(partition int32, p *schema.Progress) {
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
		present.migrating = present.migrating || other.Migrating || other.Layouts != newest.Layouts
	}
	h.present.Store(present)
}

// append appends the partitions, of n, that may have a post's reactions, in order: one, unless the post has user
// buckets or the layout is migrating.
func (h *owners) append(to []int32, post uint64, n int32) []int32 {
	present := h.present.Load()
	switch {
	case present == nil:
		return append(to, schema.PartitionFor(post, n))
	case present.migrating:
		for p := range n {
			to = append(to, p)
		}
		return to
	case present.Buckets(post) == 1:
		return append(to, schema.PartitionFor(post, present.Partitions))
	}
	return append(to, present.PartitionsOf(post)...)
}

// ofUser returns the partitions that may have a user's reaction to a post.
func (h *owners) ofUser(post, user uint64, n int32) []int32 {
	if present := h.present.Load(); present != nil && !present.migrating {
		return []int32{present.PartitionOf(post, user)}
	}
	return h.append(nil, post, n)
}
