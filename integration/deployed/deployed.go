// Package deployed lets tests read deployment files like the tools that they are for. Given a path, it returns the
// objects, image or files that integration/deploycheck reads there; whatever the tools would reject fails the test.
package deployed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"kudos/integration/tier"
)

var (
	reads       sync.Map       // by path: output of deploycheck, cached for all tests
	environment = os.Environ() // before a test replaces it with an image's
)

// Read reads a path relative to the module's root. It is for tests of `make verify` in directories directly below it.
func Read[T any](t testing.TB, path string) []T {
	t.Helper()
	tier.Verify(t)
	if !filepath.IsAbs(path) {
		var err error
		if path, err = filepath.Abs(filepath.Join("..", path)); err != nil {
			t.Fatal(err)
		}
	}
	read, _ := reads.LoadOrStore(path, sync.OnceValues(func() ([]byte, error) { return deploycheck(path) }))
	out, err := read.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	var byPath map[string][]T
	if err := json.Unmarshal(out, &byPath); err != nil || len(byPath[path]) == 0 {
		t.Fatalf("%s: nothing there, or not as wanted: %v", path, err)
	}
	return byPath[path]
}

func deploycheck(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // the first time, compiling takes minutes
	defer cancel()
	var stderr bytes.Buffer
	check := exec.CommandContext(ctx, "go", "run", ".", path)
	check.Dir, check.Env, check.Stderr = "../integration/deploycheck", environment, &stderr
	out, err := check.Output()
	if err != nil {
		return nil, fmt.Errorf("deploycheck: %w\n%s", err, stderr.Bytes())
	}
	return out, nil
}
