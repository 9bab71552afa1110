// Package child starts processes that do not outlive this one.
//
// Start turns a Command into a Process. Its output goes to a log file and, on demand, line by line to a callback. The
// child ends on a signal, or with this process however that ends (on Linux; on other systems it then keeps running).
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	lineBytes = 1 << 20 // the longest line that Lines accepts
	logTail   = 4000    // how many bytes of a log an error message shows
)

// Command is a program to start.
type Command struct {
	Name string // in messages, such as "kafka node 0"
	Path string
	Args []string
	Env  []string // added to the environment
	Dir  string   // working directory, created if it is missing
	Log  string   // file that stdout and stderr are appended to
	// Lines, unless nil, is called with each line of stdout, or of stderr if OfStderr is set. The calls are serialized
	// and hold the lock that Wait uses. The lines go to the log too.
	Lines    func(line []byte)
	OfStderr bool
	Account  func(*syscall.SysProcAttr) // unless nil, changes the account that the child runs under
}

// Process is a started child.
type Process struct {
	command Command
	os      *os.Process
	done    chan struct{} // closed by own when the child has ended
	exit    error         // valid once done is closed

	mu   sync.Mutex
	line chan struct{} // closed and replaced after each line
}

func Start(c Command) (*Process, error) {
	p := &Process{command: c, done: make(chan struct{}), line: make(chan struct{})}
	started := make(chan error, 1)
	go p.own(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// own starts the child and waits for it, locked to its OS thread: the kernel sends the parent-death signal when the
// *thread* that started the child ends, and the thread of an ordinary goroutine may end early.
func (p *Process) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	c := &p.command
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.Dir, append(os.Environ(), c.Env...), attributes()
	if c.Account != nil {
		c.Account(cmd.SysProcAttr)
	}
	log, lines, err := c.outputs(cmd)
	if err == nil {
		defer log.Close()
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	p.os = cmd.Process
	started <- nil
	if c.Lines != nil {
		err = p.read(lines, log)
	}
	p.exit = errors.Join(err, cmd.Wait())
}

// outputs opens the log, and the pipe for Lines if it is set. After an error nothing is open.
func (c *Command) outputs(cmd *exec.Cmd) (log *os.File, lines io.Reader, err error) {
	if c.Dir != "" {
		err = os.MkdirAll(c.Dir, 0o755)
	}
	if err == nil {
		log, err = os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	}
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	switch {
	case c.Lines == nil:
	case c.OfStderr:
		cmd.Stderr = nil
		lines, err = cmd.StderrPipe()
	default:
		cmd.Stdout = nil
		lines, err = cmd.StdoutPipe()
	}
	if err != nil {
		err = errors.Join(err, log.Close())
	}
	return log, lines, err
}

func (p *Process) read(lines io.Reader, log io.Writer) error {
	scanner := bufio.NewScanner(io.TeeReader(lines, log))
	scanner.Buffer(make([]byte, 64<<10), lineBytes)
	for scanner.Scan() {
		p.mu.Lock()
		p.command.Lines(scanner.Bytes())
		close(p.line)
		p.line = make(chan struct{})
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, lines) // drain after a line that is too long, so that the child does not block
	return scanner.Err()
}

// PID is the process id.
func (p *Process) PID() int { return p.os.Pid }

// Signal sends a signal. It returns an error if the child has ended.
func (p *Process) Signal(s os.Signal) error { return p.os.Signal(s) }

// Done is closed when the child has ended and all its lines have been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the child is still running.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Exit is nil if the child exited with status 0, otherwise its exit error. Valid once Done is closed.
func (p *Process) Exit() error { return p.exit }

// Ended is the error of a child that should have kept running: exit status 0 is one too. Valid once Done is closed.
func (p *Process) Ended() error {
	if p.exit != nil {
		return p.exit
	}
	return errors.New("exit status 0")
}

// Kill kills the child and its process group, and returns when the child has ended.
func (p *Process) Kill() {
	if p.Running() {
		// The group exists at least until its leader has been waited for.
		killGroup(p.os.Pid)
		_ = p.os.Kill()
	}
	<-p.done
}

// Tail returns the path and the end of a log file, for error messages.
func Tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer f.Close()
	cut := ""
	if at, err := f.Seek(-logTail, io.SeekEnd); err == nil && at > 0 { // fails if the log is shorter
		cut = "…"
	}
	text, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return fmt.Sprintf("(log %s unreadable: %v)", path, err)
	}
	return path + ":\n" + cut + strings.TrimSpace(string(text))
}

// Wait returns once known, called after each line under the lock of Lines, is true. A child ending first is an error.
func (p *Process) Wait(ctx context.Context, what string, known func() bool) error {
	for {
		running := p.Running() // read before known: the last lines may come together with the end
		p.mu.Lock()
		ok, line := known(), p.line
		p.mu.Unlock()
		if ok {
			return nil
		}
		if !running {
			return p.endedByItself()
		}
		select {
		case <-line:
		case <-p.done:
		case <-ctx.Done():
			return p.gaveUp(ctx, what)
		}
	}
}

// Poll calls ask periodically until it reports true or fails. A child that ends first is an error.
func (p *Process) Poll(ctx context.Context, every time.Duration, what string, ask func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := ask(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-p.done:
			return p.endedByItself()
		case <-ctx.Done():
			return p.gaveUp(ctx, what)
		}
	}
}

func (p *Process) endedByItself() error {
	return fmt.Errorf("%s exited unexpectedly: %w\n%s", p.command.Name, p.Ended(), p.Tail())
}

// gaveUp is the error of a wait that was canceled or timed out.
func (p *Process) gaveUp(ctx context.Context, what string) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("waiting for %s of %s: %w\n%s", what, p.command.Name, err, p.Tail())
}

// Terminate sends SIGTERM and waits. It returns an error if the child fails, or exceeds the timeout and is killed.
func (p *Process) Terminate(timeout time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.command.Name, err)
	}
	select {
	case <-p.done:
	case <-time.After(timeout):
		p.Kill()
		return fmt.Errorf("stop %s: still running %v after SIGTERM, killed\n%s", p.command.Name, timeout, p.Tail())
	}
	if p.exit != nil {
		return fmt.Errorf("stop %s: %w\n%s", p.command.Name, p.exit, p.Tail())
	}
	return nil
}

// Tail returns the path and the end of the child's log.
func (p *Process) Tail() string { return Tail(p.command.Log) }
