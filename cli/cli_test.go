package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/httpserver/admin"
	"kudos/schema"
)

// runAsKudos makes the test binary the program itself.
const runAsKudos = "KUDOS_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsKudos) != "" {
		os.Exit(Main())
	}
	for _, entry := range os.Environ() { // the settings of whoever runs the tests
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "KUDOS_") && !strings.HasPrefix(name, "KUDOS_TEST_") {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// kudos runs a command in this process until it ends.
func kudos(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{strings.NewReader(stdin), &out, &errs}
	code = a.run(t.Context(), args)
	return code, out.String(), errs.String()
}

// likesBroker is an embedded broker with the likes topic.
func likesBroker(t *testing.T) (brokers string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, schema.TopicLikes))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return strings.Join(cluster.ListenAddrs(), ",")
}

func TestExitCodes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "kudos.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("kafka:\n  borkers: [a:1]\n"), 0o600))
	for _, c := range []struct {
		args   string
		code   int
		stderr []string
	}{
		{"--help", exitDone, nil},
		{"version", exitDone, nil},
		{"config", exitDone, nil},
		{"import --help", exitDone, nil},
		{"fly", exitUsage, []string{`unknown command "fly"`, "kudos --help"}},
		{"config --colour red", exitUsage, []string{"unknown flag: --colour", "kudos config --help"}},
		{"version twice", exitUsage, []string{"twice"}},
		{"config --output xml", exitUsage, []string{"neither text nor json"}},
		{"config --config " + bad, exitUsage, []string{"kafka.borkers is not known; did you mean kafka.brokers?"}},
		{"config --config /nowhere.yaml", exitUsage, []string{"/nowhere.yaml"}},
		{"config --set log.level", exitUsage, []string{"--set needs key=value"}},
		{"config --set log.level=loud", exitUsage, []string{`log.level: "loud" is none of debug`}},
		{"config --brokers a:1 --set kafka.brokers=b:2", exitUsage, []string{"kafka.brokers is given twice, by --brokers and by --set"}},
		{"config --set kafka.sasl_password=hunter2", exitUsage, []string{"mean nothing without kafka.sasl_mechanism"}},
		{"config --set kafka.sasl_password_file=/nowhere/secret", exitUsage, []string{"kafka.sasl_password_file (flag --set): open /nowhere/secret"}},
		{"producer --set kafka.tls=true --set kafka.tls_ca=/nowhere/ca.pem", exitUsage, []string{"kafka.tls_ca: open /nowhere/ca.pem"}},
		{"topics check --set kafka.tls=true --set kafka.tls_ca=/nowhere/ca.pem", exitFailed, []string{"kafka.tls_ca: open /nowhere/ca.pem"}},
		{"migrate --mysql-dsn root@tcp(db:3306)/kudos --set mysql.tls=true --set mysql.tls_ca=/nowhere/ca.pem", exitUsage, []string{"mysql.tls_ca: open /nowhere/ca.pem"}},
		{"migrate", exitUsage, []string{"mysql.dsn is not set", "--mysql-dsn"}},
		{"processor", exitUsage, []string{"mysql.dsn is not set", "--mysql-dsn"}},
		{"processor --mysql-dsn me@tcp(a:1)/k --set mysql.shards=me@tcp(b:1)/k", exitUsage, []string{"mysql.dsn and shards are both given: give one"}},
		{"audit --set mysql.shards=me:hunter2@tcp(a:1)/k,me:hunter2@b", exitUsage, []string{"mysql.shards[1]: dsn cannot be read"}},
		{"bench --set mysql.shards=me@tcp(a:1)/k,me@tcp(b:1)/k", exitUsage, []string{"kudos bench measures on one database, and mysql.shards is set (flag --set)"}},
		{"where", exitUsage, []string{"requires at least 1 arg"}},
		{"where 42", exitUsage, []string{"mysql.dsn is not set"}},
		{"where 42 post de/1h --mysql-dsn me@tcp(a:1)/k", exitUsage, []string{`"post" is neither a post nor REGION/WINDOW`, `region "de"`}},
		{"topics", exitUsage, []string{"kudos topics needs a command", "kudos topics --help"}},
		{"topics fly", exitUsage, []string{`unknown command "fly" for "kudos topics"`}},
		{"ranker fly", exitUsage, []string{`unknown command "fly" for "kudos ranker"`, "kudos ranker --help"}},
		{"ranker --set ranker.windows=90s", exitUsage, []string{"ranker.windows: 1m30s is no whole number of minutes"}},
		{"import", exitUsage, []string{"import takes one FILE"}},
		{"import /nowhere.csv", exitFailed, []string{"/nowhere.csv"}},
		{"import --format xml -", exitUsage, []string{"none of auto, csv, ndjson"}},
		{"import --rejects cli.go cli.go", exitUsage, []string{"would overwrite the file to import"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := kudos(t, "", strings.Fields(c.args)...)
			require.Equal(t, c.code, code, stderr)
			if code == exitDone {
				require.NotEmpty(t, stdout)
				require.Empty(t, stderr)
			} else {
				require.Empty(t, stdout, "errors belong on standard error")
			}
			for _, want := range c.stderr {
				require.Contains(t, stderr, want)
			}
		})
	}
}

