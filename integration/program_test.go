package integration

import (
	"bytes"
	"cmp"
	"context"
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

	"kudos/integration/stack"
)

// missing skips a test that cannot run here. CI has everything, so there it fails.
func missing(t testing.TB, what string) {
	if os.Getenv("CI") != "" {
		require.FailNow(t, what)
	}
	t.Skip(what)
}

func needPrograms(t testing.TB, programs ...string) {
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, fmt.Sprintf("%v: make deps", err))
		}
	}
}

// outcome is what a command printed and how it ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs the program to its end, whatever that is.
func (s *system) run(args ...string) outcome {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		require.ErrorAs(s.t, err, new(*exec.ExitError), "kudos %v", args)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// fails runs the program, which must end with code 1 and say why it does not do what it is told.
func (s *system) fails(args []string, says ...string) {
	out := s.run(args...)
	require.Equal(s.t, 1, out.code, "kudos %v: %s%s", args, out.stdout, out.stderr)
	for _, words := range says {
		require.Contains(s.t, out.stderr, words, "kudos %v", args)
	}
}

// report reads the JSON that a command prints, which must end with this code.
func (s *system) report(into any, code int, args ...string) {
	out := s.run(args...)
	require.Equal(s.t, code, out.code, "kudos %v: %s%s", args, out.stdout, out.stderr)
	require.NoError(s.t, json.Unmarshal([]byte(out.stdout), into), "%s", out.stdout)
}

// command runs the program to its end, which must be a good one, and returns what it printed.
func (s *system) command(args ...string) string {
	out := s.run(args...)
	require.Zero(s.t, out.code, "kudos %v: %s%s", args, out.stdout, out.stderr)
	return out.stdout + out.stderr
}

// killWhen starts a command, and kills it before its end when a condition holds.
func (s *system) killWhen(what string, condition func() bool, args ...string) {
	cmd := exec.CommandContext(s.t.Context(), s.program, args...)
	require.NoError(s.t, cmd.Start())
	waitFor(s.t, time.Minute, what, condition)
	require.NoError(s.t, cmd.Process.Kill())
	require.Error(s.t, cmd.Wait(), "it was not done yet")
}

// on is a command on the brokers and the databases of the system.
func (s *system) on(args ...string) []string {
	return append(args, "--brokers", s.brokerList(), "--set", s.mysql())
}

func (s *system) operate(args ...string) outcome {
	return s.run(s.on(args...)...)
}

// process is a role, whose admin server is at the same address whenever it is started again.
type process struct {
	*stack.Server
	t     testing.TB
	admin string // host:port
}

// process makes one, which is stopped at the end of the test.
func (s *system) process(name, dir string, args ...string) *process {
	p := &process{t: s.t, admin: stack.ReserveForTest(s.t)}
	p.Server = stack.ProgramForTest(s.t, stack.ProgramOptions{
		Name: name, Path: s.program, Dir: dir, Log: s.log, Args: append(args, "--set", "admin.addr="+p.admin),
	})
	return p
}

// role makes a process of a role that needs nothing but the brokers.
func (s *system) role(name, role string, args ...string) *process {
	return s.process(name, s.t.TempDir(), append([]string{role, "--brokers", s.brokerList()}, args...)...)
}

// processor makes a processor with a state folder of its own; args are more flags.
func (s *system) processor(name string, args ...string) *process {
	dir := s.t.TempDir()
	return s.process(name, dir, append(s.on("processor", "--set", "processor.session_timeout="+s.sessionTimeout,
		"--set", "processor.state_dir="+cmp.Or(s.stateDir, filepath.Join(dir, "state"))), args...)...)
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

// reader is a reader with a local store of its own.
type reader struct {
	*process
	base, stateDir string // base: http://host:port
}

func (s *system) reader(name string, args ...string) *reader {
	dir, http := s.t.TempDir(), stack.ReserveForTest(s.t)
	r := &reader{base: "http://" + http, stateDir: filepath.Join(dir, "state")}
	r.process = s.process(name, dir, append(s.on("reader", "--set", "reader.http_addr="+http,
		"--set", "reader.state_dir="+r.stateDir, "--set", "reader.max_wait=20s", "--set", "reader.write_timeout=1m"),
		args...)...)
	return r
}

// startReader starts a reader; it is not ready yet.
func (s *system) startReader(name string, args ...string) *reader {
	r := s.reader(name, args...)
	r.start()
	return r
}

func (p *process) start() *process {
	require.NoError(p.t, p.Start(p.t.Context()))
	return p
}

func (p *process) kill() {
	require.NoError(p.t, p.Kill())
}

func (p *process) stop() {
	require.NoError(p.t, p.Stop())
}

func (p *process) ready() bool {
	ready, _ := p.said("readyz")
	return ready
}

func (p *process) waitReady() {
	waitSaid(p.t, time.Minute, p.String()+" to be ready", func() (bool, any) {
		ready, text := p.said("readyz")
		return ready, text
	})
}

// waitAlive waits until its admin server answers.
func (p *process) waitAlive() {
	waitFor(p.t, time.Minute, p.String()+" to answer", func() bool { alive, _ := p.said("livez"); return alive })
}

// said is what its admin server answers, and whether all is well.
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

func (p *process) logged() string {
	text, err := os.ReadFile(p.LogPath())
	require.NoError(p.t, err)
	return string(text)
}

// waitLogged waits until its log has all of these words.
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

// sample is the value of a counter or gauge, and its labels.
type sample struct {
	value  float64
	labels map[string]string
}

// samples are those of a metric that have these labels.
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

// sum is that of a metric over all labels but these.
func (p *process) sum(name string, labels map[string]string) (sum float64) {
	for _, s := range p.samples(name, labels) {
		sum += s.value
	}
	return sum
}
