package stack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// ObjectStore is rclone, which serves a directory by the S3 protocol. Each directory in Files is a bucket.
type ObjectStore struct {
	*Server
	URL   string
	Files string
}

// Keys are of the ObjectStore, as variables for its clients.
var Keys = map[string]string{"AWS_ACCESS_KEY_ID": "kudos", "AWS_SECRET_ACCESS_KEY": "not-a-secret",
	"AWS_REGION": "us-east-1"}

// ObjectStoreForTest starts an object store with a bucket until the end of the test. root is the project's directory.
func ObjectStoreForTest(t testing.TB, root, bucket string) *ObjectStore {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "s3server")
	build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"build", "-C",
		filepath.Join(root, "integration", "s3server")}, ForTests(), []string{"-o", program, "."})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	s := &ObjectStore{Files: filepath.Join(dir, "files")}
	require.NoError(t, os.MkdirAll(filepath.Join(s.Files, bucket), 0o755))
	at := ReserveForTest(t)
	s.URL = "http://" + at
	s.Server = ProgramForTest(t, ProgramOptions{Name: "s3server", Path: program, Dir: dir, Log: testLog(t),
		Args: []string{"serve", "s3", "--config", "", "--addr", at, "--auth-key",
			Keys["AWS_ACCESS_KEY_ID"] + "," + Keys["AWS_SECRET_ACCESS_KEY"], s.Files},
		Probe: func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}})
	require.NoError(t, s.Start(t.Context()), fmt.Sprint("start ", program))
	return s
}
