package stream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// testCopy keeps records under their keys; a transaction of its ends with the key "end".
type testCopy struct {
	whenApplied atomic.Pointer[func()]

	mu struct {
		sync.Mutex
		opened    int
		applied   int // records
		asked     int // of how many records it was last asked what is whole
		published []bool
	}
}

func (c *testCopy) Open(*store.Store) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.opened++
	return nil
}

func (c *testCopy) timesOpened() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.opened
}

func (c *testCopy) Whole(records []*kgo.Record) int {
	c.mu.Lock()
	c.mu.asked = len(records)
	c.mu.Unlock()
	for i := len(records); i > 0; i-- {
		if string(records[i-1].Key) == "end" {
			return i
		}
	}
	return 0
}

func (c *testCopy) Apply(_ *store.Store, w *store.Write, records []*kgo.Record) error {
	for _, rec := range records {
		if err := w.Set(rec.Key, rec.Value); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.applied += len(records)
	return nil
}

func (c *testCopy) Applied() {
	if f := c.whenApplied.Load(); f != nil {
		(*f)()
	}
}

func (c *testCopy) Published(anew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.published = append(c.mu.published, anew)
}

// told is what Published was called with.
func (c *testCopy) told() []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.published)
}

// testView is a view of table that runs.
type testView struct {
	*View
	t      testing.TB
	mu     sync.Mutex
	copies map[int32]*testCopy // the newest of each partition
	stop   func()
}

func (c *cluster) runView(dir string, change ...func(*View)) *testView {
	stores := store.NewSet(dir, 8<<20, testkit.Log())
	v := &testView{t: c.t, copies: map[int32]*testCopy{}}
	v.View = NewView(ViewOptions{Kafka: c.kafka, Topic: testkit.Table, Stores: stores, Copy: func(p int32) Copy {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.copies[p] = &testCopy{}
		return v.copies[p]
	}}, testkit.Log())
	for _, f := range change {
		f(v.View)
	}
	c.t.Cleanup(stores.Close)
	v.stop = testrun.Start(c.t, "the view", testkit.Patience, v.Run)
	return v
}

func (v *testView) copyOf(p int32) *testCopy {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.copies[p]
}

// value reads a key of partition 0.
func (v *testView) value(key string) (value string, err error) {
	err = v.Read(0, func(s *store.Store, _ Copy) error {
		_, err := s.Find([]byte(key), func(b []byte) error {
			value = string(b)
			return nil
		})
		return err
	}, nil)
	return value, err
}

func (v *testView) waitValue(key, want string) {
	v.t.Helper()
	var have string
	var err error
	testkit.WaitFor(v.t, fmt.Sprintf("%s=%s (last: %q %v)", key, want, have, err), func() bool {
		have, err = v.value(key)
		return err == nil && have == want
	})
}

// waitPartitions waits until the view knows of n partitions, and has all of them.
func (v *testView) waitPartitions(n int32) {
	v.t.Helper()
	testkit.WaitFor(v.t, fmt.Sprintf("%d partitions", n), func() bool {
		have, err := v.Partitions()
		return err == nil && have == n && v.Ready() == nil
	})
}

// viewOfOne is a view that runs, of a topic of one partition in which a is 1.
func viewOfOne(t *testing.T) (*cluster, *testView) {
	t.Helper()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "a", "1"), testkit.Record(testkit.Table, 0, "end", "1"))
	v := c.runView(t.TempDir())
	v.waitValue("a", "1")
	return c, v
}

func TestViewAppliesWholeTransactions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "a", "1"), testkit.Record(testkit.Table, 0, "end", "1"))
	dir := t.TempDir()
	v := c.runView(dir)
	v.waitValue("a", "1")
	c.Produce(testkit.Record(testkit.Table, 0, "a", "2"))
	c.Produce(testkit.Record(testkit.Table, 0, "b", "2"), testkit.Record(testkit.Table, 0, "end", "2"), testkit.Record(testkit.Table, 0, "a", "3"))
	v.waitValue("end", "2")
	for key, want := range map[string]string{"a": "2", "b": "2"} {
		have, err := v.value(key)
		require.NoError(t, err)
		require.Equal(t, want, have, "%s as of the end of the second", key)
	}
	// What was held is read again by the next process.
	v.stop()
	c.Produce(testkit.Record(testkit.Table, 0, "end", "3"))
	v = c.runView(dir)
	v.waitValue("end", "3")
	v.waitValue("a", "3")
}

