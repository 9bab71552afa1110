//go:build !nodev

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev"
	"kudos/integration/testrun"
	"kudos/schema"
)

// devProcess is `kudos dev` in a process of its own: one that can be measured, and killed.
type devProcess struct {
	cmd   *exec.Cmd
	at    dev.Addresses
	ended chan error // what it ended with
	out   *logBuffer
}

func startDevProcess(t *testing.T, args ...string) *devProcess {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready.json")
	p := &devProcess{ended: make(chan error, 1), out: &logBuffer{}}
	const free = "127.0.0.1:0"
	p.cmd = exec.Command(os.Args[0], append([]string{"dev", "--kafka-addr", free, "--mysql-addr", free,
		"--http-addr", free, "--reader-addr", free, "--admin-addr", free, "--ready-file", ready}, args...)...)
	p.cmd.Env = append(os.Environ(), runAsKudos+"=1", "TMPDIR="+t.TempDir())
	p.cmd.Stdout, p.cmd.Stderr = io.Discard, p.out
	require.NoError(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(text, &p.at) == nil || len(p.ended) > 0
	}, 3*time.Minute, 20*time.Millisecond, "kudos dev does not become ready; stderr:\n%s", p.out)
	return p
}

// end stops the process with a signal, and returns when it is gone.
func (p *devProcess) end(t *testing.T, with os.Signal) error {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(with))
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("kudos dev does not end by %s; stderr:\n%s", with, p.out)
		return nil
	}
}

// TestDevAfterAKill: what was counted is there, and all parts agree; or, where a transaction
// was cut in two, it says what to do.
func TestDevAfterAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := startDevProcess(t, "--data-dir", dir, "--simulate", "500")
	const path = "/v1/posts/18446744073709551615/likes"
	req, err := http.NewRequest(http.MethodPut, "http://"+first.at.HTTP+path+"/7?region=LI", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	counted := func(p *devProcess) func() bool {
		return func() bool {
			resp, err := http.Get("http://" + p.at.Reader + path)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			return err == nil && strings.Contains(string(text), `"likes":1,`)
		}
	}
	require.Eventually(t, counted(first), time.Minute, 20*time.Millisecond)
	require.Error(t, first.end(t, os.Kill))
	require.FileExists(t, filepath.Join(dir, "running"))

	second := startDevProcess(t, "--data-dir", dir)
	if len(second.ended) > 0 { // one kill in a hundred
		require.Contains(t, second.out.String(), dir+" do not fit together: delete the directory and start again")
		return
	}
	require.Eventually(t, counted(second), time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		dsn := "root@tcp(" + second.at.MySQL + ")/kudos"
		code, _, _ := kudos(t, "", "audit", "--deep", "--brokers", second.at.Kafka, "--mysql-dsn", dsn)
		return code == exitDone
	}, time.Minute, 100*time.Millisecond, "kudos audit --deep")
	require.NoError(t, second.end(t, os.Interrupt), "%s", second.out)
	require.NoFileExists(t, filepath.Join(dir, "running"))
}

// TestDevSaysWhatToDoAboutATornTransaction: here the group's offset is not beside the state table.
func TestDevSaysWhatToDoAboutATornTransaction(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := append([]string{"--data-dir", dir}, embedded...)
	_, end := startDev(t, args...)
	end()
	o := dev.DefaultBrokerOptions()
	o.Address, o.DataDir = "127.0.0.1:0", filepath.Join(dir, "kafka")
	broker := dev.NewBroker(o, slog.New(slog.DiscardHandler))
	require.NoError(t, broker.Start())
	stop := testrun.Start(t, "the broker", time.Minute, broker.Run)
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()))
	require.NoError(t, err)
	defer cl.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset(schema.TopicLikes, 0, 12345, -1)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(t.Context(), schema.GroupFold, offsets))
	stop()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "running"), nil, 0o644))

	code, _, stderr := kudos(t, "", append([]string{"dev"}, args...)...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, dir+" do not fit together: delete the directory and start again")
	require.Contains(t, stderr, "the group has committed 12345")
}

// soakVariable is how long TestDevSoak takes: 60m in `make nightly`.
const soakVariable = "KUDOS_TEST_SOAK"

// TestDevSoak leaves `kudos dev --simulate 2000` on. After ten minutes (or half of the time, if
// that is shorter) its resident memory must not grow by more than 5 %: the median of the
// last samples is held against that of the first ones.
func TestDevSoak(t *testing.T) {
	value := os.Getenv(soakVariable)
	if value == "" {
		t.Skipf("takes long: set %s to a duration, such as 60m", soakVariable)
	}
	length, err := time.ParseDuration(value)
	require.NoError(t, err, soakVariable)
	warm, every := min(10*time.Minute, length/2), min(time.Minute, length/30)
	p := startDevProcess(t, "--simulate", "2000")
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var samples []int64 // bytes, since warm
	for ctx.Err() == nil {
		select {
		case err := <-p.ended:
			t.Fatalf("kudos dev ended: %v; stderr:\n%s", err, p.out)
		case <-ctx.Done():
		case now := <-ticker.C:
			rss := residentBytes(t, p.cmd.Process.Pid)
			t.Logf("%6s  %d MiB", now.Sub(begun).Round(time.Second), rss>>20)
			if now.Sub(begun) >= warm {
				samples = append(samples, rss)
			}
		}
	}
	require.NoError(t, p.end(t, os.Interrupt), "%s", p.out)
	require.GreaterOrEqual(t, len(samples), 10)
	few := max(5, len(samples)/10)
	first, last := median(samples[:few]), median(samples[len(samples)-few:])
	growth := 100 * float64(last-first) / float64(first)
	t.Logf("from %d to %d MiB: %+.1f %%", first>>20, last>>20, growth)
	require.LessOrEqual(t, growth, 5.0, "percent that resident memory grew by after %s", warm)
}

// residentBytes is the resident memory of a process.
func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err, "the soak test needs Linux")
	_, rest, found := strings.Cut(string(text), "VmRSS:")
	require.True(t, found)
	var kib int64
	_, err = fmt.Sscan(rest, &kib)
	require.NoError(t, err)
	return kib << 10
}

func median[T cmp.Ordered](of []T) T {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
