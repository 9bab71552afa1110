package browser_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"kudos/integration/stack"
)

// shared are the servers that the tests of this package have in common.
var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

// binary builds the program once, into a folder that TestMain removes.
var (
	buildDir string
	binary   = sync.OnceValues(func() (string, error) {
		path := filepath.Join(buildDir, "kudos")
		out, err := exec.Command("go", "build", "-o", path, "../..").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
		return path, nil
	})
)

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "kudos-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := shared.Main(m)
	os.RemoveAll(buildDir)
	os.Exit(code)
}