// A transaction too large to be held is applied as it comes, and nobody reads it until
// it is whole.
func TestViewOfAGiantTransaction(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "1"))
	v := c.runView(t.TempDir(), func(v *View) { v.follower.opts.MaxBatch, v.maxHeld = 50, 100 })
	v.waitValue("end", "1")
	c.Transact("t", testkit.Commit(), append(testkit.Records(testkit.Table, 0, 0, 201), testkit.Record(testkit.Table, 0, "end", "2"))...)
	for whole := false; !whole; {
		err := v.Read(0, func(s *store.Store, _ Copy) error {
			first, err := s.Has("key-000000")
			last, _ := s.Get("end")
			whole = string(last) == "2"
			require.Equal(t, whole, first, "read with only a part of the transaction")
			return err
		}, nil)
		if err != nil {
			require.ErrorContains(t, err, errGiant.Error())
		}
	}
	copy := v.copyOf(0)
	testkit.WaitFor(t, "streams to be told that anything may have changed", func() bool { return slices.Equal(copy.told(), []bool{true, true}) })
	copy.mu.Lock()
	defer copy.mu.Unlock()
	require.Equal(t, 1+202, copy.mu.applied, "each record once")
	require.Equal(t, 2, copy.mu.opened, "it was caught up anew")
}

func TestViewIsReadWhileKafkaIsAway(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	c.Close()
	// For as long as several polls take.
	for since := time.Now(); time.Since(since) < 3*viewTick; {
		have, err := v.value("a")
		require.NoError(t, err)
		require.Equal(t, "1", have)
		require.NoError(t, v.Ready())
	}
}

// A copy that does not read right is made anew, while nobody reads it.
func TestViewOfACorruptedStore(t *testing.T) {
	t.Parallel()
	_, v := viewOfOne(t)
	before := v.copyOf(0).timesOpened()
	require.NoError(t, v.Read(0, func(s *store.Store, _ Copy) error {
		s.Distrust(errors.New("for a test"))
		return nil
	}, nil))
	testkit.WaitFor(t, "the store to be opened anew", func() bool { return v.copyOf(0).timesOpened() > before })
	v.waitValue("a", "1")
}

// Between the last read and the next one the log went on so far that what follows the
// copy is gone.
func TestViewOfALogThatWentOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	dir := t.TempDir()
	c.Produce(testkit.Record(testkit.Table, 0, "a", "1"), testkit.Record(testkit.Table, 0, "end", "1"))
	v := c.runView(dir)
	v.waitValue("a", "1")
	v.stop()
	c.Produce(testkit.Record(testkit.Table, 0, "b", "2"), testkit.Record(testkit.Table, 0, "end", "2"), testkit.Record(testkit.Table, 0, "c", "3"), testkit.Record(testkit.Table, 0, "end", "3"))
	require.NoError(t, c.DeleteRecords(testkit.Table, 0, 4))
	v = c.runView(dir)
	v.waitValue("c", "3")
	have, err := v.value("a")
	require.NoError(t, err)
	require.Empty(t, have, "what the log does not have any more is not in the copy")
}

func TestViewOfAnotherNumberOfPartitions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "1"))
	v := c.runView(t.TempDir())
	v.waitValue("end", "1")
	require.NoError(t, c.DeleteTopic(testkit.Table))
	c.Topic(testkit.Table, 2)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "2"), testkit.Record(testkit.Table, 1, "end", "2"))
	v.waitPartitions(2)
	v.waitValue("end", "2")
	require.ErrorContains(t, v.Read(2, nil, nil), "there is no copy of this partition yet")
}

