//go:build unix

package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kudos/dev/testkit"

	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second // bounds every wait

// script returns a command that runs a shell script, with its log in a new directory.
func script(t *testing.T, text string) Command {
	dir := t.TempDir()
	return Command{Name: "script", Path: "/bin/sh", Args: []string{"-c", text}, Dir: dir,
		Log: filepath.Join(dir, "log")}
}

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(c)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func TestLinesAndLog(t *testing.T) {
	for _, ofStderr := range []bool{false, true} {
		c := script(t, "echo out $WHAT; echo err >&2; exit 3")
		c.Env = []string{"WHAT=there"}
		var lines []string
		c.Lines, c.OfStderr = func(line []byte) { lines = append(lines, string(line)) }, ofStderr
		p := start(t, c)
		testkit.Receive(t, p.Done(), "the child must exit")
		require.Equal(t, []string{map[bool]string{false: "out there", true: "err"}[ofStderr]}, lines)
		require.EqualError(t, p.Exit(), "exit status 3")
		log, err := os.ReadFile(c.Log)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"out there", "err"}, strings.Split(strings.TrimSpace(string(log)), "\n"),
			"both lines are in the log")
	}
}

// A line above the limit must neither block the child nor go unnoticed.
func TestLineTooLong(t *testing.T) {
	c := script(t, "head -c "+strconv.Itoa(3*lineBytes)+" /dev/zero")
	c.Lines = func([]byte) {}
	p := start(t, c)
	testkit.Receive(t, p.Done(), "the child must exit")
	require.ErrorContains(t, p.Exit(), "token too long")
}

func TestGracefulShutdown(t *testing.T) {
	p := start(t, script(t, "exit 0"))
	testkit.Receive(t, p.Done(), "the child must exit")
	require.False(t, p.Running())
	require.NoError(t, p.Exit())
	require.EqualError(t, p.Ended(), "exit status 0", "an error for a process that should keep running")
}

// On Linux the kernel kills the child with its parent.
func TestEndsWithItsParent(t *testing.T) {
	if runtime.GOOS == "linux" {
		require.Contains(t, fmt.Sprintf("%+v", *attributes()), "Pdeathsig:killed")
	}
}

func TestKillEndsTheGroup(t *testing.T) {
	c := script(t, "sleep 1000 & echo $!; wait")
	grandchild := make(chan int, 1)
	c.Lines = func(line []byte) {
		pid, err := strconv.Atoi(string(line))
		if err == nil {
			grandchild <- pid
		}
	}
	p := start(t, c)
	pid := testkit.Receive(t, grandchild, "the script must print something")
	require.True(t, p.Running())
	p.Kill()
	require.EqualError(t, p.Exit(), "signal: killed")
	require.Eventually(t, func() bool { return !alive(pid) }, patience, time.Millisecond)
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// Waits end when the log has the line, when the poll succeeds, or when the child has ended.
func TestWaiting(t *testing.T) {
	c := script(t, "trap 'echo last; exit 3' TERM; echo first; while :; do sleep 0.05; done")
	said := map[string]bool{}
	c.Lines = func(line []byte) { said[string(line)] = true }
	p := start(t, c)
	ctx := testkit.Context(t)
	require.NoError(t, p.Wait(ctx, "a line", func() bool { return said["first"] }))
	asked := 0
	ask := func() (bool, error) { asked++; return asked == 3, nil }
	require.NoError(t, p.Poll(ctx, time.Millisecond, "a third time", ask))
	broken := errors.New("broken")
	require.Equal(t, broken, p.Poll(ctx, time.Millisecond, "nothing", func() (bool, error) { return false, broken }))

	waits := map[string]func(ctx context.Context) error{
		"lines":   func(ctx context.Context) error { return p.Wait(ctx, "more", func() bool { return said["more"] }) },
		"answers": func(ctx context.Context) error { return p.Poll(ctx, time.Millisecond, "more", ask) },
	}
	for name, wait := range waits {
		late, cancel := context.WithTimeoutCause(ctx, 100*time.Millisecond, os.ErrDeadlineExceeded)
		err := wait(late)
		cancel()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, name)
		require.ErrorContains(t, err, "waiting for more of script: ", name)
		late, cancel = context.WithCancel(ctx)
		cancel()
		require.Equal(t, context.Canceled, wait(late), name)
	}
	require.ErrorContains(t, p.Terminate(patience), "stop script: exit status 3\n"+c.Log+":\nfirst\nlast")
	require.NoError(t, p.Wait(ctx, "the last line", func() bool { return said["last"] }))
	for name, wait := range waits {
		require.ErrorContains(t, wait(ctx), "script exited unexpectedly: exit status 3\n", name)
	}
	require.ErrorContains(t, p.Terminate(patience), "stop script: exit status 3", "although it has exited")
}

func TestTerminateKills(t *testing.T) {
	c := script(t, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
	ready := false
	c.Lines = func([]byte) { ready = true }
	p := start(t, c)
	require.NoError(t, p.Wait(t.Context(), "the trap", func() bool { return ready }))
	require.ErrorContains(t, p.Terminate(100*time.Millisecond),
		"stop script: still running 100ms after SIGTERM, killed\n")
	require.False(t, p.Running())
}

func TestStartFails(t *testing.T) {
	c := script(t, "")
	c.Path = filepath.Join(c.Dir, "nothing")
	_, err := Start(c)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "start script: ")
}

func TestIdleLogIsClosed(t *testing.T) {
	c := script(t, "")
	c.Lines = func([]byte) {}
	log, _, err := c.outputs(&exec.Cmd{Process: &os.Process{}}) // a started command gets no pipe
	require.ErrorContains(t, err, "after process started")
	require.ErrorIs(t, log.Close(), os.ErrClosed)
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.Contains(t, Tail(path), "(no log: ")
	require.NoError(t, os.WriteFile(path, []byte("all\n"), 0o644))
	require.Equal(t, path+":\nall", Tail(path))
	require.NoError(t, os.WriteFile(path, []byte("begin"+strings.Repeat(".", logTail)+"end"), 0o644))
	require.Equal(t, path+":\n…"+strings.Repeat(".", logTail-3)+"end", Tail(path))
}
