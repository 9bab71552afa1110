//go:build unix

package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimitOfOpenFiles(t *testing.T) {
	require.NoError(t, CheckFiles(1), "as this test runs")
	for partitions, least := range map[int32]int64{1: 512, 8: 512, 64: 2048, 200: 4096, 1000: 32768} {
		require.NoError(t, checkFiles(partitions, least), partitions)
	}
	err := checkFiles(200, 1024)
	require.EqualError(t, err, "200 partitions may need more open files than this process may have: allow 4096 "+
		"(LimitNOFILE of systemd, ulimit -n of a shell, --ulimit nofile of a container), and restart it")
	require.Error(t, checkFiles(1000, 16384))
	require.Equal(t, []int{64, 128, 4096, 4096}, []int{tableFiles(256), tableFiles(1024), tableFiles(32768),
		tableFiles(1 << 60)})
}