func TestViewReaderKeepsItsSnapshot(t *testing.T) {
	c, v := viewOfOne(t)
	var r *store.Reader
	require.NoError(t, v.Read(0, func(s *store.Store, _ Copy) (err error) {
		r, err = s.NewReader()
		return err
	}, func() error {
		defer r.Close()
		c.Produce(testkit.Record(testkit.Table, 0, "a", "2"), testkit.Record(testkit.Table, 0, "end", "2"))
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

// While a topic is made anew, what is read is of the log that the store names.
func TestViewOfATopicMadeAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "1"))
	v := c.runView(t.TempDir())
	v.waitValue("end", "1")
	read := func() (id kafka.LogID, value string, err error) {
		err = v.Read(0, func(s *store.Store, _ Copy) error {
			id = s.LogID()
			b, err := s.Get("end")
			value = string(b)
			return err
		}, nil)
		return id, value, err
	}
	first, _, err := read()
	require.NoError(t, err)
	c.Produce(testkit.Record(testkit.Table, 0, "held", "1"))
	testkit.WaitFor(t, "a record to be held", func() bool {
		copy := v.copyOf(0)
		copy.mu.Lock()
		defer copy.mu.Unlock()
		return copy.mu.asked == 1
	})
	require.NoError(t, c.DeleteTopic(testkit.Table))
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "2"))
	testkit.WaitFor(t, "the new log", func() bool {
		id, value, err := read()
		if err == nil {
			require.Equal(t, id == first, value == "1", "%q is not of the log that is named", value)
		}
		return err == nil && id != first
	})
	held, err := v.value("held")
	require.NoError(t, err)
	require.Empty(t, held, "what was held is of the old log")
}

// A log that lost its end may have another one by now, as long as before.
func TestViewOfALogThatWasCutOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	c.Topic(testkit.Table, 1)
	require.NoError(t, c.MoveTopicPartition(testkit.Table, 0, 0))
	c.Produce(testkit.Record(testkit.Table, 0, "a", "1"), testkit.Record(testkit.Table, 0, "end", "1"))
	v := c.runView(t.TempDir())
	v.waitValue("a", "1")
	c.Produce(testkit.Record(testkit.Table, 0, "a", "2"), testkit.Record(testkit.Table, 0, "end", "2")) // so that the client has read an epoch
	v.waitValue("a", "2")
	copy := v.copyOf(0)
	require.Equal(t, 1, copy.timesOpened())
	lost := c.losingData(1)
	lost.Store(true)
	require.NoError(t, c.MoveTopicPartition(testkit.Table, 0, 1))
	testkit.WaitFor(t, "a copy made anew", func() bool { return copy.timesOpened() > 1 })
	lost.Store(false)
	v.waitValue("a", "2")
	testkit.WaitFor(t, "streams to be told that anything may have changed", func() bool { told := copy.told(); return len(told) > 0 && told[len(told)-1] })
	copy.mu.Lock()
	defer copy.mu.Unlock()
	require.GreaterOrEqual(t, copy.mu.applied, 2*4, "all was read again")
}

// A partition whose folder cannot be opened is no reason for others to answer nothing.
func TestViewOfAFolderThatCannotBeOpened(t *testing.T) {
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

// What is written and what the copy knows of it are read together: nobody reads between
// the two.
func TestViewIsNotReadBetweenWriteAndApplied(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "1"))
	v := c.runView(t.TempDir())
	v.waitValue("end", "1")
	var applied, through atomic.Bool
	read := make(chan error, 1)
	between := func() {
		go func() {
			err := v.Read(0, func(*store.Store, Copy) error {
				if !applied.Load() {
					return errors.New("read before it was known what was written")
				}
				return nil
			}, nil)
			through.Store(true)
			read <- err
		}()
		testkit.WaitFor(t, "the reader to wait, or to be through", func() bool {
			return through.Load() || strings.Contains(strings.Join(testkit.Goroutines(t, "(*viewPartition).read"), "\n"), "RWMutex).RLock")
		})
		applied.Store(true)
	}
	once := sync.OnceFunc(between)
	v.copyOf(0).whenApplied.Store(&once)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "2"))
	require.NoError(t, <-read)
	v.waitValue("end", "2")
}

func TestLogWentBack(t *testing.T) {
	require.True(t, logWentBack(fmt.Errorf("following: %w", &kgo.ErrDataLoss{})))
	require.True(t, logWentBack(fmt.Errorf("following: %w", kerr.OffsetOutOfRange)))
	for _, err := range []error{nil, errMore, errGiant, kafka.ErrRecreated, kerr.NotLeaderForPartition, context.DeadlineExceeded} {
		require.False(t, logWentBack(err), "%v", err)
	}
}
