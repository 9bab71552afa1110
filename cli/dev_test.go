//go:build !nodev

package cli

import (
	stdsql "database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/config"
	"kudos/dev"
	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/integration/testrun"
	"kudos/ops/forget"
	"kudos/ops/void"
	"kudos/ranker"
	"kudos/schema"
	"kudos/sql"
)

var (
	devArgs  = strings.Fields("dev --http-addr 127.0.0.1:0 --reader-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0")
	embedded = []string{"--kafka-addr", "127.0.0.1:0", "--mysql-addr", "127.0.0.1:0"}
)

// The simulator uses neither this post nor this region.
const (
	post, region = "18446744073709551615", "LI"
	postLikes    = "/v1/posts/" + post + "/likes"
)

type devRun struct {
	dev.Addresses
	*running
	t           *testing.T
	ready, temp string
	unavailable bool // analytics timed out, which is logged once: the embedded database has one connection
}

func startDev(t *testing.T, args ...string) *devRun {
	t.Helper()
	d := &devRun{t: t, temp: t.TempDir(), ready: filepath.Join(t.TempDir(), "ready.json")}
	t.Setenv("TMPDIR", d.temp) // the state directory is created there
	d.running = start(t, slices.Concat(devArgs, []string{"--ready-file", d.ready}, args)...)
	require.Eventually(t, func() bool { return readAddresses(d.ready, &d.Addresses) }, time.Minute, 20*time.Millisecond,
		"kudos dev did not become ready; stderr:\n%s", &d.stderr)
	return d
}

func readAddresses(file string, to *dev.Addresses) bool {
	text, err := os.ReadFile(file)
	return err == nil && json.Unmarshal(text, to) == nil
}

// end stops it and checks that it leaves no file, and has logged no unexpected warning.
func (d *devRun) end() {
	d.t.Helper()
	require.Equal(d.t, exitDone, d.running.end(d.t), "%s", &d.stderr)
	warnings := slices.Collect(strings.Lines(d.stderr.String()))
	if d.unavailable {
		require.Len(d.t, warnings, 1, "%s", &d.stderr)
		require.Contains(d.t, warnings[0], "cannot read likes over time from MySQL")
	} else {
		require.Empty(d.t, warnings)
	}
	require.Contains(d.t, d.stdout.String(), d.HTTP, "the banner")
	require.NoFileExists(d.t, d.ready)
	left, err := filepath.Glob(filepath.Join(d.temp, "kudos-dev-*"))
	require.NoError(d.t, err)
	require.Empty(d.t, left, "the state directory was not removed")
}

func (d *devRun) shows(path string, parts ...string) {
	d.t.Helper()
	unavailable := waitGet(d.t, "http://"+d.Reader+path, parts...)
	if strings.HasPrefix(path, "/v1/analytics") && unavailable > 0 {
		d.unavailable = true
	}
}

func dsnOf(at dev.Addresses) string { return "root@tcp(" + at.MySQL + ")/kudos" }

func openDB(t *testing.T, dsn string) *stdsql.DB {
	t.Helper()
	db, err := stdsql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func put(t *testing.T, at dev.Addresses, user, query string) {
	t.Helper()
	url := "http://" + at.HTTP + postLikes + "/" + user + "?region=" + region + query
	apikit.MustSend(t, nil, http.MethodPut, url, "").Require(http.StatusAccepted)
}

func waitAudit(t *testing.T, at dev.Addresses) {
	t.Helper()
	require.Eventually(t, func() bool {
		code, _, _ := kudos(t, "", "audit", "--deep", "--brokers", at.Kafka, "--mysql-dsn", dsnOf(at))
		return code == exitDone
	}, time.Minute, 100*time.Millisecond, "kudos audit --deep")
}

// TestDevCountsALike covers the whole path: HTTP, Kafka, fold, MySQL, rankings.
func TestDevCountsALike(t *testing.T) {
	d := startDev(t, append(embedded, "--simulate", "500")...)
	liked := time.Now().UTC()
	put(t, d.Addresses, "7", "")
	db := openDB(t, dsnOf(d.Addresses))
	require.Eventually(t, func() bool {
		var ours, all int64
		err := db.QueryRow("SELECT COALESCE(SUM(count), 0) FROM like_count WHERE post_id = " + post).Scan(&ours)
		return err == nil && ours == 1 &&
			db.QueryRow("SELECT COUNT(*) FROM like_count").Scan(&all) == nil && all > 1 // the simulated ones
	}, time.Minute, 50*time.Millisecond, "the like was not counted")
	row := regexp.MustCompile(`(?m)^ +1 +(new|=) +` + post + ` +1$`) // the window may have moved by a minute
	for _, window := range []string{"10m", "1h", "24h", "day", "all"} {
		require.Eventually(t, func() bool {
			code, stdout, _ := kudos(t, "", "trending", "--brokers", d.Kafka, "--region", region, "--window", window)
			over := window == "day" && time.Now().UTC().Day() != liked.Day() // yesterday's is not shown any more
			return code == exitDone && (row.MatchString(stdout) || over)
		}, time.Minute, 100*time.Millisecond, "the like is not in the ranking of %s", window)
	}
	d.shows(postLikes, `"likes":1,`)
	d.shows("/v1/posts/"+post+"/likers", `"user_id":"7"`)
	d.shows("/v1/trending/"+region+"?window=1h", post)
	d.shows("/v1/analytics/likes?region="+region, `"likes":1,`)
	d.shows("/", "<html")
	d.shows("/dashboard.json", d.HTTP) // the like button's target
	waitReady(t, d.Admin)
	for _, address := range []string{d.HTTP, d.Reader, d.Admin} {
		req, err := http.NewRequest(http.MethodGet, "http://"+address+postLikes, nil)
		require.NoError(t, err)
		req.Host = "evil.example"
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode, "DNS rebinding: %s", address)
	}
	require.Regexp(t, `^127\.0\.0\.1:[1-9]\d*$`, d.Kafka)
	d.end()
}

