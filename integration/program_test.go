package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/stack"
)

func readText(t testing.TB, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func glob(t testing.TB, pattern ...string) []string {
	paths, err := filepath.Glob(filepath.Join(pattern...))
	require.NoError(t, err)
	return paths
}

type outcome struct {
	code           int
	stdout, stderr string
}

// run runs the program, whatever its exit code.
func (s *system) run(args ...string) outcome {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(testkit.Within(s.t, 2*time.Minute), s.program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		require.ErrorAs(s.t, err, new(*exec.ExitError), "kudos %v", args)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (s *system) exits(code int, args ...string) outcome {
	out := s.run(args...)
	require.Equal(s.t, code, out.code, "kudos %v: %s%s", args, out.stdout, out.stderr)
	return out
}

// fails runs the program, which must exit with code 1 and say why.
func (s *system) fails(args []string, says ...string) {
	out := s.exits(1, args...)
	for _, words := range says {
		require.Contains(s.t, out.stderr, words, "kudos %v", args)
	}
}

// report decodes the JSON output of a command, and requires its exit code.
func (s *system) report(into any, code int, args ...string) {
	out := s.exits(code, args...)
	require.NoError(s.t, json.Unmarshal([]byte(out.stdout), into), "%s", out.stdout)
}

func (s *system) command(args ...string) string {
	out := s.exits(0, args...)
	return out.stdout + out.stderr
}

// killWhen starts a command, and kills it when a condition holds.
func (s *system) killWhen(what string, condition func() bool, args ...string) {
	cmd := exec.CommandContext(s.t.Context(), s.program, args...)
	require.NoError(s.t, cmd.Start())
	waitFor(s.t, time.Minute, what, condition)
	require.NoError(s.t, cmd.Process.Kill())
	require.Error(s.t, cmd.Wait(), "the command finished before it was killed")
}

func (s *system) on(args ...string) []string {
	return append(args, "--brokers", s.brokerList(), "--set", s.mysql())
}

func (s *system) operate(args ...string) outcome { return s.run(s.on(args...)...) }

// process is a role whose admin server keeps its address over restarts.
type process struct {
	*stack.Server
	t     testing.TB
	admin string // host:port
}

// process returns a process that is stopped at the end of the test.
func (s *system) process(name, dir string, args ...string) *process {
	p := &process{t: s.t, admin: stack.ReserveForTest(s.t)}
	p.Server = stack.ProgramForTest(s.t, stack.ProgramOptions{Name: name, Path: s.program, Dir: dir, Log: s.log,
		Args: append(args, "--set", "admin.addr="+p.admin)})
	return p
}

// role returns a process of a role that needs only the brokers.
func (s *system) role(name, role string, args ...string) *process {
	return s.process(name, s.t.TempDir(), append([]string{role, "--brokers", s.brokerList()}, args...)...)
}

// processor returns a processor with its own state directory; args are additional flags.
func (s *system) processor(name string, args ...string) *process {
	dir := s.t.TempDir()
	return s.process(name, dir, append(s.on("processor", "--set", "processor.session_timeout="+s.sessionTimeout,
		"--set", "processor.state_dir="+cmp.Or(s.stateDir, filepath.Join(dir, "state"))),
		slices.Concat(s.processorArgs, args)...)...)
}

func (s *system) twoProcessors(args ...string) []*process {
	return []*process{s.processor("processor-0", args...).start(), s.processor("processor-1", args...).start()}
}

func (s *system) ranker(name string, args ...string) *process {
	dir := cmp.Or(s.stateDir, s.t.TempDir())
	return s.process(name, dir, append(s.on("ranker", "--set", "ranker.session_timeout="+s.sessionTimeout,
		"--set", "ranker.state_dir="+filepath.Join(dir, "state"),
		"--set", "ranker.emit_interval="+cmp.Or(s.emitInterval, "50ms")), args...)...)
}

// reader is a reader with its own local store.
type reader struct {
	*process
	base, stateDir string // base: http://host:port
}

// ownBase in the arguments of a reader stands for its base.
const ownBase = "http://reader"

func (s *system) reader(name string, args ...string) *reader {
	dir, http := s.t.TempDir(), stack.ReserveForTest(s.t)
	r := &reader{base: "http://" + http, stateDir: filepath.Join(dir, "state")}
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, ownBase, r.base)
	}
	r.process = s.process(name, dir, append(s.on("reader", "--set", "reader.http_addr="+http,
		"--set", "reader.state_dir="+r.stateDir, "--set", "reader.max_wait=20s", "--set", "reader.write_timeout=1m"),
		args...)...)
	return r
}

func (s *system) startReader(name string, args ...string) *reader {
	r := s.reader(name, args...)
	r.start()
	return r
}

func (p *process) start() *process { require.NoError(p.t, p.Start(p.t.Context())); return p }

// startAll starts processes at once, and returns when all of them are ready.
func startAll(processes ...*process) {
	for _, p := range processes {
		p.start()
	}
	for _, p := range processes {
		p.waitReady()
	}
}

func (p *process) kill()       { require.NoError(p.t, p.Kill()) }
func (p *process) stop()       { require.NoError(p.t, p.Stop()) }
func (p *process) ready() bool { ready, _ := p.said("readyz"); return ready }

func (p *process) waitReady() {
	waitSaid(p.t, time.Minute, p.String()+" to be ready", func() (bool, any) { return p.said("readyz") })
}

func (p *process) waitAlive() {
	waitSaid(p.t, time.Minute, p.String()+" to respond", func() (bool, any) { return p.said("livez") })
}

// said returns the response of the admin server, and whether it was successful.
func (p *process) said(of string) (well bool, text string) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + p.admin + "/" + of)
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	require.NoError(p.t, err)
	return resp.StatusCode == http.StatusOK, string(body)
}

func (p *process) logged() string { return readText(p.t, p.LogPath()) }

func (p *process) waitLogged(words ...string) {
	waitFor(p.t, time.Minute, fmt.Sprintf("%s to log %q", p, words), func() bool {
		log := p.logged()
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(log, word) })
	})
}

func (p *process) metrics() map[string]*dto.MetricFamily {
	resp, err := http.Get("http://" + p.admin + "/metrics")
	require.NoError(p.t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(p.t, err)
	return families
}

// sample is the value of a counter or gauge, with its labels.
type sample struct {
	value  float64
	labels map[string]string
}

func (p *process) samples(name string, labels map[string]string) (found []sample) {
	for _, m := range p.metrics()[name].GetMetric() {
		s := sample{m.GetCounter().GetValue() + m.GetGauge().GetValue(), map[string]string{}}
		for _, l := range m.GetLabel() {
			s.labels[l.GetName()] = l.GetValue()
		}
		fits := true
		for label, value := range labels {
			fits = fits && s.labels[label] == value
		}
		if fits {
			found = append(found, s)
		}
	}
	return found
}

func (p *process) sum(name string, labels map[string]string) (sum float64) {
	for _, s := range p.samples(name, labels) {
		sum += s.value
	}
	return sum
}
