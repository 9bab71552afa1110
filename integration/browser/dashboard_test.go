package browser_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

const (
	installWithin = 3 * time.Minute
	testsWithin   = 10 * time.Minute
)

func TestDashboard(t *testing.T) {
	tier.Test(t)
	s := newSystem(t)
	control := httptest.NewServer(http.HandlerFunc(s.control))
	t.Cleanup(control.Close)
	install(t)
	node(t, []string{"KUDOS_READER=" + s.readerURL, "KUDOS_PRODUCER=" + s.producerURL, "KUDOS_CONTROL=" + control.URL,
		"KUDOS_TITLES=" + s.titlesURL, "KUDOS_ADMIN=" + s.adminURL, "KUDOS_GONE=" + s.goneURL},
		"--test", "--test-reporter=spec", "dashboard.test.mjs")
}

// TestLockFileNamesNoRegistry: npm must use the registry that the user has configured.
func TestLockFileNamesNoRegistry(t *testing.T) {
	lock, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	require.NotRegexp(t, `"resolved"|https?://`, string(lock),
		"fix: npm config set omit-lockfile-registry-resolved true, and recreate the file")
	require.Contains(t, string(lock), `"integrity"`)
}

// control does what the script in the browser cannot: kill the reader and start it again.
func (s *system) control(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.Method + " " + r.URL.Path {
	case "POST /reader/kill":
		err = s.reader.Kill()
	case "POST /reader/start":
		err = s.reader.Start(r.Context())
	case "POST /audit":
		s.command("audit", "--brokers", s.brokers, "--mysql-dsn", s.dsn)
	default:
		err = errors.New("unknown control request")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func install(t testing.TB) {
	run(t, installWithin, nil, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
}

func node(t testing.TB, environment []string, args ...string) {
	chromium, err := stack.Chromium()
	require.NoError(t, err)
	run(t, testsWithin, append(environment, "KUDOS_CHROMIUM="+chromium), "node", args...)
}

func run(t testing.TB, within time.Duration, environment []string, name string, args ...string) {
	cmd := exec.CommandContext(testkit.Within(t, within), name, args...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets it close its browser
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Run(), "%s (within %v)", cmd, within)
}

const screenshotsVariable = "KUDOS_TEST_SCREENSHOTS"

// TestScreenshots is `make screenshots`: it starts `kudos dev` with defaults and takes screenshots for a few minutes.
func TestScreenshots(t *testing.T) {
	directory := os.Getenv(screenshotsVariable)
	if directory == "" {
		t.Skipf("writes the screenshots of the README if %s=DIRECTORY is set (make screenshots)", screenshotsVariable)
	}
	stack.Require(t, stack.NeedBrowser)
	dir, free := t.TempDir(), "127.0.0.1:0"
	ready := filepath.Join(dir, "ready.json")
	dev := stack.ProgramForTest(t, stack.ProgramOptions{Name: "dev", Path: shared.Kudos(t), Dir: dir,
		Args: []string{"dev", "--simulate", "2000", "--ready-file", ready, "--kafka-addr", free, "--mysql-addr", free,
			"--http-addr", free, "--reader-addr", free, "--admin-addr", free},
		Probe: func(context.Context) error { _, err := os.Stat(ready); return err }})
	require.NoError(t, dev.Start(t.Context()))
	text, err := os.ReadFile(ready)
	require.NoError(t, err)
	var at struct{ HTTP, Reader string }
	require.NoError(t, json.Unmarshal(text, &at))
	install(t)
	node(t, []string{"KUDOS_READER=http://" + at.Reader, "KUDOS_PRODUCER=http://" + at.HTTP,
		screenshotsVariable + "=" + directory}, "screenshots.mjs")
}

var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

type system struct {
	t                                             testing.TB
	program, brokers, dsn, readerURL, producerURL string
	reader                                        *stack.Server

	titlesURL, adminURL, goneURL string // a server of titles, and two admin servers, of which one does not exist
}

func newSystem(t testing.TB) *system {
	stack.Require(t, stack.NeedBrowser)
	kafka := shared.Kafka(t)
	require.NoError(t, kafka.Reset(t.Context()))
	readerAt, producerAt := stack.ReserveForTest(t), stack.ReserveForTest(t)
	s := &system{
		t: t, program: shared.Kudos(t), brokers: strings.Join(kafka.Brokers(), ","),
		dsn:       shared.MariaDB(t).NewDatabase(t),
		readerURL: "http://" + readerAt, producerURL: "http://" + producerAt,
		goneURL: "http://" + stack.ReserveForTest(t),
	}
	adminAt := stack.ReserveForTest(t)
	titles := httptest.NewServer(http.HandlerFunc(serveTitle))
	t.Cleanup(titles.Close)
	s.titlesURL, s.adminURL = titles.URL, "http://"+adminAt
	const buckets = "topics.user_buckets=7700:8" // a post in all partitions
	s.command("topics", "apply", "--brokers", s.brokers, "--set", "topics.partitions=4",
		"--set", "topics.replication_factor=1", "--set", buckets)
	s.command("migrate", "--mysql-dsn", s.dsn)

	s.start("processor", nil, "--mysql-dsn", s.dsn, "--set", "admin.addr="+adminAt)
	// Makes likes appear in rankings at once, although nothing else happens here.
	s.start("ranker", nil, "--mysql-dsn", s.dsn, "--set", "ranker.allowed_lateness=0s", "--set", "ranker.idle_after=1s",
		"--set", "ranker.emit_interval=50ms")
	s.start("producer", dials(producerAt), "--set", "producer.http_addr="+producerAt,
		"--set", "producer.origins="+s.readerURL, "--set", buckets)
	s.reader = s.start("reader", s.readerAnswers, "--mysql-dsn", s.dsn, "--set", "reader.http_addr="+readerAt,
		"--set", "reader.producer_url="+s.producerURL, "--set", "reader.history=200h",
		"--set", "reader.post_url=https://www.example.com/posts/{post_id}",
		"--set", "reader.title_url="+s.titlesURL+"/{post_id}",
		"--set", "reader.grafana_url=https://grafana.example.com/d/kudos",
		"--set", "reader.admin_urls="+s.adminURL+","+s.goneURL)
	return s
}

// serveTitle knows titles of the posts from 7500 to 7599 only.
func serveTitle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	id := strings.TrimPrefix(r.URL.Path, "/")
	title := ""
	if strings.HasPrefix(id, "75") && len(id) == 4 {
		title = "=A <b>post</b> with the number " + id
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"title": title}) // the browser may be gone
}

func (s *system) command(args ...string) {
	out, err := exec.CommandContext(testkit.Within(s.t, time.Minute), s.program, args...).CombinedOutput()
	require.NoError(s.t, err, "kudos %s\n%s", args, out)
}

// start runs a role until the end of the test, with its own state directory.
func (s *system) start(role string, probe func(context.Context) error, args ...string) *stack.Server {
	dir := s.t.TempDir()
	args = append([]string{role, "--brokers", s.brokers}, args...)
	if role != "processor" {
		args = append(args, "--set", "admin.addr=127.0.0.1:0")
	}
	if role != "producer" {
		args = append(args, "--set", role+".state_dir="+filepath.Join(dir, "state"))
	}
	p := stack.ProgramForTest(s.t,
		stack.ProgramOptions{Name: role, Path: s.program, Dir: dir, Args: args, Probe: probe})
	require.NoError(s.t, p.Start(s.t.Context()))
	return p
}

func dials(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

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
		return fmt.Errorf("the reader responded %s: %w", response.Status, err)
	}
	for i, p := range stats.Partitions {
		if !p.Ready {
			return fmt.Errorf("partition %d of the reader is not ready", i)
		}
	}
	return nil
}