// TestEveryCommandTeaches: whoever asks for help finds out what to type.
func TestEveryCommandTeaches(t *testing.T) {
	root := (&app{}).rootCommand()
	commands := root.Commands()
	for i := 0; i < len(commands); i++ {
		cmd := commands[i]
		commands = append(commands, cmd.Commands()...)
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		if cmd.HasSubCommands() || cmd.Name() == "version" {
			continue
		}
		require.NotEmpty(t, cmd.Long, cmd.CommandPath())
		require.Contains(t, cmd.Example, cmd.CommandPath(), "%s needs an example", cmd.CommandPath())
	}
}

func TestConfigShowsWhereEachValueCameFrom(t *testing.T) {
	t.Setenv("KUDOS_ADMIN_ADDR", "127.0.0.1:9999")
	_, table, _ := kudos(t, "", "config", "--brokers", "a:1,b:2", "--mysql-dsn", "me:hunter2@tcp(db:3306)/kudos")
	require.Regexp(t, `(?m)^kafka\.brokers +a:1,b:2 +flag --brokers$`, table)
	require.Regexp(t, `(?m)^admin\.addr +127\.0\.0\.1:9999 +env KUDOS_ADMIN_ADDR$`, table)
	require.NotContains(t, table, "hunter2")

	_, script, _ := kudos(t, "", "config", "--output", "json")
	require.True(t, json.Valid([]byte(script)))
}

func TestImportEndsWithOneIfALineWasRejected(t *testing.T) {
	brokers := likesBroker(t)
	rejects := filepath.Join(t.TempDir(), "rejects.csv")
	code, stdout, stderr := kudos(t, "post_id,user_id,action\n7,1,LIKE\n7,0,LIKE\n",
		"import", "-", "--brokers", brokers, "--rejects", rejects, "--output", "json")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "1 of 2 lines were rejected")
	require.Contains(t, stderr, rejects)
	var summary map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &summary))
	require.Equal(t, 1.0, summary["acknowledged"])
	require.Equal(t, 1.0, summary["rejected"])

	code, stdout, stderr = kudos(t, `{"post_id":7,"user_id":1,"action":"LIKE"}`, "import", "-", "--brokers", brokers)
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "standard input: 1 lines read, 1 events in Kafka, 0 rejected")
}

