package stack

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"kudos/integration/child"
)

// WithoutProfile builds the program without default.pgo: for whoever measures nothing. With it all packages are compiled
// for this program alone, which takes two cores five minutes the first time.
const WithoutProfile = "-pgo=off"

// BuildKudos makes the program anew from its source, as `make build` does, in a folder, and returns its path.
func BuildKudos(ctx context.Context, dir string, flags ...string) (string, error) {
	path := filepath.Join(dir, "kudos")
	build := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-trimpath"}, flags, []string{"-o", path, "kudos"})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// builtKudos is the program in a folder of its own, which Close removes.
type builtKudos struct{ dir, path string }

func buildKudos(ctx context.Context) (b builtKudos, err error) {
	if b.dir, err = os.MkdirTemp("", "kudos-test-"); err != nil {
		return b, err
	}
	if b.path, err = BuildKudos(ctx, b.dir, WithoutProfile); err != nil {
		_ = b.Close() // the build's failure is what matters
	}
	return b, err
}

func (b builtKudos) Close() error { return os.RemoveAll(b.dir) }

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

// NewProgram makes a Server of any program, which Start starts. Kill it at the end.
func NewProgram(o ProgramOptions) *Server {
	if o.Probe == nil {
		o.Probe = func(context.Context) error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		command: child.Command{
			Name: o.Name, Path: o.Path, Args: o.Args, Dir: o.Dir, Account: o.Account,
			Log: filepath.Join(o.Dir, o.Name+".log"),
		},
		probe:        o.Probe,
		startTimeout: DefaultStartTimeout,
		stopTimeout:  DefaultStopTimeout,
		log:          o.Log,
	}
}
