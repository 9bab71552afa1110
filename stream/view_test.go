package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

func TestViewAppliesWholeTransactions(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	c.put("a=2")
	c.put("b=2", "end=2", "a=3")
	v.waitValue("end", "2")
	for _, key := range []string{"a", "b"} {
		v.requireValue(key, "2", "%s as of the end of the second transaction", key)
	}
	// The next process reads the held records again.
	v.stop()
	c.put("end=3")
	v = c.runView(v.dir)
	v.waitValue("end", "3")
	v.waitValue("a", "3")
}

// A transaction too large to be held is applied as it arrives, and nobody reads it before it is complete.
func TestViewOfAGiantTransaction(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t, func(v *View) { v.Follower.opts.MaxBatch, v.maxHeld = 50, 100 })
	c.Transact("t", testkit.Commit(),
		append(testkit.Records(testkit.Table, 0, 0, 201), testkit.Record(testkit.Table, 0, "end", "2"))...)
	for whole := false; !whole; {
		err := v.Read(0, func(s *store.Store, _ Copy) error {
			first, err := s.Find([]byte("key-000000"), func([]byte) error { return nil })
			whole = get(t, s, "end") == "2"
			require.Equal(t, whole, first, "read with only a part of the transaction")
			return err
		}, nil)
		if err != nil {
			require.ErrorContains(t, err, errGiant.Error())
		}
	}
	copy := v.copyOf(0)
	testkit.WaitFor(t, "streams to be notified that anything may have changed", func() bool {
		return slices.Equal(copy.now().published, []bool{true, true})
	})
	require.Equal(t, 2+202, copy.now().applied, "each record once")
	require.Equal(t, 2, copy.now().opened, "it caught up again")
}

func TestViewIsReadWhileKafkaIsUnavailable(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	c.Close()
	// For the time of several polls.
	for since := time.Now(); time.Since(since) < 3*viewTick; {
		v.requireValue("a", "1")
		require.NoError(t, v.Ready())
	}
}

// A corrupted store is rebuilt, while nobody reads it.
func TestViewOfACorruptedStore(t *testing.T) {
	t.Parallel()
	_, v := viewOfOne(t)
	before := v.copyOf(0).now().opened
	err := v.Read(0, func(s *store.Store, _ Copy) error {
		s.Distrust(errors.New("for a test"))
		return errors.New("checksum mismatch")
	}, nil)
	require.ErrorAs(t, err, new(*ViewNotReadyError))
	require.ErrorContains(t, err, "local state is corrupted")
	testkit.WaitFor(t, "the store to be reopened", func() bool { return v.copyOf(0).now().opened > before })
	v.waitValue("a", "1")
}

// While the view was stopped, retention deleted records that it had not read.
func TestViewOfALogThatGrewMeanwhile(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	v.stop()
	c.put("b=2", "end=2", "c=3", "end=3")
	require.NoError(t, c.DeleteRecords(testkit.Table, 0, 4))
	v = c.runView(v.dir)
	v.waitValue("c", "3")
	v.requireValue("a", "", "the view drops what the log no longer has")
}

func TestViewOfAnotherNumberOfPartitions(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	require.NoError(t, c.DeleteTopic(testkit.Table))
	c.Topic(testkit.Table, 2)
	c.put("a=2", "end=2") // as many as the view has of the old log
	c.Produce(testkit.Record(testkit.Table, 1, "end", "2"))
	v.waitPartitions(2)
	v.waitValue("end", "2")
	require.ErrorContains(t, v.Read(2, nil, nil), "the view does not include this partition")
}

func TestViewReaderKeepsItsSnapshot(t *testing.T) {
	c, v := viewOfOne(t)
	var r *store.Reader
	require.NoError(t, v.Read(0, func(s *store.Store, _ Copy) (err error) {
		r, err = s.NewReader()
		return err
	}, func() error {
		defer r.Close()
		c.put("a=2", "end=2")
		v.waitValue("a", "2")
		var have strings.Builder
		err := r.Scan([]byte("a"), []byte("f"), func(key, value []byte) (bool, error) {
			fmt.Fprintf(&have, "%s=%s ", key, value)
			return true, nil
		})
		require.Equal(t, "a=1 end=1 ", have.String())
		return err
	}))
}

