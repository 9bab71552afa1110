package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kudos/bench/child"
)

const (
	probeEvery   = 20 * time.Millisecond // interval between probes of a starting server
	probeTimeout = 2 * time.Second       // for one probe

	// startTimeout bounds a start: seconds, but three nodes on a machine busy with other tests took most of a minute.
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute // for a server to end after SIGTERM
)

// Server is one server process, which can end and start again on the same data and ports. Safe for concurrent use.
type Server struct {
	command child.Command
	probe   func(context.Context) error // returns nil when it answers
	log     *slog.Logger
	disk    *Disk // of its data; may be nil

	launching sync.Mutex
	latest    atomic.Pointer[child.Process] // nil before the first start
}

// Start starts a server that is down, and returns once it answers. If it does not answer before the start timeout or
// the end of ctx, it is killed, and the error shows the end of its log.
func (s *Server) Start(ctx context.Context) error {
	begin := time.Now()
	p, err := s.launch()
	if err != nil {
		return err
	}
	if err := s.await(ctx, p); err != nil {
		p.Kill()
		return err
	}
	s.log.Info("started", "server", s.command.Name, "pid", p.PID(), "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

func (s *Server) launch() (*child.Process, error) {
	s.launching.Lock()
	defer s.launching.Unlock()
	if pid := s.PID(); pid != 0 {
		return nil, fmt.Errorf("start %s: already running, pid %d", s.command.Name, pid)
	}
	if err := s.disk.mount(); err != nil {
		return nil, err
	}
	p, err := child.Start(s.command)
	if err == nil {
		s.latest.Store(p)
	}
	return p, err
}

func (s *Server) await(ctx context.Context, p *child.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no response for %v", startTimeout))
	defer cancel()
	for tick := time.Tick(probeEvery); ; {
		probing, done := context.WithTimeout(ctx, probeTimeout)
		err := s.probe(probing)
		done()
		select {
		case <-p.Done():
			if err == nil && p.Exit() == nil {
				return nil // a command that has already succeeded
			}
			return fmt.Errorf("%s exited while starting: %w\n%s", s.command.Name, p.Ended(), child.Tail(s.command.Log))
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick:
		case <-p.Done():
		case <-ctx.Done():
			return fmt.Errorf("%s does not respond: %w; last error: %w\n%s",
				s.command.Name, context.Cause(ctx), err, child.Tail(s.command.Log))
		}
	}
}

// Kill kills the server with SIGKILL, like a crash, and returns when it is gone. Data already passed to the operating
// system survives: this simulates the crash of a process, not of a machine.
func (s *Server) Kill() error {
	p, err := s.current("kill")
	if err != nil {
		return err
	}
	p.Kill()
	s.log.Info("killed", "server", s.command.Name, "pid", p.PID())
	return nil
}

// Stop ends the server with SIGTERM, resuming a paused one. After the stop timeout it is killed, which is an error.
func (s *Server) Stop() error {
	p, err := s.current("stop")
	if err != nil {
		return err
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // it may be gone before the second signal
		if err := p.Signal(sig); err != nil && p.Running() && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", s.command.Name, err)
		}
	}
	select {
	case <-p.Done():
		s.log.Info("stopped", "server", s.command.Name, "pid", p.PID())
		return nil
	case <-time.After(stopTimeout):
		_ = p.Signal(syscall.SIGQUIT) // programs in Go and Java log where all their goroutines or threads are
		time.Sleep(probeTimeout)
		p.Kill()
		return fmt.Errorf("stop %s: still running %v after SIGTERM, so it was killed\n%s",
			s.command.Name, stopTimeout, child.Tail(s.command.Log))
	}
}

// Pause freezes the server (SIGSTOP) and returns when it has stopped: its connections stay open without any response.
func (s *Server) Pause() error { return s.do("pause", freeze) }

// Resume resumes a paused server (SIGCONT). It has no effect on a running one.
func (s *Server) Resume() error {
	return s.do("resume", func(p *child.Process) error { return p.Signal(syscall.SIGCONT) })
}

func (s *Server) do(verb string, act func(*child.Process) error) error {
	p, err := s.current(verb)
	if err != nil {
		return err
	}
	if err := act(p); err != nil {
		return fmt.Errorf("%s %s: %w", verb, s.command.Name, err)
	}
	s.log.Info(verb+"d", "server", s.command.Name, "pid", p.PID())
	return nil
}

func (s *Server) revive(ctx context.Context) error {
	if s.Running() {
		return s.Resume()
	}
	return s.Start(ctx)
}

func (s *Server) current(verb string) (*child.Process, error) {
	p := s.latest.Load()
	if p == nil {
		return nil, fmt.Errorf("%s %s: it was never started", verb, s.command.Name)
	}
	if !p.Running() {
		return nil, fmt.Errorf("%s %s: it is not running: %w", verb, s.command.Name, p.Ended())
	}
	return p, nil
}

// PID is the process id, 0 while the server is down.
func (s *Server) PID() int {
	if p := s.latest.Load(); p != nil && p.Running() {
		return p.PID()
	}
	return 0
}

// Exit is nil if the process exited with status 0, otherwise its exit error. It is also an error while the server runs.
func (s *Server) Exit() error {
	p := s.latest.Load()
	switch {
	case p == nil:
		return fmt.Errorf("exit of %s: it was never started", s.command.Name)
	case p.Running():
		return fmt.Errorf("exit of %s: still running, pid %d", s.command.Name, p.PID())
	}
	return p.Exit()
}

// Running reports whether the process exists; a paused one does.
func (s *Server) Running() bool { return s.PID() != 0 }

// Done is closed when the current process has ended. While the server is down, it is closed already.
func (s *Server) Done() <-chan struct{} {
	if p := s.latest.Load(); p != nil {
		return p.Done()
	}
	gone := make(chan struct{})
	close(gone)
	return gone
}

// LogPath is the file of the server's log and output.
func (s *Server) LogPath() string { return s.command.Log }

// LogTail returns the path and the end of that file, for error messages.
func (s *Server) LogTail() string { return child.Tail(s.command.Log) }

// String returns the server's name, such as "kafka node 0".
func (s *Server) String() string { return s.command.Name }

func (s *Server) end() error {
	if p := s.latest.Load(); p != nil {
		p.Kill()
	}
	return s.disk.Close()
}

type single struct {
	*Server
	dir  string // has the data and the logs
	keep bool
	port *Reservation
}

// Address is host:port.
func (s *single) Address() string { return s.port.Address() }

// Dir is the directory of data and logs.
func (s *single) Dir() string { return s.dir }

// Close kills the server and removes its data. It may be called more than once.
func (s *single) Close() (err error) {
	if s.Server != nil {
		err = s.end()
	}
	err = errors.Join(err, s.port.Release())
	if !s.keep {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// CloseOnError is deferred by functions that start something: after an error, it closes what they have started so far.
func CloseOnError(err *error, end func() error) {
	if *err != nil {
		*err = errors.Join(*err, end())
	}
}

// makeDir creates a directory in parent (default: the system's), absolute since servers run in other directories.
func makeDir(parent, prefix string) (string, error) {
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}
