package buffer

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

type disk map[string]string

// open returns a buffer in front of the disk, with all of its keys in the filter.
func (d disk) open(m *Memory) *Buffer {
	b := m.Open(0, func(each func(key []byte) bool) error {
		for key := range d {
			each([]byte(key))
		}
		return nil
	})
	<-b.build.done
	return b
}

func (d disk) take(sp *Spill) error {
	return sp.Sorted(func(key, value []byte) error {
		if d[string(key)] = string(value); value == nil {
			delete(d, string(key))
		}
		return nil
	})
}

// put writes keys, with themselves as values, and spills when the buffer is full.
func (d disk) put(t *testing.T, b *Buffer, keys ...string) {
	b.Stage(len(keys), func(i int) (key, value []byte) { return []byte(keys[i]), []byte(keys[i]) })
	b.Seal()
	if b.Full() {
		require.NoError(t, b.Settle())
		b.Spill(d.take)
	}
}

// lookUp returns which of keys are found; asked are those that were looked up on disk.
func (d disk) lookUp(t *testing.T, b *Buffer, keys ...string) (found map[string]string, asked []string) {
	found = map[string]string{}
	missing, err := b.Lookup(len(keys),
		func(i int) []byte { return []byte(keys[i]) },
		func(i int, value []byte) error { found[keys[i]] = string(value); return nil })
	require.NoError(t, err)
	for i := range missing {
		key, place := b.Missing(i)
		require.Equal(t, keys[place], string(key))
		asked = append(asked, string(key))
		if value, ok := d[string(key)]; ok {
			found[string(key)] = value
		}
	}
	return found, asked
}

// The filter is used when it is complete; before, the disk is asked for every key.
func TestFilterIsUsedOnceComplete(t *testing.T) {
	m := NewMemory(4 << 10)
	d := disk{"a": "a", "b": "b"}
	b := d.open(m)
	whole := b.filter
	underWay := &filterBuild{stop: make(chan struct{}), done: make(chan struct{})}
	finish := sync.OnceFunc(func() { close(underWay.done) })
	defer finish() // whatever fails: Close waits for it
	b.build, b.filter = underWay, newKeyFilter(0)
	all := func() []string {
		found, asked := d.lookUp(t, b, "x", "a")
		if len(asked) > 0 {
			require.Equal(t, []string{"a", "x"}, asked, "in order")
			require.Equal(t, map[string]string{"a": "a"}, found)
		}
		return asked
	}
	require.Len(t, all(), 2, "being built")
	finish()
	require.Len(t, all(), 2, "the build failed")
	underWay.ok = true
	require.Empty(t, all(), "the filter decides, and it is empty")
	b.filter = whole
	_, asked := d.lookUp(t, b, "x", "a")
	require.Equal(t, []string{"a"}, asked)
	b.Close()
}

// All buffers together stay within their memory, however many they are, and the last writes are read from there.
func TestBuffersShareTheirMemory(t *testing.T) {
	const bytes = 64 << 10
	m := NewMemory(bytes)
	var keys []string
	for i := range 3000 {
		keys = append(keys, fmt.Sprint("key ", i))
	}
	held := func(b *Buffer) (held int) {
		for _, m := range append(slices.Clone(b.older), b.recent, b.spill.entries) {
			held += m.held()
		}
		return held
	}
	var all []*Buffer
	var disks []disk
	for n := range 3 {
		d := disk{}
		b := d.open(m)
		all, disks = append(all, b), append(disks, d)
		for _, key := range keys {
			d.put(t, b, key)
		}
		together := 0
		for i, b := range all {
			require.NoError(t, b.Settle())
			require.NotEmpty(t, b.older)
			together += held(b)
			found, asked := disks[i].lookUp(t, b, keys...)
			require.Len(t, found, len(keys))
			require.Less(t, len(asked), len(keys))
			for _, key := range keys {
				require.Equal(t, key, found[key])
			}
		}
		if n == 0 {
			require.Greater(t, together, bytes/2, "spilled keys stay readable")
		}
		require.LessOrEqual(t, b.recent.held(), bytes/(n+1)/spillsPerShare)
	}
	for _, key := range keys { // the earlier buffers drop what exceeds their share
		for i, b := range all {
			disks[i].put(t, b, key)
		}
	}
	together := 0
	for _, b := range all {
		require.NoError(t, b.Settle())
		together += held(b)
		b.Close()
	}
	require.LessOrEqual(t, together, bytes)
	require.Zero(t, m.open.Load())
}
