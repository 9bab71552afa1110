//go:build !nodev

package cli

import (
	"context"
	stdsql "database/sql"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kudos/config"
	"kudos/dev"
	"kudos/ranker"
)

// embedded servers on free ports.
var embedded = []string{"--kafka-addr", "127.0.0.1:0", "--mysql-addr", "127.0.0.1:0"}

// analyticsUnavailable is logged once, until analytics can be answered again: the embedded database has one connection.
const analyticsUnavailable = "likes over time cannot be answered"

// startDev runs `kudos dev` in this process until it is up, and returns where it is and
// how to end it, which is when there must be just the warnings that are told of.
func startDev(t *testing.T, args ...string) (at dev.Addresses, end func(told ...string)) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp) // the folder of the state table is in it
	ready := filepath.Join(t.TempDir(), "ready.json")
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr logBuffer
	a := &app{http.NoBody, &stdout, &stderr}
	code := make(chan int, 1)
	go func() {
		code <- a.run(ctx, append([]string{"dev", "--http-addr", "127.0.0.1:0", "--reader-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--ready-file", ready}, args...))
	}()
	end = func(told ...string) {
		t.Helper()
		cancel()
		select {
		case c := <-code:
			require.Equal(t, exitDone, c, "%s", &stderr)
		case <-time.After(30 * time.Second):
			t.Fatalf("kudos dev does not end; stderr:\n%s", &stderr)
		}
		warnings := slices.Collect(strings.Lines(stderr.String()))
		require.Len(t, warnings, len(told), "%s", &stderr)
		for i, text := range told {
			require.Contains(t, warnings[i], text)
		}
		require.Contains(t, stdout.String(), at.HTTP, "the banner")
		require.NoFileExists(t, ready)
		left, err := filepath.Glob(filepath.Join(temp, "kudos-dev-*"))
		require.NoError(t, err)
		require.Empty(t, left, "the state table's folder is left behind")
	}
	up := func() bool {
		text, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(text, &at) == nil
	}
	require.Eventually(t, up, time.Minute, 20*time.Millisecond, "kudos dev does not become ready; stderr:\n%s", &stderr)
	return at, end
}

// TestDevCountsALike goes all the way: HTTP, Kafka, fold, MySQL, rankings.
func TestDevCountsALike(t *testing.T) {
	at, end := startDev(t, append(embedded, "--simulate", "500")...)
	const post, region = "18446744073709551615", "LI" // none that are simulated
	liked := time.Now().UTC()
	req, err := http.NewRequest(http.MethodPut, "http://"+at.HTTP+"/v1/posts/"+post+"/likes/7?region="+region, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)

	db, err := stdsql.Open("mysql", "root@tcp("+at.MySQL+")/kudos")
	require.NoError(t, err)
	defer db.Close()
	counted := func() bool {
		var ours, all int64
		err := db.QueryRow("SELECT COALESCE(SUM(count), 0) FROM like_count WHERE post_id = " + post).Scan(&ours)
		if err != nil || ours != 1 {
			return false
		}
		return db.QueryRow("SELECT COUNT(*) FROM like_count").Scan(&all) == nil && all > 1 // the simulated ones
	}
	require.Eventually(t, counted, time.Minute, 50*time.Millisecond, "the like is not counted")
	row := regexp.MustCompile(`(?m)^ +1 +(new|=) +` + post + ` +1$`) // the window may have moved on by a minute
	for _, window := range []string{"10m", "1h", "24h", "day", "all"} {
		ranked := func() bool {
			code, stdout, _ := kudos(t, "", "trending", "--brokers", at.Kafka, "--region", region, "--window", window)
			over := window == "day" && time.Now().UTC().Day() != liked.Day() // yesterday's day is shown no more
			return code == exitDone && (row.MatchString(stdout) || over)
		}
		require.Eventually(t, ranked, time.Minute, 100*time.Millisecond, "the like is not in the ranking of %s", window)
	}
	var told []string
	for path, want := range map[string]string{
		"/v1/posts/" + post + "/likes":          `"likes":1,`,
		"/v1/posts/" + post + "/likers":         `"user_id":"7"`,
		"/v1/trending/" + region + "?window=1h": post,
		"/v1/analytics/likes?region=" + region:  `"likes":1,`, // 503 while the one connection to MySQL is long in use
		"/":                                     "<html",
		"/dashboard.json":                       at.HTTP, // where the like button sends likes
	} {
		var text []byte
		read := func() bool {
			resp, err := http.Get("http://" + at.Reader + path)
			if !assert.NoError(t, err) {
				return false
			}
			defer resp.Body.Close()
			if resp.StatusCode == http.StatusServiceUnavailable && strings.HasPrefix(path, "/v1/analytics") {
				told = []string{analyticsUnavailable}
			}
			text, err = io.ReadAll(resp.Body)
			return assert.NoError(t, err) && resp.StatusCode == http.StatusOK && strings.Contains(string(text), want)
		}
		if !read() {
			require.Eventually(t, read, time.Minute, 100*time.Millisecond, "GET %s", path)
		}
	}
	waitReady(t, at.Admin)
	_, _, err = net.SplitHostPort(at.Kafka)
	require.NoError(t, err)

	end(told...)
}

