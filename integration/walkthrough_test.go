package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

const walkthroughsDoc = "../docs/walkthroughs.md"

// What the test does, as the document names it.
const (
	replicaFollows = "a replica follows the primary"
	primaryDies    = "the primary dies"
)

// Of one command of a document, and of the roles that are left when it was run to its end.
const (
	stepTimeout  = 3 * time.Minute
	leaveTimeout = time.Minute
)

// TestWalkthroughs does what docs/walkthroughs.md says, each chapter for itself on a real Kafka and a real MariaDB after
// what all begin with and Deploy: what the blocks have to run is run as it stands there, what they show must be shown,
// and at the end the counts are exact. Only the addresses in the first block are others.
func TestWalkthroughs(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	text, err := os.ReadFile(walkthroughsDoc)
	require.NoError(t, err)
	chapters, err := readWalkthroughs(string(text))
	require.NoError(t, err)
	var titles []string
	for _, c := range chapters {
		titles = append(titles, c.title)
	}
	require.Equal(t, []string{"Before you begin", "Deploy", "Watch", "Upgrade", "MySQL failover", "Lost state disk", "Poison flood", "Audit difference", "Parked partition"}, titles)
	for i, c := range chapters[1:] {
		went := t.Run(c.title, func(t *testing.T) {
			w := newWalk(t)
			if slices.ContainsFunc(c.steps, func(s step) bool { return s.incident == replicaFollows }) {
				w.replica = stack.MariaDBForTest(t, stack.DatabaseOptions{ExtraArgs: []string{"--server-id=2"}})
				w.addresses["127.0.0.1:3307"] = w.replica.Address()
			}
			w.begin(chapters[0].steps)
			w.do(chapters[1].steps)
			if i > 0 {
				w.do(c.steps)
			}
			w.connect()
			w.drain(time.Minute)
			w.requireExact()
		})
		if i == 0 && !went {
			return // the others begin with it, too
		}
	}
}

// walk is a person who walks through the document, in a shell.
type walk struct {
	*system
	primary, replica *stack.Database // replica: nil until it is wanted
	addresses        map[string]string
	dir              string
	in               io.WriteCloser
	out              *bufio.Reader
	cmd              *exec.Cmd
	commands         int
}

// walkDatabase is what the document calls the database.
const walkDatabase = "kudos"

// newWalk has empty servers and a shell in an empty folder.
func newWalk(t *testing.T) *walk {
	t.Helper()
	for _, program := range []string{"bash", "curl", "kcat", "mariadb"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%v: make deps", err)
			}
			t.Skipf("%v: make deps", err)
		}
	}
	w := &walk{system: newSystem(t), primary: stack.MariaDBForTest(t, stack.DatabaseOptions{}), dir: t.TempDir()}
	kafka := shared.Kafka(t)
	require.NoError(t, kafka.Reset(t.Context()))
	w.brokers, w.dsn = kafka.Brokers(), w.primary.DSN(walkDatabase)
	w.addresses = map[string]string{"127.0.0.1:9092": w.brokers[0], "127.0.0.1:3306": w.primary.Address()}
	w.openShell()
	return w
}

// openShell starts it. It ends, and its jobs with it, when nobody is there to type any more: at the end of this process, too.
func (w *walk) openShell() {
	w.t.Helper()
	bin := filepath.Join(w.dir, "bin")
	require.NoError(w.t, os.Mkdir(bin, 0o755))
	require.NoError(w.t, os.Symlink(w.program, filepath.Join(bin, "kudos")))
	w.cmd = exec.Command("bash", "--noprofile", "--norc")
	w.cmd.Dir, w.cmd.WaitDelay = w.dir, leaveTimeout
	w.cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "LC_ALL=C.UTF-8")
	in, err := w.cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, w.cmd.Start())
	w.in, w.out = in, bufio.NewReader(out)
	w.t.Cleanup(w.closeShell)
	_, err = io.WriteString(in, "set -eu; exec 2>&1; trap 'kill $(jobs -p) || true; wait' EXIT\n")
	require.NoError(w.t, err)
}

func (w *walk) closeShell() {
	_ = w.in.Close() // a shell that has failed has closed it
	guard := time.AfterFunc(leaveTimeout, func() { _ = w.cmd.Process.Kill() })
	defer guard.Stop()
	_, _ = io.Copy(io.Discard, w.out)
	err := w.cmd.Wait()
	if !w.t.Failed() {
		require.NoError(w.t, err, "the shell")
		return
	}
	logs, err := filepath.Glob(filepath.Join(w.dir, "*.log"))
	require.NoError(w.t, err)
	for _, log := range logs {
		text, err := os.ReadFile(log)
		require.NoError(w.t, err)
		w.t.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-4000):])
	}
}

// begin runs what all begin with, where the first block has the addresses.
func (w *walk) begin(steps []step) {
	w.t.Helper()
	first := steps[0]
	first.command = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(first.command, func(address string) string {
		if w.addresses[address] == "" {
			w.addresses[address] = w.address()
		}
		return w.addresses[address]
	})
	w.do([]step{first})
	w.do(steps[1:])
}

func (w *walk) do(steps []step) {
	w.t.Helper()
	for _, s := range steps {
		if s.incident != "" {
			w.befall(s)
			continue
		}
		output, err := w.enter(s.command)
		if s.compared {
			w.t.Logf("$ %s\n%s", s.command, output)
		}
		if err != nil {
			w.t.Fatalf("docs/walkthroughs.md:%d: %v: %s\n%s", s.line, err, s.command, output)
		}
		if s.compared && !shown(s.want, output) {
			w.t.Fatalf("docs/walkthroughs.md:%d: %s\nshows:\n%s\nand in the document stands:\n%s", s.line, s.command, output, strings.Join(s.want, "\n"))
		}
	}
}

// enter runs a command, and returns what it printed. A command that fails ends the shell.
func (w *walk) enter(command string) (string, error) {
	w.commands++
	file := filepath.Join(w.dir, fmt.Sprintf("command-%d", w.commands))
	if err := os.WriteFile(file, []byte(command+"\n"), 0o644); err != nil {
		return "", err
	}
	const end = '\036' // the record separator: nothing here prints it
	if _, err := fmt.Fprintf(w.in, ". %s </dev/null; printf '\\036'\n", file); err != nil {
		return "", fmt.Errorf("the shell has ended: %w", err)
	}
	guard := time.AfterFunc(stepTimeout, func() { _ = w.cmd.Process.Kill() })
	defer guard.Stop()
	output, err := w.out.ReadString(end)
	if errors.Is(err, io.EOF) {
		return output, errors.New("it failed")
	}
	return strings.TrimSuffix(output, string(end)), err
}

// befall is what a reader is told in words.
func (w *walk) befall(s step) {
	w.t.Helper()
	w.t.Logf("(%s)", s.incident)
	ctx, cancel := context.WithTimeout(w.t.Context(), stepTimeout)
	defer cancel()
	switch s.incident {
	case replicaFollows:
		require.NoError(w.t, w.replica.Follow(ctx, w.primary, walkDatabase))
	case primaryDies:
		require.NoError(w.t, w.primary.Kill())
		w.dsn = w.replica.DSN(walkDatabase)
	default:
		w.t.Fatalf("docs/walkthroughs.md:%d: %q is nothing that the test can do", s.line, s.incident)
	}
}
