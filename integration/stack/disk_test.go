package stack

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/tier"
)

// TestDiskLosesPower proves the instrument: what was synced survives, what was not vanishes, also if another mount
// namespace keeps the file system for a while.
func TestDiskLosesPower(t *testing.T) {
	tier.Verify(t)
	Require(t, NeedDisk)
	dir := filepath.Join(t.TempDir(), "disk")
	d, err := NewDisk(dir)
	require.NoError(t, err)
	defer d.Close()
	f, err := os.Create(filepath.Join(dir, "synced"))
	require.NoError(t, err)
	for _, step := range []func() error{
		func() error { _, err := f.WriteString("a"); return err }, f.Sync,
		func() error { _, err := f.WriteString("b"); return err }, f.Close,
		func() error { return os.WriteFile(filepath.Join(dir, "unsynced"), nil, 0o644) },
		exec.Command("unshare", "--mount", "sh", "-c", "sleep 1 &").Run,
		func() error { return LosePower(&Server{disk: d}) }, d.mount,
	} {
		require.NoError(t, step())
	}
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.Equal(t, "a", string(text))
	require.NoFileExists(t, filepath.Join(dir, "unsynced"))
}