func TestDevOnRealServersTakesNoAddressesOfEmbeddedOnes(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--brokers", "a:1", "--kafka-addr", "b:2"}, "kafka.brokers is set (flag --brokers)"},
		{[]string{"--mysql-dsn", "root@tcp(db:3306)/kudos", "--mysql-addr", "b:2"}, "mysql.dsn is set (flag --mysql-dsn)"},
		{[]string{"--set", "kafka.tls=true"}, "kafka.tls"},
		{[]string{"--set", "mysql.tls=true"}, "mysql.tls"},
		{[]string{"--set", "mysql.shards=root@tcp(a:3306)/kudos,root@tcp(b:3306)/kudos", "--mysql-addr", "b:2"}, "mysql.shards is set (flag --set)"},
		{[]string{"--set", "mysql.migrate_shards=root@tcp(a:3306)/kudos"}, "mysql.migrate_shards are for a MySQL of your own"},
		{[]string{"--simulate", "-1"}, "--simulate"},
		{[]string{"--brokers", "a:1", "--data-dir", "d"}, "--data-dir is for the embedded Kafka and MySQL"},
		{[]string{"--mysql-dsn", "root@tcp(db:3306)/kudos", "--data-dir", "d"}, "--data-dir is for the embedded Kafka and MySQL"},
	} {
		code, _, stderr := kudos(t, "", append([]string{"dev"}, c.args...)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, c.says)
	}
}

// TestDevKnowsNobody: what it shows and prints would not work with credentials.
func TestDevKnowsNobody(t *testing.T) {
	for _, set := range [][]string{
		{"--set", "producer.auth=gateway", "--set", "producer.auth_trusted_cidrs=127.0.0.1"},
		{"--set", "producer.tls_cert=cert.pem", "--set", "producer.tls_key=key.pem"},
		{"--set", "reader.tls_cert=cert.pem", "--set", "reader.tls_key=key.pem"},
	} {
		code, _, stderr := kudos(t, "", append([]string{"dev"}, set...)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, "are not for kudos dev")
	}
}

// TestDevRanksQuickly: but not where somebody said otherwise, and not on a Kafka that may
// have other rankers.
func TestDevRanksQuickly(t *testing.T) {
	for name, c := range map[string]struct {
		flags map[string]config.Flag
		want  func(*ranker.Options)
	}{
		"embedded": {nil, func(o *ranker.Options) {
			o.AllowedLateness, o.IdleAfter, o.EmitInterval, o.TopN = 0, 2*time.Second, 5*time.Second, 20
		}},
		"set": {
			map[string]config.Flag{"ranker.allowed_lateness": {Name: "--set", Value: "2m"}, "ranker.idle_after": {Name: "--set", Value: "7s"}},
			func(o *ranker.Options) { o.IdleAfter, o.EmitInterval, o.TopN = 7*time.Second, 5*time.Second, 20 },
		},
		"a Kafka of your own": {map[string]config.Flag{"kafka.brokers": {Name: "--brokers", Value: "a:1"}}, func(*ranker.Options) {}},
	} {
		cfg, err := config.Load(config.Sources{Flags: c.flags})
		require.NoError(t, err)
		want := ranker.DefaultOptions()
		c.want(&want)
		var out logBuffer
		require.Equal(t, want, newDevSystem(&app{http.NoBody, &out, &out}, cfg, devFlags{}).cfg.Ranker, name)
		require.NoError(t, want.Validate())
	}
}