func TestDevRejectsSettings(t *testing.T) {
	const nobody = "do not work with kudos dev" // what it prints would not work with credentials
	usedWrongly(t, "dev", map[string]string{
		"--brokers a:1 --kafka-addr b:2":                                      "kafka.brokers is set (flag --brokers)",
		"--mysql-dsn root@tcp(db:3306)/kudos --mysql-addr b:2":                "mysql.dsn is set (flag --mysql-dsn)",
		"--set kafka.tls=true":                                                "kafka.tls",
		"--set mysql.tls=true":                                                "mysql.tls",
		"--set mysql.shards=root@tcp(a:1)/k,root@tcp(b:1)/k --mysql-addr b:2": "mysql.shards is set (flag --set)",
		"--set mysql.migrate_shards=root@tcp(a:3306)/kudos":                   "mysql.migrate_shards are for a real",
		"--simulate -1":                                    "--simulate",
		"--brokers a:1 --data-dir d":                       "--data-dir is for the embedded Kafka and MySQL",
		"--mysql-dsn root@tcp(db:3306)/kudos --data-dir d": "--data-dir is for the embedded Kafka and MySQL",
		"--set producer.auth=gateway --set producer.auth_trusted_cidrs=127.0.0.1": nobody,
		"--set producer.tls_cert=cert.pem --set producer.tls_key=key.pem":         nobody,
		"--set reader.tls_cert=cert.pem --set reader.tls_key=key.pem":             nobody,
	})
}

// TestDevRanksQuickly: explicit settings win, and a Kafka that may have other rankers keeps the defaults.
func TestDevRanksQuickly(t *testing.T) {
	for name, c := range map[string]struct {
		flags map[string]config.Flag
		want  func(*ranker.Options)
	}{
		"embedded": {nil, func(o *ranker.Options) {
			o.AllowedLateness, o.IdleAfter, o.EmitInterval, o.TopN = 0, 2*time.Second, 5*time.Second, 20
		}},
		"explicit settings": {
			map[string]config.Flag{"ranker.allowed_lateness": {Value: "2m"}, "ranker.idle_after": {Value: "7s"}},
			func(o *ranker.Options) { o.IdleAfter, o.EmitInterval, o.TopN = 7*time.Second, 5*time.Second, 20 },
		},
		"external Kafka": {map[string]config.Flag{"kafka.brokers": {Value: "a:1"}}, func(*ranker.Options) {}},
	} {
		cfg, err := config.Load(config.Sources{Flags: c.flags})
		require.NoError(t, err)
		want := ranker.DefaultOptions()
		c.want(&want)
		var out testkit.Output
		require.Equal(t, want, newDevSystem(&app{http.NoBody, &out, &out, Extras{}}, cfg, devFlags{}).cfg.Ranker, name)
		require.NoError(t, want.Validate())
	}
}

