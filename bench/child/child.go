// Package child starts processes that do not outlive this one.
//
// In goes a Command; out comes a Process that runs, its output in a file, its lines on demand. It ends when it is
// signalled or killed, or when this process ends, however that happens (on Linux; elsewhere it then stays).
package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

const (
	// lineBytes bounds a line that a process prints for Lines.
	lineBytes = 1 << 20
	// logTail is how much of a log an error message shows, in bytes.
	logTail = 4000
)

// Command is a program to start.
type Command struct {
	Name string // in messages: "kafka node 0"
	Path string
	Args []string
	Env  []string // added to the environment
	Dir  string   // working directory
	Log  string   // file that stdout and stderr are appended to
	// Lines gets the lines of stdout, or of stderr if OfStderr, one after another. They are in the log too. Default: nobody.
	Lines    func(line []byte)
	OfStderr bool
	// Account changes under whose account it runs. Default: as this process.
	Account func(*syscall.SysProcAttr)
}

// Process is a started child.
type Process struct {
	os   *os.Process
	done chan struct{} // closed by own when the child is gone
	exit error         // what Wait said; to be read after done
}

// Start starts a command and returns once it runs.
func Start(c Command) (*Process, error) {
	p := &Process{done: make(chan struct{})}
	started := make(chan error, 1)
	go p.own(c, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// own starts the child and stays until it is gone. It keeps its thread for all that time: the kernel sends the
// parent-death signal when the *thread* that started the child ends, and an ordinary goroutine's thread may end early.
func (p *Process) own(c Command, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		started <- err
		return
	}
	defer log.Close()
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.Dir, append(os.Environ(), c.Env...), attributes()
	cmd.Stdout, cmd.Stderr = log, log
	if c.Account != nil {
		c.Account(cmd.SysProcAttr)
	}
	lines, err := c.pipe(cmd)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	p.os = cmd.Process
	started <- nil
	p.exit = errors.Join(c.read(lines, log), cmd.Wait())
}

// pipe is what Lines are read from; nil without.
func (c *Command) pipe(cmd *exec.Cmd) (io.Reader, error) {
	switch {
	case c.Lines == nil:
		return nil, nil
	case c.OfStderr:
		cmd.Stderr = nil
		return cmd.StderrPipe()
	}
	cmd.Stdout = nil
	return cmd.StdoutPipe()
}

// read hands out the lines until there are no more.
func (c *Command) read(lines io.Reader, log io.Writer) error {
	if lines == nil {
		return nil
	}
	scanner := bufio.NewScanner(io.TeeReader(lines, log))
	scanner.Buffer(make([]byte, 64<<10), lineBytes)
	for scanner.Scan() {
		c.Lines(scanner.Bytes())
	}
	_, _ = io.Copy(io.Discard, lines) // after a line that is too long: it must not block
	return scanner.Err()
}

// PID is the process id.
func (p *Process) PID() int { return p.os.Pid }

// Signal sends a signal. It is an error if the child is gone.
func (p *Process) Signal(s os.Signal) error { return p.os.Signal(s) }

// Done is closed when the child is gone and all its lines were read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the child is there.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Exit is nil if the child ended well, or else how it ended. Only after Done.
func (p *Process) Exit() error { return p.exit }

// Ended says how a child ended that was to stay: ending well is an error, too. Only after Done.
func (p *Process) Ended() error {
	if p.exit != nil {
		return p.exit
	}
	return errors.New("exit status 0")
}

// Kill ends the child and everything in its process group, and returns when the child is gone.
func (p *Process) Kill() {
	if p.Running() {
		// The group exists at least as long as its leader has not been waited for.
		killGroup(p.os.Pid)
		_ = p.os.Kill()
	}
	<-p.done
}

// Tail is the path and the end of a log file, for error messages.
func Tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer f.Close()
	cut := ""
	if end, err := f.Seek(0, io.SeekEnd); err == nil && end > logTail {
		_, _ = f.Seek(-logTail, io.SeekEnd)
		cut = "…"
	} else {
		_, _ = f.Seek(0, io.SeekStart)
	}
	text, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return fmt.Sprintf("(log %s unreadable: %v)", path, err)
	}
	return path + ":\n" + cut + strings.TrimSpace(string(text))
}