// While a topic is recreated, readers get the content of the log that the store names.
func TestViewOfARecreatedTopic(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	read := func() (id kafka.LogID, value string, err error) {
		err = v.Read(0, func(s *store.Store, _ Copy) error {
			id = s.LogID()
			_, err = s.Find([]byte("end"), func(v []byte) error { value = string(v); return nil })
			return err
		}, nil)
		return id, value, err
	}
	first, _, err := read()
	require.NoError(t, err)
	c.put("held=1")
	testkit.WaitFor(t, "a record to be held", func() bool { return v.copyOf(0).now().asked == 1 })
	c.recreate()
	c.put("a=2", "end=2") // as many as the view has of the old log
	testkit.WaitFor(t, "the new log", func() bool {
		id, value, err := read()
		if err == nil {
			require.Equal(t, id == first, value == "1", "%q is not from the reported log", value)
		}
		return err == nil && id != first
	})
	v.requireValue("held", "", "the held record is from the old log")
}

// A truncated log may have grown to its old length again.
func TestViewOfATruncatedLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	c.Topic(testkit.Table, 1)
	require.NoError(t, c.MoveTopicPartition(testkit.Table, 0, 0))
	c.put("a=1", "end=1")
	v := c.runView(t.TempDir())
	v.waitValue("a", "1")
	// so that the client has read an epoch
	c.put("a=2", "end=2")
	v.waitValue("a", "2")
	copy := v.copyOf(0)
	require.Equal(t, 1, copy.now().opened)
	lost := c.losingData(1)
	lost.Store(true)
	require.NoError(t, c.MoveTopicPartition(testkit.Table, 0, 1))
	testkit.WaitFor(t, "the copy to be rebuilt", func() bool { return copy.now().opened > 1 })
	lost.Store(false)
	v.waitValue("a", "2")
	testkit.WaitFor(t, "streams to be notified that anything may have changed", func() bool {
		told := copy.now().published
		return len(told) > 0 && told[len(told)-1]
	})
	require.GreaterOrEqual(t, copy.now().applied, 2*4, "everything was read again")
}

func TestViewOfADirectoryThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 2)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "1"), testkit.Record(testkit.Table, 1, "end", "1"))
	dir := t.TempDir()
	in := filepath.Join(dir, testkit.Table, "1")
	require.NoError(t, os.MkdirAll(filepath.Dir(in), 0o755))
	require.NoError(t, os.WriteFile(in, nil, 0o644))
	v := c.runView(dir)
	v.waitValue("end", "1")
	testkit.WaitFor(t, "the reason", func() bool {
		err := v.Read(1, nil, nil)
		return err != nil && strings.Contains(err.Error(), "opening local state in "+in)
	})
	require.NoError(t, v.Read(0, nil, nil))
	require.NoError(t, os.Remove(in))
	testkit.WaitFor(t, "the other partition", func() bool { return v.Ready() == nil })
}

// The store and the state of the Copy are read together: nobody reads between Commit and Applied.
func TestViewIsNotReadBetweenWriteAndApplied(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	var applied, through atomic.Bool
	read := make(chan error, 1)
	between := func() {
		go func() {
			err := v.Read(0, func(*store.Store, Copy) error {
				if !applied.Load() {
					return errors.New("read before it was known what had been written")
				}
				return nil
			}, nil)
			through.Store(true)
			read <- err
		}()
		testkit.WaitFor(t, "the reader to wait or to finish", func() bool {
			return through.Load() || strings.Contains(strings.Join(testkit.Goroutines(t, "(*viewPartition).read"),
				"\n"), "RWMutex).RLock")
		})
		applied.Store(true)
	}
	once := sync.OnceFunc(between)
	v.copyOf(0).whenApplied.Store(&once)
	c.put("end=2")
	require.NoError(t, <-read)
	v.waitValue("end", "2")
}

func TestLogWasRewound(t *testing.T) {
	require.True(t, logWentBack(fmt.Errorf("following: %w", &kgo.ErrDataLoss{})))
	require.True(t, logWentBack(fmt.Errorf("following: %w", kerr.OffsetOutOfRange)))
	for _, err := range []error{nil, errMore, errGiant, kafka.ErrRecreated, kerr.NotLeaderForPartition,
		context.DeadlineExceeded} {
		require.False(t, logWentBack(err), "%v", err)
	}
}

