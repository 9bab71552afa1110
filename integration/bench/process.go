package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Command is a program to start.
type Command struct {
	Path string
	Args []string
	// Env is added to the environment.
	Env []string
}

const (
	// lineBytes bounds a line that a process prints.
	lineBytes = 1 << 20
	// stopTimeout is how long a process may take to end after SIGTERM.
	stopTimeout = 60 * time.Second
	// logTail is how much of a process's log an error shows, in bytes.
	logTail = 4000
)

// process is a child whose one output (stdout or stderr) is read line by line, and whose other one goes to a file.
type process struct {
	name string
	dir  string // working directory
	log  string // the file of what it prints
	os   *os.Process
	done chan struct{} // closed when it is gone and all lines were read
	exit error         // to be read after done
}

// newProcess is one that does not run yet; its files go to dir.
func newProcess(name, dir string) *process {
	return &process{name: name, dir: dir, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
}

// start starts the program, once. each gets the lines of its stderr if ofStderr, otherwise those of its stdout, one after
// another; they are kept in the log too.
func (p *process) start(c Command, ofStderr bool, each func(line []byte)) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	started := make(chan error, 1)
	go p.own(c, ofStderr, each, started)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	return nil
}

// own starts the child and stays until it is gone. It keeps its thread: the kernel ends a child when the thread that
// started it ends (see childAttributes).
func (p *process) own(c Command, ofStderr bool, each func([]byte), started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		started <- err
		return
	}
	defer log.Close()
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.dir, append(os.Environ(), c.Env...), childAttributes()
	var lines io.Reader
	if ofStderr {
		cmd.Stdout = log
		lines, err = cmd.StderrPipe()
	} else {
		cmd.Stderr = log
		lines, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	p.os = cmd.Process
	started <- nil
	scanner := bufio.NewScanner(io.TeeReader(lines, log))
	scanner.Buffer(make([]byte, 64<<10), lineBytes)
	for scanner.Scan() {
		each(scanner.Bytes())
	}
	_, _ = io.Copy(io.Discard, lines) // after a line that is too long: it must not block
	p.exit = errors.Join(scanner.Err(), cmd.Wait())
}

// ended is the error of a process that is gone though it was to stay.
func (p *process) ended() error {
	why := "exit status 0"
	if p.exit != nil {
		why = p.exit.Error()
	}
	return fmt.Errorf("%s ended by itself: %s\n%s", p.name, why, p.tail())
}

// stop sends SIGTERM and waits. One that takes too long is killed, and one that fails is an error.
func (p *process) stop() error {
	if err := p.os.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
		return fmt.Errorf("stop %s: still there %v after SIGTERM, so it was killed\n%s", p.name, stopTimeout, p.tail())
	}
	if p.exit != nil {
		return fmt.Errorf("stop %s: %w\n%s", p.name, p.exit, p.tail())
	}
	return nil
}

// kill ends it at once, if it is still there, and returns when it is gone.
func (p *process) kill() {
	_ = p.os.Kill() // it may be gone
	<-p.done
}

// tail is the end of the log.
func (p *process) tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-logTail), io.SeekStart)
	}
	text, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return fmt.Sprintf("(log %s unreadable: %v)", p.log, err)
	}
	return p.log + ":\n" + strings.TrimSpace(string(text))
}

// run runs a program to its end.
func (c Command) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, c.Path, append(args, c.Args...)...)
	cmd.Env = append(os.Environ(), c.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(c.Path), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
