package cli

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/dev/devtest"
	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/httpserver/admin"
	"kudos/integration/stack"
	"kudos/schema"
)

// runAsKudos makes the test binary run as the program.
const runAsKudos = "KUDOS_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsKudos) != "" {
		os.Exit(Main(Extras{}))
	}
	for _, entry := range os.Environ() { // clear the settings of whoever runs the tests
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "KUDOS_") && !strings.HasPrefix(name, "KUDOS_TEST_") {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

func kudos(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs testkit.Output // Kafka's client may log after it was closed
	code = (&app{strings.NewReader(stdin), &out, &errs, Extras{}}).run(t.Context(), args)
	return code, out.String(), errs.String()
}

func done(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := kudos(t, "", args...)
	require.Equal(t, exitDone, code, stderr)
	return stdout, stderr
}

func fails(t *testing.T, code int, args []string, says ...string) {
	t.Helper()
	got, stdout, stderr := kudos(t, "", args...)
	require.Equal(t, code, got, "%q: %s", args, stderr)
	require.Empty(t, stdout, "errors belong on standard error")
	for _, want := range says {
		require.Contains(t, stderr, want)
	}
}

func usedWrongly(t *testing.T, command string, cases map[string]string) {
	t.Helper()
	for args, want := range cases {
		fails(t, exitUsage, append(strings.Fields(command), strings.Fields(args)...), want, "--help")
	}
}

type running struct {
	stdout, stderr testkit.Output
	cancel         context.CancelFunc
	code           chan int
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, code: make(chan int, 1)}
	go func() { r.code <- (&app{http.NoBody, &r.stdout, &r.stderr, Extras{}}).run(ctx, args) }()
	return r
}

func (r *running) end(t *testing.T) int {
	t.Helper()
	r.cancel()
	return ended(t, r.code, &r.stderr)
}

func ended[T any](t *testing.T, how <-chan T, stderr *testkit.Output) (end T) {
	t.Helper()
	select {
	case end = <-how:
	case <-time.After(time.Minute):
		t.Fatalf("the command did not end; stderr:\n%s", stderr)
	}
	return end
}

func startKafka(t *testing.T, topics ...kfake.Opt) (brokers string) {
	t.Helper()
	_, options := devtest.Broker(t, topics...)
	return strings.Join(options.Brokers, ",")
}

func likesBroker(t *testing.T) (brokers string) {
	t.Helper()
	return startKafka(t, kfake.SeedTopics(4, schema.TopicLikes))
}

