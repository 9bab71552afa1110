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

// ProgramVariable has the path of a program for all packages of a run (`make test`). Without it, each builds its own.
const ProgramVariable = "KUDOS_TEST_PROGRAM"

// ForTests are the build flags for programs that are not measured. They are those of the tests, so that all packages
// are compiled once; default.pgo would compile them again, just for this program.
func ForTests() []string { return []string{"-pgo=off", "-ldflags=-w"} }

// AsShipped are the build flags of `make build`.
func AsShipped() []string { return []string{"-trimpath"} }

// BuildKudos builds the program in a directory and returns its path.
func BuildKudos(ctx context.Context, dir string, flags []string) (string, error) {
	path := filepath.Join(dir, "kudos")
	build := exec.CommandContext(ctx, "go", slices.Concat([]string{"build"}, flags, []string{"-o", path, "kudos"})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

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

// ProgramOptions configure a program other than Kafka or a database.
type ProgramOptions struct {
	Name string // in messages, and of the log file
	Path string
	Args []string
	Dir  string // working directory, also of the log file
	// Account, unless nil, changes the account that the program runs under.
	Account func(*syscall.SysProcAttr)
	// Probe checks whether the program is ready; nil: it is ready once it runs.
	Probe func(context.Context) error
	// Log logs starts and ends. Default: none.
	Log *slog.Logger
}

func orSilent(log *slog.Logger) *slog.Logger { return cmp.Or(log, slog.New(slog.DiscardHandler)) }

// NewProgram returns a Server for any program; Start starts it. Kill it in the end.
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