func TestTopicsCheckEndsWithOneUntilTheyAreApplied(t *testing.T) {
	brokers := likesBroker(t)
	run := func(args ...string) (int, string, string) {
		return kudos(t, "", append(args, "--brokers", brokers, "--set", "topics.partitions=4", "--set", "topics.replication_factor=1")...)
	}
	code, stdout, stderr := run("topics", "check")
	require.Equal(t, exitFailed, code, stderr)
	require.Contains(t, stdout, schema.TopicUpdates)

	code, _, stderr = run("topics", "apply")
	require.Equal(t, exitDone, code, stderr)
	code, stdout, stderr = run("topics", "check", "--output", "json")
	require.Equal(t, exitDone, code, stdout+stderr)
	require.JSONEq(t, `{"lines": []}`, stdout)
}

// logBuffer is where a command in the background logs to.
type logBuffer struct {
	mu struct {
		sync.Mutex
		text bytes.Buffer
	}
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.String()
}

// adminAddr waits until the admin server is up and returns where it listens.
func (b *logBuffer) adminAddr(t *testing.T) string {
	t.Helper()
	var addr string
	require.Eventually(t, func() bool {
		for line := range strings.Lines(b.String()) {
			var entry struct{ Msg, Component, Addr string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Component == "admin" && entry.Addr != "" {
				addr = entry.Addr
				return true
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond, "the admin server does not listen")
	return addr
}

func waitReady(t *testing.T, addr string) {
	t.Helper()
	ready := func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}
	require.Eventually(t, ready, 20*time.Second, 20*time.Millisecond, "http://%s/readyz does not become 200", addr)
}

func producerArgs(brokers, adminAddr string) []string {
	return []string{"producer", "--brokers", brokers, "--set", "producer.http_addr=127.0.0.1:0",
		"--set", "admin.addr=" + adminAddr, "--set", "log.format=json"}
}

// TestSIGTERMEndsARoleWell runs the program as the process that it is.
func TestSIGTERMEndsARoleWell(t *testing.T) {
	var log logBuffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], producerArgs(likesBroker(t), "127.0.0.1:0")...)
	cmd.Env = append(os.Environ(), runAsKudos+"=1")
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	addr := log.adminAddr(t)
	waitReady(t, addr)

	resp, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	require.Contains(t, string(body), "kudos_producer_", "the role's own metrics")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "exit code after SIGTERM; log:\n%s", &log)
	require.Contains(t, log.String(), "finishing what is in hand")
	require.Contains(t, log.String(), "stopped")
}

func TestAdminAddressInUseStopsTheRole(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	code, _, stderr := kudos(t, "", producerArgs(likesBroker(t), l.Addr().String())...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "admin.addr")
	require.Contains(t, stderr, l.Addr().String())
}

// fakeRole fails as it is told to.
type fakeRole struct {
	started chan struct{}
	atEnd   error
}

func (r fakeRole) Ready() error { return nil }

func (r fakeRole) Run(ctx context.Context) error {
	close(r.started)
	<-ctx.Done()
	return r.atEnd
}

// TestNoErrorIsLostAtTheEnd: a role that fails while it finishes its work makes the
// command fail, though its context was ended on purpose.
func TestNoErrorIsLostAtTheEnd(t *testing.T) {
	for _, atEnd := range []error{nil, errors.New("the batch in hand was not finished")} {
		ctx, cancel := context.WithCancel(t.Context())
		r := fakeRole{make(chan struct{}), atEnd}
		opts := admin.DefaultOptions()
		opts.Addr = "127.0.0.1:0"
		var log logBuffer
		done := make(chan error, 1)
		go func() {
			done <- runRole(ctx, "fake", r, opts, admin.NewRegistry(), slog.New(slog.NewJSONHandler(&log, nil)))
		}()
		<-r.started
		log.adminAddr(t)
		cancel()
		require.ErrorIs(t, <-done, atEnd)
	}
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	exited := make(chan int, 1)
	var log logBuffer
	ctx, stop := signalContext(&log, func(code int) { exited <- code })
	defer stop()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	require.ErrorContains(t, context.Cause(ctx), "terminated")
	require.Empty(t, exited)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	require.Equal(t, exitFailed, <-exited)
}