func TestExitCodes(t *testing.T) {
	for _, args := range []string{"--help", "version", "config", "import --help"} {
		stdout, stderr := done(t, strings.Fields(args)...)
		require.NotEmpty(t, stdout)
		require.Empty(t, stderr)
	}
	fails(t, exitFailed, []string{"import", "/nowhere.csv"}, "/nowhere.csv")
	noCA := strings.Fields("--set kafka.tls=true --set kafka.tls_ca=/nowhere/ca.pem")
	fails(t, exitFailed, append([]string{"topics", "check"}, noCA...), "kafka.tls_ca: open /nowhere/ca.pem")
	fails(t, exitUsage, append([]string{"producer"}, noCA...), "kafka.tls_ca: open /nowhere/ca.pem")
	bad := filepath.Join(t.TempDir(), "kudos.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("kafka:\n  borkers: [a:1]\n"), 0o600))
	const mysqlMissing = "mysql.dsn is not set … --mysql-dsn"
	for _, c := range [][2]string{ // arguments used wrongly, and the message
		{"fly", `unknown command "fly" … kudos --help`},
		{"config --colour red", "unknown flag: --colour … kudos config --help"},
		{"version twice", "twice"},
		{"config --output xml", "neither text nor json"},
		{"config --config " + bad, "kafka.borkers is unknown; did you mean kafka.brokers?"},
		{"config --config /nowhere.yaml", "/nowhere.yaml"},
		{"config --set log.level", "--set needs key=value"},
		{"config --set log.level=loud", `log.level: "loud" is not one of debug`},
		{"config --brokers a:1 --set kafka.brokers=b:2", "kafka.brokers is set twice, by --brokers and by --set"},
		{"config --set kafka.sasl_password=hunter2", "have no effect without kafka.sasl_mechanism"},
		{"config --set kafka.sasl_password_file=/no/secret", "kafka.sasl_password_file (flag --set): open /no/secret"},
		{"migrate --mysql-dsn a@tcp(b)/c --set mysql.tls=true --set mysql.tls_ca=/no", "mysql.tls_ca: open /no"},
		{"migrate", mysqlMissing},
		{"processor", mysqlMissing},
		{"processor --mysql-dsn a@tcp(b)/c --set mysql.shards=a@tcp(d)/c",
			"mysql.dsn and shards are both set: set only one"},
		{"audit --set mysql.shards=me:hunter2@tcp(a:1)/k,me:hunter2@b", "mysql.shards[1]: dsn cannot be parsed"},
		{"bench --set mysql.shards=me@tcp(a:1)/k,me@tcp(b:1)/k",
			"kudos bench needs a single database, but mysql.shards is set (flag --set)"},
		{"bench throughput", `invalid argument "throughput"`},
		{"bench --events 0 --mysql-dsn u@tcp(h:1)/d", "--events is 0; it must be at least 1"},
		{"bench --producer-time 99ms --latency-time 1ms --mysql-dsn u@tcp(h:1)/d",
			"--latency-time is 1ms; it must be at least 1s … --producer-time is 99ms; it must be at least 100ms"},
		{"bench --shapes warm --mysql-dsn u@tcp(h:1)/d", `unknown shape "warm"; must be one of [hot`},
		{"bench", mysqlMissing},
		{"where", "requires at least 1 arg"},
		{"where 42", "mysql.dsn is not set"},
		{"where 42 post de/1h --mysql-dsn a@tcp(b)/c", `"post" is neither a post nor REGION/WINDOW … region "de"`},
		{"topics", "kudos topics needs a command … kudos topics --help"},
		{"topics fly", `unknown command "fly" for "kudos topics"`},
		{"ranker fly", `unknown command "fly" for "kudos ranker" … kudos ranker --help`},
		{"ranker --set ranker.windows=90s", "ranker.windows: 1m30s is not a whole number of minutes"},
		{"health --timeout 0s", "--timeout 0s: must be above zero"},
		{"producer --set producer.http_addr=:0", "producer.http_addr is :0, which other machines can reach"},
		{"import", "import takes one FILE"},
		{"import --format xml -", "not one of auto, csv, ndjson"},
		{"import --rejects cli.go cli.go", "would overwrite the file to import"},
	} {
		fails(t, exitUsage, strings.Fields(c[0]), append(strings.Split(c[1], " … "), "--help")...)
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
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

func TestShellCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"trending --window":                               "10m\n1h\n24h\nday\nall\n:4\n",
		"trending --set ranker.windows=5m,2h --window":    "5m\n2h\nday\nall\n:4\n",
		"trending --set ranker.regions=DE,US-CA --region": "global\nDE\nUS-CA\n:4\n",
		"trending --region":                               "\nZM\nZW\n:4\n", // the last countries
		"config --output":                                 "text\njson\n:4\n",
		"processor --set":                                 "\nlog.format=\n:6\n",
	} {
		_, stdout, _ := kudos(t, "", append(append([]string{"__complete"}, strings.Fields(args)...), "")...)
		require.Contains(t, stdout, want, args)
		require.NotContains(t, stdout, "\nDD\n", "a country of the past")
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
	command := func(verb string) []string {
		return strings.Fields("topics " + verb + " --brokers " + brokers +
			" --set topics.partitions=4 --set topics.replication_factor=1")
	}
	code, stdout, stderr := kudos(t, "", command("check")...)
	require.Equal(t, exitFailed, code, stderr)
	require.Contains(t, stdout, schema.TopicUpdates)
	done(t, command("apply")...)
	stdout, _ = done(t, command("check --output json")...)
	require.JSONEq(t, `{"lines": []}`, stdout)
}

func waitReady(t *testing.T, addr string) {
	t.Helper()
	waitGet(t, "http://"+addr+"/readyz")
}

// waitGet waits for a 200 response that contains parts. It returns how many responses were 503 until then.
func waitGet(t *testing.T, url string, parts ...string) (unavailable int) {
	t.Helper()
	require.Eventually(t, func() bool {
		a, err := apikit.Send(t, nil, http.MethodGet, url, "")
		if a.Status == http.StatusServiceUnavailable {
			unavailable++
		}
		missing := func(part string) bool { return !strings.Contains(a.Body, part) }
		return err == nil && a.Status == http.StatusOK && !slices.ContainsFunc(parts, missing)
	}, time.Minute, 20*time.Millisecond, "GET %s: %q", url, parts)
	return unavailable
}

func producerArgs(brokers, adminAddr string) []string {
	return []string{"producer", "--brokers", brokers, "--set", "producer.http_addr=127.0.0.1:0",
		"--set", "admin.addr=" + adminAddr}
}

func TestSIGTERMEndsARoleWell(t *testing.T) {
	var log testkit.Output
	addr := stack.ReserveForTest(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], producerArgs(likesBroker(t), addr)...)
	cmd.Env = append(os.Environ(), runAsKudos+"=1")
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	waitReady(t, addr)
	waitGet(t, "http://"+addr+"/metrics", "kudos_producer_") // the role's own metrics

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "exit code after SIGTERM; log:\n%s", &log)
	require.Contains(t, log.String(), "shutting down; press Ctrl-C again to exit immediately")
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

// TestNoErrorIsLostAtTheEnd: an error of a role that finishes after a deliberate cancellation must fail the command.
func TestNoErrorIsLostAtTheEnd(t *testing.T) {
	for _, atEnd := range []error{nil, errors.New("the batch in flight was not finished")} {
		ctx, cancel := context.WithCancel(t.Context())
		r := fakeRole{make(chan struct{}), atEnd}
		opts := admin.DefaultOptions()
		opts.Addr = stack.ReserveForTest(t)
		done := make(chan error, 1)
		go func() { done <- runRole(ctx, "fake", r, opts, admin.NewRegistry(), slog.New(slog.DiscardHandler)) }()
		<-r.started
		waitReady(t, opts.Addr)
		cancel()
		require.ErrorIs(t, <-done, atEnd)
	}
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	exited := make(chan int, 1)
	var log testkit.Output
	ctx, stop := signalContext(&log, func(code int) { exited <- code })
	defer stop()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	require.ErrorContains(t, context.Cause(ctx), "terminated")
	require.Empty(t, exited)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	require.Equal(t, exitFailed, <-exited)
}