// slowDisk blocks the writes of compactions until begin is closed.
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

// readyPartition returns a partition of a view that has read its log, on a file system.
func readyPartition(t *testing.T, fs vfs.FS) *viewPartition {
	stores := store.NewSetOn(fs, "state", 1<<20, testkit.Log())
	t.Cleanup(stores.Close)
	stores.MemtableBytes = 1 << 20
	options := ViewOptions{Topic: testkit.Table, Stores: stores, Copy: func(int32) Copy { return &testCopy{} }}
	p := newViewPartition(NewView(options, testkit.Log()), Assignment{Topic: testkit.Table, Partitions: 1})
	require.NoError(t, p.store.Open())
	t.Cleanup(func() { require.NoError(t, p.store.Close()) })
	p.ready = true
	return p
}

// Records before and between which others may be missing are applied with all up to the end that the log had then,
// however much is written meanwhile.
func TestViewOfACompactedLog(t *testing.T) {
	p := readyPartition(t, vfs.NewMem())
	end := func() string { return get(t, p.store, "end") }
	take := func(offset, end int64, gap bool) {
		rec := &kgo.Record{Key: []byte("end"), Value: []byte(strconv.FormatInt(offset, 10)), Offset: offset}
		require.NoError(t, p.take([]*kgo.Record{rec}, offset+1, end, gap))
	}
	take(1, 10, false)
	require.Equal(t, "1", end())
	take(4, 10, true)
	take(6, 20, false)
	require.Equal(t, "1", end(), "what was removed has later records, up to offset 10")
	take(9, 30, false)
	require.Equal(t, "9", end(), "the end at that time is reached")
	take(10, 40, false)
	require.Equal(t, "10", end())
}

// A readable partition that is opened again, several fetches behind, shows nothing between its old and its new end.
func TestViewThatIsOpenedAgainShowsOnlyItsEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.put("end=1")
	p := readyPartition(t, vfs.NewMem())
	p.view.opts.Clients, p.of.Opening = c.kafka, func(int64, int64) {}
	open := func() {
		_, err := p.Open(testkit.Context(t))
		require.NoError(t, err)
		p.Close()
	}
	open()
	var shown []string
	applied := func() { shown = append(shown, get(t, p.store, "end")) }
	p.copy.(*testCopy).whenApplied.Store(&applied)
	large := make([]byte, 500_000)
	for i := range 20 { // a fetch has 4 MiB
		_, _ = rand.Read(large)
		c.put("a="+string(large), fmt.Sprint("end=", i+2))
	}
	open()
	require.Equal(t, []string{"1", "21"}, slices.Compact(shown))
}

// While nothing can be written, readers read the previous content.
func TestReadersDoNotWaitForCompactions(t *testing.T) {
	disk := &slowDisk{FS: vfs.NewMem(), begin: make(chan struct{})}
	begin := sync.OnceFunc(func() { close(disk.begin) })
	p := readyPartition(t, disk)
	defer begin()
	read := func() (value string) {
		require.NoError(t, p.read(func(s *store.Store, _ Copy) error {
			value = strings.TrimSpace(get(t, s, "a"))
			return nil
		}, nil))
		return value
	}
	offset, written := int64(0), make(chan error, 1)
	write := func(value string) (waits bool) {
		value += strings.Repeat(" ", 1<<20) // large enough to be flushed at once
		go func() {
			written <- p.take([]*kgo.Record{{Key: []byte("a"), Value: []byte(value), Offset: offset},
				{Key: []byte("end"), Value: []byte("x"), Offset: offset + 1}}, offset+2, offset+2, false)
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
	round, flushes := 0, disk.flushes.Load()
	for ; !write(strconv.Itoa(round)); round++ {
		require.Less(t, round, 100, "no write waits for a compaction")
		testkit.WaitFor(t, "the flush", func() bool { return disk.flushes.Load() > flushes })
		flushes = disk.flushes.Load()
	}
	seen := make(chan string, 1)
	for range 100 {
		go func() { seen <- read() }()
		require.Equal(t, strconv.Itoa(round-1), testkit.Receive(t, seen, "a reader must end"))
	}
	require.Empty(t, written, "the write waits")
	begin()
	require.NoError(t, <-written)
	require.Equal(t, strconv.Itoa(round), read())
}
