package store

import (
	"testing"

	"github.com/lovoo/goka/storage"
	"github.com/stretchr/testify/require"
)

// walk returns the keys that Next leads to.
func walk(t testing.TB, it storage.Iterator) []string {
	var keys []string
	for it.Next() {
		v, err := it.Value()
		require.NoError(t, err)
		require.Equal(t, string(it.Key()), string(v))
		keys = append(keys, string(it.Key()))
	}
	require.NoError(t, it.Err())
	require.Nil(t, it.Key(), "an iterator at its end has no key")
	require.False(t, it.Next(), "an iterator at its end stays there")
	return keys
}

func iterate(t testing.TB, s *Store, start, limit []byte) storage.Iterator {
	it, err := s.IteratorWithRange(start, limit)
	require.NoError(t, err)
	t.Cleanup(it.Release)
	return it
}

func TestIterator(t *testing.T) {
	s := openStore(t, t.TempDir(), testLogID)
	it := iterate(t, s, nil, nil)
	require.Empty(t, walk(t, it), "an empty store")

	// The store's own key, "_local", lies in the middle.
	put(t, s, 3, "", "A", "B", "BA", "BB", "C", "_k", "_m", "a", "\xff", "\xff\xff")
	for name, c := range map[string]struct {
		start, limit []byte
		want         []string
	}{
		"all":                  {nil, nil, []string{"A", "B", "BA", "BB", "C", "_k", "_m", "a", "\xff", "\xff\xff"}},
		"prefix":               {[]byte("B"), nil, []string{"B", "BA", "BB"}},
		"prefix of one key":    {[]byte("BB"), nil, []string{"BB"}},
		"prefix of no key":     {[]byte("D"), nil, nil},
		"prefix without end":   {[]byte("\xff"), nil, []string{"\xff", "\xff\xff"}},
		"private key's prefix": {[]byte("_"), nil, []string{"_k", "_m"}},
		"private key itself":   {[]byte(localKey), nil, nil},
		"range":                {[]byte("B"), []byte("C"), []string{"B", "BA", "BB"}},
		"range up to a limit":  {nil, []byte("B"), []string{"A"}},
		"range over private":   {[]byte("_k"), []byte("a"), []string{"_k", "_m"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, walk(t, iterate(t, s, c.start, c.limit)))
		})
	}
}

func TestIteratorSeek(t *testing.T) {
	s := openStore(t, t.TempDir(), testLogID)
	put(t, s, 3, "", "A", "C", "_k", "_m")
	seek := func(it storage.Iterator, key string) string {
		if !it.Seek([]byte(key)) {
			require.NoError(t, it.Err())
			return ""
		}
		return string(it.Key())
	}
	it := iterate(t, s, nil, nil)
	require.Equal(t, "A", seek(it, ""))
	require.Equal(t, "A", seek(it, "A"))
	require.Equal(t, []string{"C", "_k", "_m"}, walk(t, it))
	require.Equal(t, "C", seek(it, "B"), "seeking goes back, too")
	require.Equal(t, "_m", seek(it, localKey), "the store's own key is no key")
	require.Empty(t, walk(t, it))
	require.Empty(t, seek(it, "b"))
	require.Empty(t, walk(t, it), "Next behind the end does not start over")

	require.NoError(t, s.Delete("_m"))
	require.Empty(t, seek(iterate(t, s, nil, nil), "_l"), "nothing but the store's own key is there")
	in := iterate(t, s, []byte("B"), []byte("_"))
	require.Equal(t, "C", seek(in, "A"), "a range bounds Seek")
	require.Empty(t, seek(in, "D"))
	in.Release()
	in.Release()
}

// TestIteratorsMerge: a view's iterator is goka's merge of those of its partitions,
// which calls Seek and takes Key, whatever goka's documentation says.
func TestIteratorsMerge(t *testing.T) {
	a, b := openStore(t, t.TempDir(), testLogID), openStore(t, t.TempDir(), testLogID)
	put(t, a, 1, "", "1", "3", "5")
	put(t, b, 1, "", "2", "4", "6")
	merged := storage.NewMultiIterator([]storage.Iterator{iterate(t, a, nil, nil), iterate(t, b, nil, nil)})
	keys := func() (keys []string) {
		for merged.Next() {
			keys = append(keys, string(merged.Key()))
		}
		require.NoError(t, merged.Err())
		return keys
	}
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, keys())
	require.True(t, merged.Seek([]byte("4")))
	require.Equal(t, []string{"4", "5", "6"}, keys())
	require.True(t, merged.Seek([]byte("2")))
	require.Equal(t, []string{"2", "3", "4", "5", "6"}, keys())
	require.False(t, merged.Seek([]byte("7")))
}

// TestIteratorSeesOneState: an iterator is a snapshot.
func TestIteratorSeesOneState(t *testing.T) {
	s := openStore(t, t.TempDir(), testLogID)
	put(t, s, 1, "", "a", "b")
	it := iterate(t, s, nil, nil)
	require.True(t, it.Next())
	put(t, s, 2, "-later", "a", "b", "c")
	require.Equal(t, []string{"b"}, walk(t, it))
}

// TestStorageConformance does to a Store what goka's own tests do to its storages.
func TestStorageConformance(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, testLogID)
	require.NoError(t, s.Open())
	has, err := s.Has("key")
	require.NoError(t, err)
	require.False(t, has)
	v, err := s.Get("key")
	require.NoError(t, err)
	require.Nil(t, v, "what is not there is nil and no error")

	require.NoError(t, s.Set("key", []byte("value")))
	require.Equal(t, "value", get(t, s, "key"))
	require.Error(t, s.Set("nil-value", nil))
	require.NoError(t, s.Set("empty", []byte{}))
	has, err = s.Has("empty")
	require.NoError(t, err)
	require.True(t, has, "an empty value is a value")
	require.NoError(t, s.Delete("key"))
	require.NoError(t, s.Delete("key"))
	has, err = s.Has("key")
	require.NoError(t, err)
	require.False(t, has)

	offset, err := s.GetOffset(-3)
	require.NoError(t, err)
	require.EqualValues(t, -3, offset, "goka's default while none is stored")
	require.NoError(t, s.SetOffset(100))
	require.NoError(t, s.MarkRecovered())
	require.NoError(t, s.SetOffset(101))
	require.NoError(t, s.SetOffset(101))
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	offset, err = s.GetOffset(-3)
	require.NoError(t, err)
	require.EqualValues(t, 101, offset)
	require.NoError(t, s.Close())
}

// TestStoreHandsCopiesOut: goka keeps values that Get returned.
func TestStoreHandsCopiesOut(t *testing.T) {
	s := openStore(t, t.TempDir(), testLogID)
	put(t, s, 1, "-1", "a")
	v, err := s.Get("a")
	require.NoError(t, err)
	put(t, s, 2, "-2", "a")
	require.NoError(t, s.db.Flush())
	require.Equal(t, "a-1", string(v))
	v[0] = 'x'
	require.Equal(t, "a-2", get(t, s, "a"))
}
