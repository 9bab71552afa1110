package stack_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
)

var sleeper = stack.ProgramOptions{Name: "sleep", Path: "/bin/sleep", Args: []string{"600"}}

// Stop ends a server gracefully, running or paused.
func TestServerStop(t *testing.T) {
	p := stack.ProgramForTest(t, sleeper)
	require.ErrorContains(t, p.Stop(), "never started")
	for _, paused := range []bool{false, true} {
		require.NoError(t, p.Start(t.Context()))
		if paused {
			require.NoError(t, p.Pause())
		}
		require.NoError(t, p.Stop())
		require.ErrorContains(t, p.Pause(), "not running")
		require.ErrorContains(t, p.Exit(), "terminated", "ended by SIGTERM, not killed")
	}
}

// The thread that starts a server may end at any time; that must not kill the server.
func TestServerOutlivesTheThreadThatStartedIt(t *testing.T) {
	p := stack.ProgramForTest(t, sleeper)
	started := make(chan error)
	var thread int
	var start func()
	start = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if thread = syscall.Gettid(); thread == os.Getpid() {
			go start() // the main thread never ends
			return
		}
		started <- p.Start(t.Context())
	}
	go start()
	require.NoError(t, <-started)
	require.Eventually(t, func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		return err != nil
	}, patience, time.Millisecond, "the thread still exists")
	select {
	case <-p.Done():
		t.Fatal("the server ended with the thread")
	case <-time.After(200 * time.Millisecond):
	}
}

// orphanVariable makes this test binary start a server, print its process id, and wait to be killed.
const orphanVariable = "KUDOS_TEST_ORPHAN"

func init() {
	if os.Getenv(orphanVariable) == "" {
		return
	}
	o := sleeper
	o.Dir = os.Getenv(orphanVariable)
	p := stack.NewProgram(o)
	if err := p.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	<-p.Done() // never, while this process lives
	os.Exit(1)
}

// A killed process cannot close anything, but its servers die with it.
func TestServersDieWithTheirParent(t *testing.T) {
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), orphanVariable+"="+t.TempDir())
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var pid int
	_, err = fmt.Fscan(out, &pid)
	require.NoError(t, err)
	require.DirExists(t, fmt.Sprintf("/proc/%d", pid))

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	requireGone(t, pid)
}
