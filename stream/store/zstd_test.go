package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// kudos does not compress with zstd, but Pebble is built with our implementation of it.
func TestPebbleReadsZstd(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 300_000) // larger than zstd's blocks, and grows when compressed
	_, _ = random.Read(noise)
	values := map[string][]byte{"noise": noise, "zeros": make([]byte, 300_000), "empty": {}}
	for i := range 1000 {
		values[fmt.Sprint("like-", i)] = bytes.Repeat([]byte("like"), i)
	}
	for _, profile := range []*block.CompressionProfile{block.ZstdCompression, block.BalancedCompression,
		block.GoodCompression} {
		t.Run(profile.Name, func(t *testing.T) {
			opts := &pebble.Options{FS: vfs.NewMem()}
			opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
				return pebble.UniformDBCompressionSettings(profile)
			})
			db, err := pebble.Open("store", opts)
			require.NoError(t, err)
			for key, value := range values {
				require.NoError(t, db.Set([]byte(key), value, pebble.NoSync))
			}
			require.NoError(t, db.Flush())
			require.NoError(t, db.Compact(t.Context(), []byte("a"), []byte("z"), false))
			require.Less(t, db.Metrics().Total().TablesSize, int64(1<<20), "not compressed")
			require.NoError(t, db.Close())
			db, err = pebble.Open("store", opts)
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			for key, value := range values {
				got, closer, err := db.Get([]byte(key))
				require.NoError(t, err, key)
				require.True(t, bytes.Equal(value, got), key)
				require.NoError(t, closer.Close())
			}
		})
	}
}
