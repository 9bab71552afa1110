package store

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

const crashDir = "KUDOS_TEST_CRASH_DIR"

// TestStoreCrashChild is the process that is killed below: it writes forever and reports the start of each flush.
func TestStoreCrashChild(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("run by TestStoreAfterACrash")
	}
	s := openStore(t, dir)
	first := int64(0)
	if offset, ok := s.Offset(); ok {
		first = offset + 1
	}
	var flushed <-chan struct{}
	for i := first; ; i++ {
		w := s.NewWrite()
		require.NoError(t, w.Set(fmt.Appendf(nil, "batch-%08d", i), make([]byte, 100)))
		require.NoError(t, w.Set([]byte("latest"), strconv.AppendInt(nil, i, 10)))
		require.NoError(t, w.Commit(i))
		switch i % 100 {
		case 0:
			var err error
			flushed, err = s.db.AsyncFlush()
			require.NoError(t, err)
		case 50:
			if flushed != nil {
				<-flushed
			}
			fmt.Println("flushed up to a batch before", i)
		}
	}
}

// After a crash the content is that of exactly the offset that is left, with everything before it and nothing after.
func TestStoreAfterACrash(t *testing.T) {
	dir := t.TempDir()
	before := int64(-1)
	for round := range 2 {
		runUntilKilled(t, dir, 3+2*round)
		s := openStore(t, dir)
		offset, ok := s.Offset()
		require.True(t, ok, "round %d: flushed data is missing", round)
		require.Greater(t, offset, before, "round %d", round)
		require.Equal(t, strconv.FormatInt(offset, 10), get(t, s, "latest"), "round %d: data and offset differ", round)
		for i := offset; i >= 0; i-- {
			require.NotEmpty(t, get(t, s, fmt.Sprintf("batch-%08d", i)),
				"round %d: batch %d is missing below offset %d", round, i, offset)
		}
		require.Empty(t, get(t, s, fmt.Sprintf("batch-%08d", offset+1)), "round %d: there is data past offset %d",
			round, offset)
		require.NoError(t, s.Close())
		before = offset
	}
}

func runUntilKilled(t *testing.T, dir string, n int) {
	cmd := exec.CommandContext(testkit.Context(t), os.Args[0], "-test.run=^TestStoreCrashChild$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for range n {
		require.True(t, lines.Scan(), "the child exited by itself")
	}
	require.NoError(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait(), "killed")
}
