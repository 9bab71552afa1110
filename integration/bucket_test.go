package integration

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

// bucket is a system with an archive in a bucket, which has no lock.
type bucket struct {
	*system
	store    *stack.ObjectStore
	dir      string // of the archive, in the store's files
	program  string // of the archivers
	settings []string
}

// newBucket's archivers write small files. program is "full" or "lake".
func newBucket(t *testing.T, program string, settings ...string) *bucket {
	s := newRealSystem(t)
	for name, value := range stack.Keys {
		t.Setenv(name, value)
	}
	store := stack.ObjectStoreForTest(t, "..", "likes")
	dir := filepath.Join(store.Files, "likes", "all")
	return &bucket{s, store, dir, buildProgram(t, program), slices.Concat([]string{
		"--set", "archive.dir=s3://likes/all", "--set", "archive.s3_endpoint=" + store.URL,
		"--set", "archive.max_rows=1000", "--set", "archive.rotate_interval=50ms",
		"--set", "archive.row_group_rows=100", "--set", "archive.park_interval=200ms"}, settings)}
}

func (b *bucket) archiver(name string) *archiver {
	light := b.system.program
	defer func() { b.system.program = light }()
	b.system.program = b.program
	return &archiver{b.role(name, "archive", b.settings...), b.dir}
}

// strike kills and pauses two archivers in turn, within a time after each has advanced: each takes over from the one
// before, whether that is dead, works, or is paused in the middle of a file. Then it resumes, calls resumed, and kills
// that one. At the end another archiver runs until it has everything.
func (b *bucket) strike(t *testing.T, events, within int, resumed func(former *archiver)) {
	b.toggles(1, fromEnv(t, "KUDOS_TEST_EVENTS", events))
	b.processor("processor", "--set", "processor.max_batch=25").start()
	both := []*archiver{b.archiver("archive-a"), b.archiver("archive-b")}
	random, takeovers := rand.New(rand.NewPCG(1, 2)), 0
	for strike := range fromEnv(t, "KUDOS_TEST_KILLS", 16) {
		now, former := both[strike%2], both[1-strike%2]
		now.start()
		before := now.position()
		waitFor(t, time.Minute, "the archive to advance", func() bool { return now.position() > before })
		if former.Running() {
			require.NoError(t, former.Resume()) // it continues with what it was doing
			resumed(former)
			takeovers++
			former.kill()
		}
		pause(t, time.Duration(random.IntN(within))*time.Millisecond)
		if strike%2 == 0 {
			require.NoError(t, now.Pause())
		} else {
			now.kill()
		}
	}
	require.Positive(t, takeovers)
	b.archiver("archive-last").start()
	b.drain(3 * time.Minute)
}

// TestArchiveInABucketHasEachChangeOnce: an archiver that was paused notices that another has taken over.
func TestArchiveInABucketHasEachChangeOnce(t *testing.T) {
	tier.Verify(t)
	b := newBucket(t, "full")
	b.fails([]string{"archive", "--brokers", b.brokerList(), "--set", "archive.dir=s3://likes/all"},
		"this build has no client of object stores")
	b.strike(t, 150_000, 150, func(former *archiver) {
		waitFor(t, time.Minute, "the former archiver to notice", func() bool { return !former.ready() })
	})
	b.requireArchived(t, b.dir)
	b.requireExact()
}
