package stream

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/stream/store"
)

// slowDisk lets no compaction write until there is one in begin.
type slowDisk struct {
	vfs.FS
	begin   chan struct{}
	waits   atomic.Bool
	flushes atomic.Int64
}

func (d *slowDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	switch category {
	case "pebble-compaction":
		d.waits.Store(true)
		<-d.begin
	case "pebble-memtable-flush":
		d.flushes.Add(1)
	}
	return d.FS.Create(name, category)
}

// TestReadersDoNotWaitForCompactions: while nothing can be written they read what was there
// before.
func TestReadersDoNotWaitForCompactions(t *testing.T) {
	disk := &slowDisk{FS: vfs.NewMem(), begin: make(chan struct{})}
	begin := sync.OnceFunc(func() { close(disk.begin) })
	stores := store.NewSetOn(disk, "state", 1<<20, testkit.Log())
	defer stores.Close()
	v := NewView(ViewOptions{Topic: testkit.Table, Stores: stores, Copy: func(int32) Copy { return &testCopy{} }}, testkit.Log())
	p := newViewPartition(v, Assignment{Topic: testkit.Table, Partitions: 1})
	s := p.store
	require.NoError(t, s.Open())
	defer func() { begin(); require.NoError(t, s.Close()) }()
	p.ready = true
	read := func() (value string) {
		require.NoError(t, p.read(func(s *store.Store, _ Copy) error { value = get(t, s, "a"); return nil }, nil))
		return value
	}
	offset, written := int64(0), make(chan error, 1)
	write := func(value string) (waits bool) {
		go func() {
			written <- p.take([]*kgo.Record{{Key: []byte("a"), Value: []byte(value), Offset: offset}, {Key: []byte("end"), Value: []byte("x"), Offset: offset + 1}}, offset+2)
		}()
		for {
			select {
			case err := <-written:
				require.NoError(t, err)
				offset += 2
				return false
			case <-time.After(500 * time.Millisecond):
				if disk.waits.Load() {
					return true
				}
			}
		}
	}
	round := 0
	for ; !write(strconv.Itoa(round)); round++ {
		require.Less(t, round, 100, "nothing waits for a compaction")
		flushes := disk.flushes.Load()
		require.NoError(t, s.FlushSoon())
		testkit.WaitFor(t, "the flush", func() bool { return disk.flushes.Load() > flushes })
	}
	seen := make(chan string, 1)
	for range 100 {
		go func() { seen <- read() }()
		select {
		case value := <-seen:
			require.Equal(t, strconv.Itoa(round-1), value)
		case <-time.After(testkit.Patience):
			t.Fatal("a reader waits")
		}
	}
	require.Empty(t, written, "it waits")
	begin()
	require.NoError(t, <-written)
	require.Equal(t, strconv.Itoa(round), read())
}