// TestDevUsesServersOfYourOwn gives one system's servers to another.
func TestDevUsesServersOfYourOwn(t *testing.T) {
	first, endFirst := startDev(t, embedded...)
	second, endSecond := startDev(t, "--brokers", first.Kafka, "--mysql-dsn", "root@tcp("+first.MySQL+")/kudos",
		"--set", "topics.replication_factor=1", "--set", "mysql.max_open_conns=1",
		"--set", "processor.state_dir="+filepath.Join(t.TempDir(), "state"),
		"--set", "ranker.state_dir="+filepath.Join(t.TempDir(), "state"),
		// All rankers of a Kafka must have the same; the first has those of the embedded servers.
		"--set", "ranker.allowed_lateness=0s", "--set", "ranker.idle_after=2s", "--set", "ranker.emit_interval=5s", "--set", "ranker.top_n=20",
		"--set", "reader.state_dir="+filepath.Join(t.TempDir(), "state"))
	require.Equal(t, first.Kafka, second.Kafka)
	require.Equal(t, first.MySQL, second.MySQL)
	endSecond()
	endFirst()
}

// TestDevKeepsItsData: what was counted before is there after a restart, and counts on.
func TestDevKeepsItsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	const post, region = "18446744073709551615", "LI"
	likedAt := strconv.FormatInt(time.Now().UnixMilli(), 10) // of both likes: analytics counts by the hour
	put := func(at dev.Addresses, user string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPut, "http://"+at.HTTP+"/v1/posts/"+post+"/likes/"+user+"?region="+region+"&time_ms="+likedAt, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusAccepted, resp.StatusCode)
	}
	var told []string // by the run that is up
	shows := func(at dev.Addresses, path string, want ...string) {
		t.Helper()
		unavailable := false
		require.Eventually(t, func() bool {
			resp, err := http.Get("http://" + at.Reader + path)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			if resp.StatusCode == http.StatusServiceUnavailable && strings.HasPrefix(path, "/v1/analytics") && !unavailable {
				unavailable, told = true, append(told, analyticsUnavailable)
			}
			text, err := io.ReadAll(resp.Body)
			for _, part := range want {
				if !strings.Contains(string(text), part) {
					return false
				}
			}
			return err == nil
		}, time.Minute, 50*time.Millisecond, "GET %s: %q", path, want)
	}
	all := func(at dev.Addresses, likes string) {
		t.Helper()
		shows(at, "/v1/posts/"+post+"/likes", `"likes":`+likes+`,`)
		shows(at, "/v1/posts/"+post+"/likers", `"user_id":"7"`)
		shows(at, "/v1/trending/"+region+"?window=1h", post)
		shows(at, "/v1/analytics/likes?region="+region, `"likes":`+likes+`,`)
		require.Eventually(t, func() bool {
			code, _, _ := kudos(t, "", "audit", "--deep", "--brokers", at.Kafka, "--mysql-dsn", "root@tcp("+at.MySQL+")/kudos")
			return code == exitDone
		}, time.Minute, 100*time.Millisecond, "kudos audit --deep")
	}
	args := append([]string{"--data-dir", dir}, embedded...)
	at, end := startDev(t, args...)
	put(at, "7")
	all(at, "1")
	code, _, stderr := kudos(t, "", append([]string{"dev"}, args...)...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "another kudos dev uses "+dir)
	end(told...)

	at, end = startDev(t, args...)
	told = nil
	all(at, "1")
	put(at, "8")
	all(at, "2")
	end(told...)

	// As a run that was killed would leave the directory, if no transaction was open.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "running"), nil, 0o644))
	at, end = startDev(t, args...)
	told = nil
	all(at, "2")
	end(told...)
	require.NoFileExists(t, filepath.Join(dir, "running"))
	require.NoDirExists(t, filepath.Join(dir, "state"))
}
