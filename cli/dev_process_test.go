//go:build !nodev

package cli

import (
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/bench"
	"kudos/dev"
	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/schema"
)

// devProcess is `kudos dev` in a separate process, which can be measured and killed.
type devProcess struct {
	cmd   *exec.Cmd
	at    dev.Addresses
	ended chan error // the exit error
	out   *testkit.Output
}

func startDevProcess(t *testing.T, args ...string) *devProcess {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready.json")
	p := &devProcess{ended: make(chan error, 1), out: &testkit.Output{}}
	p.cmd = exec.Command(os.Args[0], slices.Concat(devArgs, embedded, []string{"--ready-file", ready}, args)...)
	p.cmd.Env = append(os.Environ(), runAsKudos+"=1", "TMPDIR="+t.TempDir())
	p.cmd.Stdout, p.cmd.Stderr = io.Discard, p.out
	require.NoError(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	require.Eventually(t, func() bool {
		return readAddresses(ready, &p.at) || len(p.ended) > 0
	}, 3*time.Minute, 20*time.Millisecond, "kudos dev did not become ready; stderr:\n%s", p.out)
	return p
}

func (p *devProcess) end(t *testing.T, with os.Signal) error {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(with))
	return ended(t, p.ended, p.out)
}

// TestDevAfterAKill: counts survive, and all parts agree; or, if a transaction was torn, the error says what to do.
func TestDevAfterAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := startDevProcess(t, "--data-dir", dir, "--simulate", "500")
	put(t, first.at, "7", "")
	waitGet(t, "http://"+first.at.Reader+postLikes, `"likes":1,`)
	require.Error(t, first.end(t, os.Kill))
	require.FileExists(t, filepath.Join(dir, "running"))

	second := startDevProcess(t, "--data-dir", dir)
	if len(second.ended) > 0 { // one kill in a hundred
		require.Contains(t, second.out.String(), dir+" is inconsistent: delete the directory and start again")
		return
	}
	waitGet(t, "http://"+second.at.Reader+postLikes, `"likes":1,`)
	waitAudit(t, second.at)
	require.NoError(t, second.end(t, os.Interrupt), "%s", second.out)
	require.NoFileExists(t, filepath.Join(dir, "running"))
}

// TestDevExplainsATornTransaction makes the group's offset disagree with the state table.
func TestDevExplainsATornTransaction(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := append([]string{"--data-dir", dir}, embedded...)
	startDev(t, args...).end()
	broker, err := dev.StartBroker("127.0.0.1:0", filepath.Join(dir, "kafka"), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	stop := testrun.Start(t, "the broker", time.Minute, broker.Run)
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()))
	require.NoError(t, err)
	defer cl.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset(schema.TopicLikes, 0, 12345, -1)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(t.Context(), schema.GroupFold, offsets))
	stop()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "running"), nil, 0o644))

	fails(t, exitFailed, append([]string{"dev"}, args...),
		dir+" is inconsistent: delete the directory and start again", "the group has committed 12345")
}

// soakVariable is the duration of TestDevSoak: 60m in `make nightly`.
const soakVariable = "KUDOS_TEST_SOAK"

// TestDevSoak keeps `kudos dev --simulate 2000` running. After ten minutes (or half of the duration, if that is
// shorter) its resident memory must not grow by more than 5 %, comparing the medians of the first and the last samples.
func TestDevSoak(t *testing.T) {
	value := os.Getenv(soakVariable)
	if value == "" {
		t.Skipf("slow test: set %s to a duration, such as 60m, to run it", soakVariable)
	}
	length, err := time.ParseDuration(value)
	require.NoError(t, err, soakVariable)
	warm, every := min(10*time.Minute, length/2), min(time.Minute, length/30)
	p := startDevProcess(t, "--simulate", "2000")
	begun := time.Now()
	ctx := testkit.Within(t, length)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var samples []float64 // MiB, after the warm-up
	for ctx.Err() == nil {
		select {
		case err := <-p.ended:
			t.Fatalf("kudos dev ended: %v; stderr:\n%s", err, p.out)
		case <-ctx.Done():
		case now := <-ticker.C:
			rss := float64(bench.ResidentBytes(p.cmd.Process.Pid)) / (1 << 20)
			require.Positive(t, rss, "the soak test needs Linux")
			t.Logf("%6s  %.0f MiB", now.Sub(begun).Round(time.Second), rss)
			if now.Sub(begun) >= warm {
				samples = append(samples, rss)
			}
		}
	}
	require.NoError(t, p.end(t, os.Interrupt), "%s", p.out)
	require.GreaterOrEqual(t, len(samples), 10)
	few := max(5, len(samples)/10)
	first, last := bench.StatOf(samples[:few]).Median, bench.StatOf(samples[len(samples)-few:]).Median
	growth := 100 * (last - first) / first
	t.Logf("from %.0f to %.0f MiB: %+.1f %%", first, last, growth)
	require.LessOrEqual(t, growth, 5.0, "growth of resident memory after %s, in percent", warm)
}
