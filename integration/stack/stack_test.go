package stack_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
)

var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		orphan() // does not return
	}
	os.Exit(shared.Main(m))
}

// requireGone checks that no process has this id any more; one that is dead and waits to be reaped by its new parent
// counts as gone.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return err != nil || strings.Contains(string(status), "State:\tZ")
	}, patience, 5*time.Millisecond, "process %d is still there", pid)
}
