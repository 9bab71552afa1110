package stream

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/store"
)

// testCopy keeps records under their keys; its transactions end with the key "end".
type testCopy struct {
	whenApplied atomic.Pointer[func()]

	mu   sync.Mutex
	seen copySeen
}

type copySeen struct {
	opened    int
	applied   int    // records
	asked     int    // number of records in the last call of Whole
	published []bool // arguments of Published
}

func (c *testCopy) note(f func(*copySeen)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.seen)
}

func (c *testCopy) now() (now copySeen) {
	c.note(func(s *copySeen) { now = *s; now.published = slices.Clone(s.published) })
	return now
}

func (c *testCopy) Open(*store.Store) error { c.note(func(s *copySeen) { s.opened++ }); return nil }

func (c *testCopy) Whole(records []*kgo.Record) int {
	c.note(func(s *copySeen) { s.asked = len(records) })
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
	c.note(func(s *copySeen) { s.applied += len(records) })
	return nil
}

func (c *testCopy) Applied() {
	if f := c.whenApplied.Load(); f != nil {
		(*f)()
	}
}

func (c *testCopy) Published(recreated bool) {
	c.note(func(s *copySeen) { s.published = append(s.published, recreated) })
}

type testView struct {
	*View
	t      testing.TB
	dir    string
	mu     sync.Mutex
	copies map[int32]*testCopy // the newest of each partition
	stop   func()
}

func (c *cluster) runView(dir string, change ...func(*View)) *testView {
	stores := store.NewSet(dir, 8<<20, testkit.Log())
	v := &testView{t: c.t, dir: dir, copies: map[int32]*testCopy{}}
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

// pinned calls use with the store of partition 0 while nothing is written.
func (v *testView) pinned(use func(*store.Store)) error {
	return v.Read(0, func(s *store.Store, _ Copy) error { use(s); return nil }, nil)
}

func (v *testView) value(key string) (value string, err error) {
	err = v.Read(0, func(s *store.Store, _ Copy) error {
		_, err := s.Find([]byte(key), func(b []byte) error { value = string(b); return nil })
		return err
	}, nil)
	return value, err
}

func (v *testView) requireValue(key, want string, why ...any) {
	v.t.Helper()
	have, err := v.value(key)
	require.NoError(v.t, err)
	require.Equal(v.t, want, have, why...)
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

func (v *testView) waitPartitions(n int32) {
	v.t.Helper()
	testkit.WaitFor(v.t, fmt.Sprintf("%d partitions", n), func() bool {
		have, err := v.Partitions()
		return err == nil && have == n && v.Ready() == nil
	})
}

// viewOfOne returns a running view of a topic with one partition, in which a is 1.
func viewOfOne(t *testing.T, change ...func(*View)) (*cluster, *testView) {
	t.Helper()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.put("a=1", "end=1")
	v := c.runView(t.TempDir(), change...)
	v.waitValue("a", "1")
	return c, v
}

func (c *cluster) put(pairs ...string) {
	var records []*kgo.Record
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		records = append(records, testkit.Record(testkit.Table, 0, key, value))
	}
	c.Produce(records...)
}
