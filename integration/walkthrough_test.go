package integration

import (
	"bufio"
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

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

const walkthroughsDoc = "../docs/walkthroughs.md"

// What the test does, by its name in the document.
const (
	replicaFollows = "a replica follows the primary"
	primaryDies    = "the primary dies"
)

// Limits for one command of a document, and for the remaining roles to end after the last one.
const (
	stepTimeout  = 3 * time.Minute
	leaveTimeout = time.Minute
)

// TestWalkthroughs follows each chapter of docs/walkthroughs.md on a real Kafka and MariaDB, after the common start and
// Deploy. Commands run as written, except for the first block's addresses; output must match, and counts be exact.
func TestWalkthroughs(t *testing.T) {
	parallel(t, tier.Verify)
	chapters, err := readWalkthroughs(readText(t, walkthroughsDoc))
	require.NoError(t, err)
	var titles []string
	for _, c := range chapters {
		titles = append(titles, c.title)
	}
	require.Equal(t, []string{"Before you begin", "Deploy", "Watch", "Upgrade", "MySQL failover", "Lost state disk",
		"Burst of invalid events", "Audit difference", "Parked partition"}, titles)
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
			w.drainExact(time.Minute)
		})
		if i == 0 && !went {
			return // the others start with it too
		}
	}
}

// walk is a walk through the document in a shell.
type walk struct {
	*system
	primary, replica *stack.Database // replica: nil until it is needed
	addresses        map[string]string
	dir              string
	in               io.WriteCloser
	out              *bufio.Reader
	cmd              *exec.Cmd
	commands         int
}

const walkDatabase = "kudos"

// newWalk has empty servers and a shell in an empty directory.
func newWalk(t *testing.T) *walk {
	tier.NeedPrograms(t, "bash", "curl", "kcat", "mariadb")
	w := &walk{system: newEmptySystem(t), primary: stack.MariaDBForTest(t, stack.DatabaseOptions{}), dir: t.TempDir()}
	w.dsn = w.primary.DSN(walkDatabase)
	w.addresses = map[string]string{"127.0.0.1:9092": w.brokers[0], "127.0.0.1:3306": w.primary.Address()}
	w.openShell()
	return w
}

// openShell starts the shell. It ends, with its jobs, when its input is closed, and so also at the end of this process.
func (w *walk) openShell() {
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
	_ = w.in.Close() // a failed shell has closed it already
	guard := time.AfterFunc(leaveTimeout, func() { _ = w.cmd.Process.Kill() })
	defer guard.Stop()
	_, _ = io.Copy(io.Discard, w.out)
	err := w.cmd.Wait()
	if !w.t.Failed() {
		require.NoError(w.t, err, "the shell")
		return
	}
	for _, log := range glob(w.t, w.dir, "*.log") {
		text := readText(w.t, log)
		w.t.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-4000):])
	}
}

// begin runs the common start, whose first block has the addresses.
func (w *walk) begin(steps []step) {
	first := steps[0]
	first.command = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(first.command,
		func(address string) string {
			if w.addresses[address] == "" {
				w.addresses[address] = stack.ReserveForTest(w.t)
			}
			return w.addresses[address]
		})
	w.do(append([]step{first}, steps[1:]...))
}

func (w *walk) do(steps []step) {
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
			w.t.Fatalf("docs/walkthroughs.md:%d: %s\nprints:\n%s\nbut the document has:\n%s", s.line, s.command,
				output, strings.Join(s.want, "\n"))
		}
	}
}

// enter runs a command and returns its output. A command that fails ends the shell.
func (w *walk) enter(command string) (string, error) {
	w.commands++
	file := filepath.Join(w.dir, fmt.Sprintf("command-%d", w.commands))
	if err := os.WriteFile(file, []byte(command+"\n"), 0o644); err != nil {
		return "", err
	}
	const end = '\036' // the record separator, which no command prints
	if _, err := fmt.Fprintf(w.in, ". %s </dev/null; printf '\\036'\n", file); err != nil {
		return "", fmt.Errorf("the shell has exited: %w", err)
	}
	guard := time.AfterFunc(stepTimeout, func() { _ = w.cmd.Process.Kill() })
	defer guard.Stop()
	output, err := w.out.ReadString(end)
	if errors.Is(err, io.EOF) {
		return output, errors.New("the command failed")
	}
	return strings.TrimSuffix(output, string(end)), err
}

// befall does what the document describes in words.
func (w *walk) befall(s step) {
	w.t.Logf("(%s)", s.incident)
	ctx := testkit.Within(w.t, stepTimeout)
	switch s.incident {
	case replicaFollows:
		require.NoError(w.t, w.replica.Follow(ctx, w.primary, walkDatabase))
	case primaryDies:
		require.NoError(w.t, w.primary.Kill())
		w.dsn = w.replica.DSN(walkDatabase)
	default:
		w.t.Fatalf("docs/walkthroughs.md:%d: unknown incident %q", s.line, s.incident)
	}
}

// A document of walk-throughs is Markdown. Each chapter (##) is a walk-through, except for the first, which all of them
// start with. A block ```sh is run as it is. A block ```console shows a terminal: lines after "$ " are commands ("> "
// continues the line before), and the lines below are the expected output, in which … matches anything: part of a line
// or, alone on a line, any number of lines. Runs of spaces are equal. A comment <!-- test: … --> names what happens to
// the servers at that point, which the document describes in words.

// walkthrough is one chapter.
type walkthrough struct {
	title string
	steps []step
}