// TestDevUsesServersOfYourOwn connects one system to the servers of another.
func TestDevUsesServersOfYourOwn(t *testing.T) {
	first := startDev(t, embedded...)
	args := []string{"--brokers", first.Kafka, "--mysql-dsn", dsnOf(first.Addresses)}
	for _, set := range []string{
		"topics.replication_factor=1", "mysql.max_open_conns=1",
		"processor.state_dir=" + t.TempDir(), "ranker.state_dir=" + t.TempDir(), "reader.state_dir=" + t.TempDir(),
		// All rankers of a Kafka need the same settings; the first ranker has those of embedded servers.
		"ranker.allowed_lateness=0s", "ranker.idle_after=2s", "ranker.emit_interval=5s", "ranker.top_n=20",
	} {
		args = append(args, "--set", set)
	}
	second := startDev(t, args...)
	done(t, "topics", "check", "--brokers", first.Kafka, "--set", "topics.replication_factor=1", "--set",
		"topics.regions=US-CA") // it has not changed them
	require.Equal(t, first.Kafka, second.Kafka)
	require.Equal(t, first.MySQL, second.MySQL)
	second.end()
	first.end()
}

func TestDevKeepsItsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	likedAt := fmt.Sprint("&time_ms=", time.Now().UnixMilli()) // the same for both likes: analytics counts by hour
	all := func(d *devRun, likes string) {
		t.Helper()
		d.shows(postLikes, `"likes":`+likes+`,`)
		d.shows("/v1/posts/"+post+"/likers", `"user_id":"7"`)
		d.shows("/v1/trending/"+region+"?window=1h", post)
		d.shows("/v1/analytics/likes?region="+region, `"likes":`+likes+`,`)
		waitAudit(t, d.Addresses)
	}
	args := append([]string{"--data-dir", dir}, embedded...)
	d := startDev(t, args...)
	put(t, d.Addresses, "7", likedAt)
	all(d, "1")
	fails(t, exitFailed, append([]string{"dev"}, args...), "another kudos dev uses "+dir)
	d.end()

	d = startDev(t, args...)
	all(d, "1")
	put(t, d.Addresses, "8", likedAt)
	all(d, "2")
	d.end()

	// The directory of a run that was killed without an open transaction looks like this.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "running"), nil, 0o644))
	d = startDev(t, args...)
	all(d, "2")
	d.end()
	require.NoFileExists(t, filepath.Join(dir, "running"))
	require.NoDirExists(t, filepath.Join(dir, "state"))
}

// TestDevShowsMillionsOfLikes: from a million on, the embedded MySQL formats a sum with an exponent.
func TestDevShowsMillionsOfLikes(t *testing.T) {
	cfg, err := config.Load(config.Sources{})
	require.NoError(t, err)
	var out testkit.Output
	d := newDevSystem(&app{http.NoBody, &out, &out, Extras{}}, cfg, devFlags{})
	database, err := dev.StartDatabase("127.0.0.1:0")
	require.NoError(t, err)
	testrun.Start(t, "the database", time.Minute, database.Run)
	require.NoError(t, d.useDatabase(database))
	t.Cleanup(func() { require.NoError(t, d.undo[0]()) })
	require.NoError(t, sql.Migrate(t.Context(), d.cfg.MySQL, d.log))
	const insert = "INSERT INTO like_count (post_id, count, dislike_count) VALUES (7, 2000000, 0)"
	_, err = openDB(t, database.DSN()).Exec(insert)
	require.NoError(t, err)

	testrun.Start(t, "the status", time.Minute, dev.NewStatus(dev.NewConsole(&out, true), d.hooks).Run)
	shown := func() bool { return strings.Contains(out.String(), "likes counted ") }
	require.Eventually(t, shown, time.Minute, 10*time.Millisecond)
	require.Contains(t, out.String(), "likes counted 2,000,000")
}

// waitCounts waits for the counts that MySQL should have, such as "42:2,1": likes and dislikes of posts that have any.
func (d *devRun) waitCounts(want string) {
	d.t.Helper()
	db := openDB(d.t, dsnOf(d.Addresses))
	var counts stdsql.NullString
	require.Eventually(d.t, func() bool {
		err := db.QueryRow("SELECT" +
			" GROUP_CONCAT(CONCAT(post_id, ':', count, ',', dislike_count) ORDER BY post_id SEPARATOR ' ')" +
			" FROM like_count WHERE count <> 0 OR dislike_count <> 0").Scan(&counts)
		return err == nil && counts.String == want
	}, time.Minute, 50*time.Millisecond, "counts in MySQL: want %s", want)
}

const someReactions = "post_id,user_id,action\n42,7,LIKE\n42,8,LIKE\n42,9,DISLIKE\n43,7,LIKE\n43,8,LIKE\n44,9,DISLIKE\n"

