package reader

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/reader/wire"
)

// While partitions are added, a writer may know one that the reader does not: the request waits for it.
func TestMinOffsetOfAnAddedPartition(t *testing.T) {
	r := newRig(t, nil, nil)
	r.likes.mu.inKafka, r.likes.mu.ends[1] = 5, 20
	for _, target := range []string{likesOf1 + "?min_offset=4:49", "/v1/likes?post_ids=1&min_offset=4:49",
		"/v1/posts/1/likes/7?min_offset=4:49", "/v1/posts/1/likers?min_offset=4:49"} {
		r.likes.set(func() { r.likes.mu.count, r.likes.mu.looked = 4, 0 })
		answered := testkit.Later(func() apikit.Answer { return r.get(target) })
		testkit.WaitFor(t, "the request to wait", func() (waits bool) {
			r.likes.set(func() { waits = r.likes.mu.looked > 5 })
			return waits
		})
		require.Empty(t, answered)
		r.likes.set(func() { r.likes.mu.count = 5 })
		require.Equal(t, 200, (<-answered).Status, target)
	}
}

// A writer with an old layout puts an event into a partition whose fold forwards it: it is covered once the partition
// that owns the post has all that was there when the other had passed the event.
func TestMinOffsetOfAForwardedEvent(t *testing.T) {
	r := newRig(t, nil, nil)
	requireWait := func(want wire.Position) {
		t.Helper()
		require.Equal(t, want, testkit.Receive(t, r.likes.mu.waits, "the request must wait"))
	}
	for _, target := range []string{likesOf1 + "?", "/v1/likes?post_ids=1,5&", "/v1/likes?post_ids=1&viewer=7&",
		"/v1/posts/1/likes/7?", "/v1/posts/1/likers?"} {
		r.likes.set(func() { r.likes.mu.asOf, r.likes.mu.ends = [5]int64{10, 20, 30, 40, 50}, [5]int64{1: 25} })
		answered := testkit.Later(func() apikit.Answer { return r.get(target + "min_offset=3:40") })
		requireWait(wire.Position{Partition: 3, Offset: 41})
		r.likes.set(func() { r.likes.mu.asOf[3] = 41 })
		requireWait(wire.Position{Partition: 1, Offset: 25})
		require.Empty(t, answered)
		r.likes.set(func() { r.likes.mu.asOf[1] = 25 })
		require.Equal(t, 200, (<-answered).Status, target)
	}
	r.likes.set(func() { r.likes.mu.ends = [5]int64{} })
	r.get(likesOf1+"?min_offset=3:40").RequireProblem(503, "not-covered", "")
}

// A post with user buckets, or in all partitions while they are being added, has several owners: after a change of the
// layout, one of them may have forwarded the event to another.
func TestMinOffsetWithSeveralOwners(t *testing.T) {
	r := newRig(t, nil, nil)
	set := func(layouts uint32, asOf int64) {
		r.likes.set(func() {
			r.likes.mu.layout = layouts
			r.likes.mu.asOf, r.likes.mu.ends = [5]int64{10, asOf, 30, 41, 50}, [5]int64{1: 25, 3: 35}
		})
	}
	for _, target := range []string{fmt.Sprintf("/v1/posts/%d/likes?min_offset=3:40", sharedPost),
		fmt.Sprintf("/v1/likes?post_ids=%d&min_offset=3:40", sharedPost),
		fmt.Sprintf("/v1/posts/%d/likers?min_offset=3:40", sharedPost)} {
		set(0, 20)
		require.Equal(t, 200, r.get(target).Status, target)
		set(1, 20)
		answered := testkit.Later(func() apikit.Answer { return r.get(target) })
		want := wire.Position{Partition: 1, Offset: 25}
		require.Equal(t, want, testkit.Receive(t, r.likes.mu.waits, "the request must wait"))
		require.Empty(t, answered)
		r.likes.set(func() { r.likes.mu.asOf[1] = 25 })
		require.Equal(t, 200, (<-answered).Status, target)
	}
}