// step is one command, or something that the test does.
type step struct {
	line     int // in the document
	command  string
	want     []string // expected output lines
	compared bool     // whether the output is compared
	incident string   // instead of a command
}

// blockOf parses the steps of a block whose first line has number first.
func blockOf(language string, first int, lines []string) (steps []step, err error) {
	switch language {
	case "sh":
		return []step{{line: first, command: strings.Join(lines, "\n")}}, nil
	case "console":
	default:
		return nil, fmt.Errorf("line %d: block of language %q: must be sh or console", first-1, language)
	}
	for i, line := range lines {
		last := len(steps) - 1
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, step{line: first + i, command: command, compared: true})
			continue
		}
		if last < 0 {
			return nil, fmt.Errorf("line %d: output without a command before it: %s", first+i, line)
		}
		if more, ok := strings.CutPrefix(line, "> "); ok && len(steps[last].want) == 0 {
			steps[last].command += "\n" + more
		} else {
			steps[last].want = append(steps[last].want, line)
		}
	}
	return steps, nil
}

var walkthroughParts = regexp.MustCompile(
	"(?ms)^## (?P<title>[^\n]+)$|^<!-- test: (?P<incident>[^\n]+) -->$|" +
		"^```(?P<language>[^\n]*)\n(?P<block>.*?)(?P<end>^```$|\\z)")

// readWalkthroughs parses a document. The first chapter is the common start.
func readWalkthroughs(document string) (chapters []walkthrough, err error) {
	for _, at := range walkthroughParts.FindAllStringSubmatchIndex(document, -1) {
		part := func(name string) string {
			return string(walkthroughParts.ExpandString(nil, "${"+name+"}", document, at))
		}
		line := 1 + strings.Count(document[:at[0]], "\n")
		if title := part("title"); title != "" {
			chapters = append(chapters, walkthrough{title: title})
			continue
		}
		if len(chapters) == 0 {
			return nil, fmt.Errorf("line %d: a block outside of any chapter", line)
		}
		steps := []step{{line: line, incident: part("incident")}}
		if steps[0].incident == "" {
			if part("end") == "" {
				return nil, fmt.Errorf("line %d: a block without an end", line)
			}
			lines := strings.Split(strings.TrimSuffix(part("block"), "\n"), "\n")
			if steps, err = blockOf(part("language"), line+1, lines); err != nil {
				return nil, err
			}
		}
		last := &chapters[len(chapters)-1]
		last.steps = append(last.steps, steps...)
	}
	return chapters, nil
}

// shown reports whether output matches the expected lines.
func shown(want []string, output string) bool {
	var pattern strings.Builder
	for _, line := range want {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		parts := strings.Split(strings.TrimSpace(line), "…")
		for i := range parts {
			parts[i] = regexp.MustCompile(`\s+`).ReplaceAllString(regexp.QuoteMeta(parts[i]), `[ \t]+`)
		}
		pattern.WriteString(`[ \t]*` + strings.Join(parts, ".*") + `[ \t]*\n`)
	}
	if output = strings.TrimRight(output, "\n"); output != "" {
		output += "\n"
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(output)
}

func TestShown(t *testing.T) {
	for _, c := range []struct {
		want, output string
		is           bool
	}{
		{"ready", "ready\n", true},
		{"ready", "not ready\n", false},
		{"ready", "ready\nand more\n", false},
		{"ready", "", false},
		{"", "", true},
		{"", "words\n", false},
		{"| 7 | 40 |", "|  7 |    40 |\n", true},
		{"| 7 | 40 |", "|  7 |   140 |\n", false},
		{"7 times", "   7 times \n", true},
		{"took … ms.", "took 12 ms.\n", true},
		{"took … ms.", "took 12 ms!\n", false},
		{"took … ms.", "took\n12 ms.\n", false},
		{"a\n…\nb", "a\nb\n", true},
		{"a\n…\nb", "a\n1\n2\nb\n", true},
		{"a\n…\nb", "a\n1\n2\n", false},
		{"…\nb", "a\nb\nc\n", false},
	} {
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "\n")
		}
		require.Equal(t, c.is, shown(want, c.output), "output %q, expected %q", c.output, c.want)
	}
}

func TestReadWalkthroughs(t *testing.T) {
	document := "# Title\nWords.\n## Before\n```sh\na=1\nb=2\n```\n## One\nWords.\n<!-- test: it breaks -->\n" +
		"```console\n$ echo 'x\n> y'\nx\ny\n$ true\n$ echo z\n…\n```\n"
	chapters, err := readWalkthroughs(document)
	require.NoError(t, err)
	require.Equal(t, []walkthrough{
		{title: "Before", steps: []step{{line: 5, command: "a=1\nb=2"}}},
		{title: "One", steps: []step{
			{line: 10, incident: "it breaks"},
			{line: 12, command: "echo 'x\ny'", want: []string{"x", "y"}, compared: true},
			{line: 16, command: "true", compared: true},
			{line: 17, command: "echo z", want: []string{"…"}, compared: true},
		}},
	}, chapters)
	for says, document := range map[string]string{
		"line 2: block of language \"bash\"": "## One\n```bash\na\n```\n",
		"line 1: a block outside of any":     "```sh\na\n```\n",
		"line 2: a block without an end":     "## One\n```sh\na\n",
		"line 3: output without a command":   "## One\n```console\na\n```\n",
	} {
		_, err := readWalkthroughs(document)
		require.ErrorContains(t, err, says)
	}
}
