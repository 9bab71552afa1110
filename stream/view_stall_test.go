package stream

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestReadersDoNotWaitForCompactions: while nothing can be written they read what was there
// before.
func TestReadersDoNotWaitForCompactions(t *testing.T) {
	s := openStore(t, t.TempDir(), testLogID)
	require.NoError(t, s.db.Close()) // and opened again, to compact only when it is told to
	opts := s.pebbleOptions()
	opts.DisableAutomaticCompactions = true
	db, err := pebble.Open(s.dir, opts)
	require.NoError(t, err)
	s.db = db
	offset := int64(0)
	for ; s.db.Metrics().Levels[0].Sublevels < l0Stop-2; offset++ {
		require.Less(t, offset, int64(3*l0Stop))
		put(t, s, offset, "before", "a", "b")
		require.NoError(t, s.flushPebble())
	}

	v := NewView(ViewOptions{Topic: table, Copy: func(int32) Copy { return &testCopy{} }}, testLog())
	p := newViewPartition(v, 0, 1, s)
	p.ready = true
	read := func() (value string) {
		require.NoError(t, p.read(func(s *Store, _ Copy) error {
			_, err := s.Find([]byte("a"), func(b []byte) error { value = string(b); return nil })
			return err
		}, nil))
		return value
	}
	done := make(chan error, 1)
	go func() {
		done <- p.take([]*kgo.Record{{Key: []byte("a"), Value: []byte("after"), Offset: offset}, {Key: []byte("end"), Value: []byte("x"), Offset: offset + 1}}, offset+2)
	}()
	for waited := time.Now(); time.Since(waited) < 5*compactionPause; {
		require.Equal(t, "abefore", read())
		require.Empty(t, done, "it waits")
	}
	require.NoError(t, s.db.Compact(t.Context(), []byte("_"), []byte("z"), false))
	require.NoError(t, <-done)
	require.Equal(t, "after", read())
}
