package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
)

// system is all of kudos, as processes, on the shared servers.
type system struct {
	t            testing.TB
	program      string
	brokers, dsn string
	readerURL    string
	producerURL  string
	reader       *stack.Server
}

// newSystem starts it, and returns when the reader answers.
func newSystem(t testing.TB) *system {
	t.Helper()
	stack.Require(t, stack.NeedBrowser)
	kafka := shared.Kafka(t)
	program := shared.Kudos(t)
	require.NoError(t, kafka.Reset(t.Context()))
	readerAt, producerAt := reserve(t), reserve(t)
	s := &system{
		t: t, program: program, brokers: strings.Join(kafka.Brokers(), ","), dsn: shared.MariaDB(t).NewDatabase(t),
		readerURL: "http://" + readerAt, producerURL: "http://" + producerAt,
	}
	s.command("topics", "apply", "--brokers", s.brokers, "--set", "topics.partitions=4", "--set", "topics.replication_factor=1")
	s.command("migrate", "--mysql-dsn", s.dsn)

	s.start("processor", nil, "--mysql-dsn", s.dsn)
	// A like is to show in rankings at once, though nothing else happens here.
	s.start("ranker", nil, "--mysql-dsn", s.dsn, "--set", "ranker.allowed_lateness=0s", "--set", "ranker.idle_after=1s", "--set", "ranker.emit_interval=50ms")
	s.start("producer", dials(producerAt), "--set", "producer.http_addr="+producerAt, "--set", "producer.origins="+s.readerURL)
	s.reader = s.start("reader", s.readerAnswers, "--mysql-dsn", s.dsn, "--set", "reader.http_addr="+readerAt, "--set", "reader.producer_url="+s.producerURL)
	return s
}

// reserve takes an address that stays ours while its server is down.
func reserve(t testing.TB) string {
	t.Helper()
	r, err := stack.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Release()) })
	return r.Address()
}

// command runs the program to its end.
func (s *system) command(args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.program, args...).CombinedOutput()
	require.NoError(s.t, err, "kudos %s\n%s", args, out)
}

// start runs a role until the end of the test. Its state folder is a setting of its role.
func (s *system) start(role string, probe func(context.Context) error, args ...string) *stack.Server {
	s.t.Helper()
	dir := s.t.TempDir()
	args = append([]string{role, "--brokers", s.brokers, "--set", "admin.addr=127.0.0.1:0"}, args...)
	if role != "producer" {
		args = append(args, "--set", role+".state_dir="+filepath.Join(dir, "state"))
	}
	p := stack.NewProgram(stack.ProgramOptions{Name: role, Path: s.program, Dir: dir, Args: args, Probe: probe})
	require.NoError(s.t, p.Start(s.t.Context()))
	s.t.Cleanup(func() {
		if p.Running() {
			require.NoError(s.t, p.Stop())
		}
		if s.t.Failed() {
			s.t.Logf("log of %s:\n%s", p, p.LogTail())
		}
	})
	return p
}

// dials tells whether something listens at an address.
func dials(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// readerAnswers tells whether the reader has caught up in every partition.
func (s *system) readerAnswers(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.readerURL+"/v1/stats", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var stats struct{ Partitions []struct{ Ready bool } }
	if err := json.NewDecoder(response.Body).Decode(&stats); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("the reader answers %s: %w", response.Status, err)
	}
	for i, p := range stats.Partitions {
		if !p.Ready {
			return fmt.Errorf("partition %d of the reader is not ready", i)
		}
	}
	return nil
}
