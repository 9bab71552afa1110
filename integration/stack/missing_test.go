package stack_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

type outcome struct {
	testing.TB
	ctx             context.Context
	failed, skipped string
}

func (v *outcome) Helper()                  {}
func (v *outcome) Context() context.Context { return v.ctx }
func (v *outcome) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (v *outcome) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func requireSoftware(t *testing.T, need stack.Software) *outcome {
	v := &outcome{ctx: t.Context()}
	done := make(chan struct{})
	go func() { defer close(done); stack.Require(v, need) }()
	<-done
	return v
}

// Without Java (or a browser, or valgrind), a test that needs it is skipped on a laptop and fails in CI, with a hint.
func TestRequire(t *testing.T) {
	t.Setenv(tier.Variable, "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("JAVA_HOME", "")
	for need, missing := range map[stack.Software]string{stack.NeedKafka: "find Java",
		stack.NeedBrowser: "find Chromium", stack.NeedValgrind: "find valgrind"} {
		t.Setenv("CI", "")
		v := requireSoftware(t, need)
		require.Empty(t, v.failed)
		require.Contains(t, v.skipped, missing)
		require.Contains(t, v.skipped, "integration/deps.sh")

		t.Setenv("CI", "true")
		v = requireSoftware(t, need)
		require.Empty(t, v.skipped)
		require.Contains(t, v.failed, missing)
		require.Contains(t, v.failed, "integration/deps.sh")
	}
}
