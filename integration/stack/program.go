package stack

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"kudos/bench/child"
)

// ProgramVariable is the environment variable with the path of a program that all test packages of a run share: `make
// test` builds it once. Without it each package builds its own.
const ProgramVariable = "KUDOS_TEST_PROGRAM"

// ForTests are the flags to build the program with where nothing is measured: those that the tests are compiled with,
// so that all packages are compiled once. With default.pgo they would be compiled again, for this program alone.
func ForTests() []string { return []string{"-pgo=off", "-ldflags=-w"} }

// AsShipped are the flags that `make build` builds the program with.
func AsShipped() []string { return []string{"-trimpath"} }

// BuildKudos builds the program from its source in a directory, and returns its path.
func BuildKudos(ctx context.Context, dir string, flags []string) (string, error) {
	path := filepath.Join(dir, "kudos")
	build := exec.CommandContext(ctx, "go", slices.Concat([]string{"build"}, flags, []string{"-o", path, "kudos"})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// buildKudos is the whole run's program, or else one in a directory of its own, which remove removes.
func buildKudos(ctx context.Context) (path string, remove func() error, err error) {
	if path := os.Getenv(ProgramVariable); path != "" {
		return path, func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "kudos-test-")
	if err == nil {
		path, err = BuildKudos(ctx, dir, ForTests())
	}
	return path, func() error { return os.RemoveAll(dir) }, err
}

// ProgramOptions describe a program that is neither Kafka nor a database.
type ProgramOptions struct {
	Name string // in messages and of its log file
	Path string
	Args []string
	Dir  string // working directory, where the log file goes too
	// Account changes under whose account it runs. Default: as this process.
	Account func(*syscall.SysProcAttr)
	// Probe tells whether it answers; nil: as soon as it runs.
	Probe func(context.Context) error
	// Log tells of starts and ends. Default: nothing.
	Log *slog.Logger
}

// orSilent is a log, or one that tells nothing.
func orSilent(log *slog.Logger) *slog.Logger { return cmp.Or(log, slog.New(slog.DiscardHandler)) }

// NewProgram makes a Server of any program, which Start starts. Kill it at the end.
func NewProgram(o ProgramOptions) *Server {
	if o.Probe == nil {
		o.Probe = func(context.Context) error { return nil }
	}
	return &Server{
		command: child.Command{
			Name: o.Name, Path: o.Path, Args: o.Args, Dir: o.Dir, Account: o.Account,
			Log: filepath.Join(o.Dir, o.Name+".log"),
		},
		probe: o.Probe,
		log:   orSilent(o.Log),
	}
}
