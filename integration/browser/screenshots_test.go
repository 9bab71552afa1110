package browser_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
)

// screenshotsVariable names the folder that the pictures of the README go to.
const screenshotsVariable = "KUDOS_TEST_SCREENSHOTS"

// TestScreenshots is `make screenshots`: `kudos dev` as a newcomer starts it, and a
// browser that looks at it for a few minutes.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv(screenshotsVariable)
	if folder == "" {
		t.Skipf("makes the pictures of the README, with %s=FOLDER (make screenshots)", screenshotsVariable)
	}
	stack.Require(t, stack.NeedBrowser)
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	free := "127.0.0.1:0"
	dev := stack.NewProgram(stack.ProgramOptions{
		Name: "dev", Path: shared.Kudos(t), Dir: dir,
		Args: []string{"dev", "--simulate", "2000", "--ready-file", ready, "--kafka-addr", free, "--mysql-addr", free,
			"--http-addr", free, "--reader-addr", free, "--admin-addr", free},
		Probe: func(context.Context) error { _, err := os.Stat(ready); return err },
	})
	require.NoError(t, dev.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, dev.Stop()) })
	text, err := os.ReadFile(ready)
	require.NoError(t, err)
	var at struct{ HTTP, Reader string }
	require.NoError(t, json.Unmarshal(text, &at))
	install(t)
	node(t, []string{"KUDOS_READER=http://" + at.Reader, "KUDOS_PRODUCER=http://" + at.HTTP, screenshotsVariable + "=" + folder}, "screenshots.mjs")
}
