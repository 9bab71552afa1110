package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
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

	Account func(*syscall.SysProcAttr)  // changes the account that the program runs under; may be nil
	Probe   func(context.Context) error // whether the program is ready; nil: it is ready once it runs
	Log     *slog.Logger                // of starts and ends; default: none
}

func orSilent(log *slog.Logger) *slog.Logger { return cmp.Or(log, slog.New(slog.DiscardHandler)) }

// NewProgram returns a Server for any program; Start starts it. Kill it in the end.
func NewProgram(o ProgramOptions) *Server {
	if o.Probe == nil {
		o.Probe = func(context.Context) error { return nil }
	}
	return &Server{
		command: child.Command{Name: o.Name, Path: o.Path, Args: o.Args, Dir: o.Dir, Account: o.Account,
			Log: filepath.Join(o.Dir, o.Name+".log")},
		probe: o.Probe,
		log:   orSilent(o.Log),
	}
}

func run(ctx context.Context, c child.Command) error {
	p, err := child.Start(c)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s was interrupted: %w", c.Name, context.Cause(ctx))
	}
	if err := p.Exit(); err != nil {
		return fmt.Errorf("%s failed: %w\n%s", c.Name, err, child.Tail(c.Log))
	}
	return nil
}

// account is the unprivileged account of a server if this process runs as root: MariaDB and MySQL refuse to run as
// root, because anyone who reaches their port may write files with their privileges.
type account struct {
	name     string
	uid, gid uint32
}

// unprivileged returns the account for a database server, nil if this process has no privileges to drop.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"mysql", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		a := &account{name: name}
		if _, err := fmt.Sscan(u.Uid+" "+u.Gid, &a.uid, &a.gid); err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		return a, nil
	}
	return nil, errors.New("running as root, and this machine has neither an account mysql nor an account nobody for " +
		"the database: run as another user")
}

func (a *account) runs(attributes *syscall.SysProcAttr) {
	if a != nil {
		attributes.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

// own makes the account the owner of a directory, and checks that it can reach the directory.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("account %s cannot enter %s, which is to contain its data: set Dir (or TMPDIR)",
				a.name, parent)
		}
		if parent == filepath.Dir(parent) {
			break
		}
	}
	return os.Chown(dir, int(a.uid), int(a.gid))
}
