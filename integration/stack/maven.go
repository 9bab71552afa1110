package stack

import (
	"context"
	_ "embed" // the two pom files
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"

	"kudos/bench/child"
)

//go:embed kafka/pom.xml
var kafkaPOM []byte

//go:embed mysql/pom.xml
var mysqlPOM []byte

const lockRetry = 100 * time.Millisecond

// artifact is software that Maven downloads into this machine's cache, in a directory per version, atomically.
type artifact struct {
	name    string // such as "kafka"
	version string // the version in its POM
	pom     []byte
	args    []string // goal and properties for mvn
}

func kafkaArtifact() (artifact, error) {
	return newArtifact("kafka", kafkaPOM, "dependency:copy-dependencies")
}

func mysqlArtifact() (artifact, error) {
	arch, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if !ok || runtime.GOOS != "linux" {
		return artifact{}, fmt.Errorf("MySQL is not packaged for %s/%s: use MariaDB there", runtime.GOOS,
			runtime.GOARCH)
	}
	return newArtifact("mysql", mysqlPOM, "dependency:unpack", "-Darch="+arch)
}

func newArtifact(name string, pom []byte, args ...string) (artifact, error) {
	var project struct {
		Version string `xml:"version"`
	}
	if err := xml.Unmarshal(pom, &project); err != nil {
		return artifact{}, fmt.Errorf("read version in %s/pom.xml: %w", name, err)
	}
	return artifact{name: name, version: project.Version, pom: pom, args: args}, nil
}

func (a artifact) String() string { return a.name + "-" + a.version }

func (a artifact) dir() (path string, cached bool, err error) {
	root, err := cacheRoot()
	if err != nil {
		return "", false, err
	}
	path = filepath.Join(root, a.String())
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, false, nil
	}
	return path, err == nil, err
}

// cacheRoot is the user's cache; for root the system's, as its servers' unprivileged account cannot enter root's home.
func cacheRoot() (string, error) {
	if os.Geteuid() == 0 && runtime.GOOS == "linux" {
		return "/var/cache/kudos", nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(user, "kudos"), nil
}

// fetch returns the artifact's directory, and first downloads it if missing. Concurrent processes wait for the first.
func (a artifact) fetch(ctx context.Context, log *slog.Logger) (string, error) {
	dir, cached, err := a.dir()
	if err != nil || cached {
		return dir, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("fetch %s: %w", a, err)
	}
	lock := flock.New(dir+".lock", flock.SetPermissions(0o644))
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return "", fmt.Errorf("fetch %s: lock %s, which another process may hold: %w", a, lock.Path(), err)
	}
	defer lock.Close()
	if dir, cached, err = a.dir(); err != nil || cached {
		return dir, err
	}
	begin := time.Now()
	log.Info("fetching with Maven, once for this machine", "artifact", a, "to", dir)
	if err := a.download(ctx, dir); err != nil {
		return "", fmt.Errorf("fetch %s: %w", a, err)
	}
	log.Info("fetched", "artifact", a, "took", time.Since(begin).Round(time.Millisecond))
	return dir, nil
}

// download lets Maven fill a partial directory and renames it into place. The caller holds the lock.
func (a artifact) download(ctx context.Context, dir string) error {
	partial := dir + ".partial" // may exist: left by a process that died with the lock
	defer os.RemoveAll(partial)
	err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755),
		os.WriteFile(filepath.Join(partial, "pom.xml"), a.pom, 0o644))
	if err != nil {
		return err
	}
	mvn, err := find("mvn", "Maven")
	if err != nil {
		return err
	}
	files := filepath.Join(partial, "files")
	// -C: a wrong checksum is an error, not a warning.
	args := append([]string{"-B", "-ntp", "-C", "-f", "pom.xml", "-DoutputDirectory=" + files}, a.args...)
	log := filepath.Join(partial, "mvn.log")
	if err := run(ctx, child.Command{Name: "mvn", Path: mvn, Args: args, Dir: partial, Log: log}); err != nil {
		return err
	}
	return os.Rename(files, dir)
}
