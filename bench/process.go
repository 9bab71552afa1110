package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"kudos/bench/child"
)

// Command is a program to start.
type Command struct {
	Path string
	Args []string
	// Env is added to the environment.
	Env []string
}

// stopTimeout is how long a process may take to end after SIGTERM.
const stopTimeout = 60 * time.Second

// process is a child whose one output (stdout or stderr) is read line by line.
type process struct {
	name           string
	dir            string // working directory
	log            string // the file of what it prints
	*child.Process        // once it was started
}

// newProcess is one that does not run yet; its files go to dir.
func newProcess(name, dir string) *process {
	return &process{name: name, dir: dir, log: filepath.Join(dir, name+".log")}
}

// start starts the program, once. each gets the lines of its stderr if ofStderr, otherwise those of its stdout, one after
// another; they are kept in the log too.
func (p *process) start(c Command, ofStderr bool, each func(line []byte)) (err error) {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.Process, err = child.Start(child.Command{
		Name: p.name, Path: c.Path, Args: c.Args, Env: c.Env, Dir: p.dir, Log: p.log, Lines: each, OfStderr: ofStderr,
	})
	return err
}

// ended is the error of a process that is gone though it was to stay.
func (p *process) ended() error {
	return fmt.Errorf("%s ended by itself: %w\n%s", p.name, p.Ended(), p.tail())
}

// stop sends SIGTERM and waits. One that takes too long is killed, and one that fails is an error.
func (p *process) stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("stop %s: still there %v after SIGTERM, so it was killed\n%s", p.name, stopTimeout, p.tail())
	}
	if err := p.Exit(); err != nil {
		return fmt.Errorf("stop %s: %w\n%s", p.name, err, p.tail())
	}
	return nil
}

// tail is the end of the log.
func (p *process) tail() string { return child.Tail(p.log) }

// run runs a program to its end.
func (c Command) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, c.Path, append(args, c.Args...)...)
	cmd.Env = append(os.Environ(), c.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(c.Path), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