func TestVoidOnTheWholeSystem(t *testing.T) {
	d := startDev(t, embedded...)
	defer d.end()
	code, _, stderr := kudos(t, someReactions, "import", "-", "--brokers", d.Kafka)
	require.Equal(t, exitDone, code, stderr)
	d.waitCounts("42:2,1 43:2,0 44:0,1")

	bots := filepath.Join(t.TempDir(), "bots.txt")
	require.NoError(t, os.WriteFile(bots, []byte("# found by hand\n7\n\n 9 \n7\n"), 0o600))
	stdout, _ := done(t, "void", "users", bots, "--brokers", d.Kafka)
	require.Regexp(t, `^2 users: their reactions do not count; 4 recounts sent, in `, stdout)
	d.waitCounts("42:1,0 43:1,0")
	stdout, _ = done(t, "void", "list", "--brokers", d.Kafka)
	require.Equal(t, "7\n9\n", stdout)
	code, stdout, stderr = kudos(t, stdout, "unvoid", "users", "-", "--output", "json", "--brokers", d.Kafka)
	require.Equal(t, exitDone, code, stderr)
	var voided void.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &voided))
	voided.Seconds = 0
	require.Equal(t, void.Report{Users: 2, Partitions: 8, Recounts: 4, Complete: true}, voided)
	d.waitCounts("42:2,1 43:2,0 44:0,1")
}

func TestForgetOnTheWholeSystem(t *testing.T) {
	d := startDev(t, embedded...)
	defer d.end()
	waitCounts := d.waitCounts
	code, _, stderr := kudos(t, someReactions, "import", "-", "--brokers", d.Kafka)
	require.Equal(t, exitDone, code, stderr)
	waitCounts("42:2,1 43:2,0 44:0,1")

	stdout, _ := done(t, "forget", "post", "42", "--dry-run", "--brokers", d.Kafka)
	require.Contains(t, stdout, "post 42: 2 likes and 1 dislike would be withdrawn; nothing was changed\n")
	require.Contains(t, stdout, "  latest-like-action-table (3 records, with user ids)\n    users who have or had")

	stdout, _ = done(t, "forget", "user", "7", "99", "--yes", "--brokers", d.Kafka)
	require.Regexp(t, `^user 7, 99: withdrew 2 likes and 0 dislikes in \S+; nothing is left\n`, stdout)
	require.Contains(t, stdout, "  likes (with user ids)\n    the events themselves, including the withdrawals\n"+
		"    kept for 7 days from now")
	require.Contains(t, stdout, "  likes.dlt (0 records, no user ids)\n")
	require.Contains(t, stdout, "  like-updates (no user ids)\n")
	waitCounts("42:1,1 43:1,0 44:0,1")

	stdout, _ = done(t, "forget", "post", "42", "44", "--yes", "--output", "json", "--brokers", d.Kafka)
	var r forget.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.Equal(t, []string{"42", "44"}, r.IDs)
	require.Equal(t, schema.Counts{Likes: 1, Dislikes: 2}, r.Withdrawn)
	require.True(t, r.Complete)
	waitCounts("43:1,0")
}

func TestVoidChecksItsArguments(t *testing.T) {
	brokers, dir := likesBroker(t), t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	bots := file("bots", "7\n")
	usedWrongly(t, "void", map[string]string{
		"":                                     "kudos void needs a command",
		"users":                                "accepts 1 arg(s), received 0",
		"users " + filepath.Join(dir, "none"):  "no such file",
		"users " + file("empty", "# nobody\n"): "has no user ids",
		"users " + file("zero", "7\n0\n"):      `line 2: "0" is not a user id: a whole number from 1 to 2^64-1`,
		"users " + file("large", "18446744073709551616"): "is not a user id",
		"users " + bots + " --timeout 0s":                "timeout must be above zero",
	})
	usedWrongly(t, "unvoid", map[string]string{"": "kudos unvoid needs a command"})
	fails(t, exitFailed, []string{"void", "users", bots, "--brokers", brokers},
		"topic latest-like-action-table does not exist on ["+brokers+`]; create the topics with "kudos topics apply"`)
}

func TestForgetChecksItsArguments(t *testing.T) {
	brokers := likesBroker(t)
	usedWrongly(t, "forget", map[string]string{
		"":                                "kudos forget needs a command",
		"page 42":                         `unknown command "page"`,
		"post":                            "kudos forget post takes the ids of posts; none was given",
		"post 42 0":                       `"0" is not a post id: a whole number from 1 to 2^64-1`,
		"user 42 x":                       `"x" is not a user id`,
		"user 18446744073709551616":       "is not a user id",
		"post 42":                         "standard input is not a terminal: use --yes, or --dry-run",
		"post 42 --timeout 0s":            "timeout must be above zero",
		"post 42 --timeout soon":          "invalid argument",
		"post 42 --set kafka.borkers=a:1": "kafka.borkers",
	})
	fails(t, exitFailed, []string{"forget", "post", "42", "--yes", "--brokers", brokers},
		"topic latest-like-action-table does not exist on ["+brokers+`]; create the topics with "kudos topics apply"`)
}
