package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// logTail is how much of a server's log an error message shows, in bytes.
const logTail = 3000

// command is a program to start. Its output is appended to a file.
type command struct {
	name    string // in messages: "kafka node 0"
	path    string
	args    []string
	dir     string   // working directory
	log     string   // path of the file for stdout and stderr
	account *account // nil: as this process
}

// process is a started child. It ends when it is signalled or when this process ends, however that happens.
type process struct {
	os   *os.Process
	done chan struct{} // closed by own when the child is gone
	exit error         // what Wait said; to be read after done
}

// start starts a command and returns once it runs.
func start(c command) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go p.own(c, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return p, nil
}

// own starts the child and stays until it is gone. It keeps its thread for all that time: the kernel sends the
// parent-death signal when the *thread* that started the child ends, and an ordinary goroutine's thread may end early.
func (p *process) own(c command, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)

	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		started <- err
		return
	}
	defer out.Close()
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, out, out
	cmd.SysProcAttr = childAttributes()
	if c.account != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.account.uid, Gid: c.account.gid}
	}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.os = cmd.Process
	started <- nil
	p.exit = cmd.Wait()
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the child and everything in its process group, and returns when the child is gone.
func (p *process) kill() {
	if p.running() {
		// The group exists at least as long as its leader has not been waited for.
		_ = syscall.Kill(-p.os.Pid, syscall.SIGKILL)
		_ = p.os.Kill()
	}
	<-p.done
}

// run starts a command that ends by itself and waits for it; if ctx is done first, it is killed.
func run(ctx context.Context, c command) error {
	p, err := start(c)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("%s was cut off: %w", c.name, context.Cause(ctx))
	}
	if p.exit != nil {
		return fmt.Errorf("%s failed: %w\n%s", c.name, p.exit, tail(c.log))
	}
	return nil
}

// tail is the end of a log file, for error messages.
func tail(path string) string {
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
	text, err := io.ReadAll(f)
	if err != nil {
		return fmt.Sprintf("(log %s unreadable: %v)", path, err)
	}
	return path + ":\n" + cut + strings.TrimSpace(string(text))
}

// account is the unprivileged account that a server runs under when we are root: MariaDB and MySQL refuse to run as
// root, and rightly so, since whoever reaches their port may write files with their rights.
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
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("running as root, and this machine has neither an account mysql nor nobody to run a database under: run as another user")
}

// own gives a directory to the account, and makes sure that the account can get there.
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
			return fmt.Errorf("account %s cannot enter %s, where its data shall be: give another Dir (or TMPDIR)", a.name, parent)
		}
		if parent == filepath.Dir(parent) {
			break
		}
	}
	return os.Chown(dir, int(a.uid), int(a.gid))
}
