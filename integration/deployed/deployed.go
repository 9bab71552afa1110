// Package deployed has tests read what is shipped to deploy kudos as those read it that it is for. In goes a path; out
// come the objects, image or files that integration/deploycheck reads there, which refuses what they would refuse.
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
	reads       sync.Map       // by path: what deploycheck prints, once for all tests
	environment = os.Environ() // before a test puts an image's in its place
)

// Read is for tests of `make verify` in folders at the module's root, which a relative path starts from.
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
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // compiling takes minutes, the first time
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
