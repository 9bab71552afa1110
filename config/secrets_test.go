package config

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// saslSettings are the settings that a password requires.
const saslSettings = "kafka:\n  sasl_mechanism: SCRAM-SHA-512\n  sasl_user: kudos\n"

// TestSecretsFromFiles covers every source of a setting; only the final newline is not part of the secret.
func TestSecretsFromFiles(t *testing.T) {
	for text, want := range map[string]string{
		"hunter2": "hunter2", "hunter2\n": "hunter2", "hunter2\r\n": "hunter2", "hunter2\n\n": "hunter2\n",
		" hunter 2 ": " hunter 2 ",
	} {
		path := writeFile(t, text)
		for _, source := range []string{"file", "env", "flag"} {
			t.Run(source, func(t *testing.T) {
				src := Sources{File: writeFile(t, saslSettings)}
				switch source {
				case "file":
					src.File = writeFile(t, saslSettings+"  sasl_password_file: "+path+"\n")
				case "env":
					t.Setenv("KUDOS_KAFKA_SASL_PASSWORD_FILE", path)
				case "flag":
					src.Flags = set("kafka.sasl_password_file", path)
				}
				l, err := Load(src)
				require.NoError(t, err)
				require.Equal(t, want, l.Kafka.SASLPassword)
				require.Equal(t, source, l.Origin("kafka.sasl_password").Kind)
			})
		}
	}
}

// TestSecretAndItsFileExcludeEachOther: the source with the higher precedence wins, and one source must not give both.
func TestSecretAndItsFileExcludeEachOther(t *testing.T) {
	const key, fileKey = "kafka.sasl_password", "kafka.sasl_password_file"
	path := writeFile(t, "of the file")
	password := func(src Sources) string {
		t.Helper()
		l, err := Load(src)
		require.NoError(t, err)
		return l.Kafka.SASLPassword
	}
	direct := Sources{File: writeFile(t, saslSettings+"  sasl_password: direct\n")}
	byFile := Sources{File: writeFile(t, saslSettings+"  sasl_password_file: "+path+"\n")}
	direct.Flags = set(fileKey, path)
	require.Equal(t, "of the file", password(direct))
	byFile.Flags = set(key, "direct")
	require.Equal(t, "direct", password(byFile))
	t.Setenv("KUDOS_KAFKA_SASL_PASSWORD", "of the environment")
	byFile.Flags = nil
	require.Equal(t, "of the environment", password(byFile))

	t.Setenv("KUDOS_KAFKA_SASL_PASSWORD_FILE", path)
	_, err := Load(byFile)
	require.ErrorContains(t, err, "kafka.sasl_password (env KUDOS_KAFKA_SASL_PASSWORD) and "+
		"kafka.sasl_password_file (env KUDOS_KAFKA_SASL_PASSWORD_FILE) are both set")
	require.NotContains(t, err.Error(), "of the environment")
}

func TestInvalidSecretFile(t *testing.T) {
	for name, c := range map[string]struct{ path, want string }{
		"missing":   {"/nowhere/secret", "/nowhere/secret: no such file"},
		"empty":     {writeFile(t, "\n"), "is empty"},
		"large":     {writeFile(t, strings.Repeat("x", secretBytes+1)), "more than 65536 bytes"},
		"directory": {t.TempDir(), "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Sources{Flags: set("mysql.dsn_file", c.path)})
			require.ErrorContains(t, err, "mysql.dsn_file (flag --set)")
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestSecretsAreRecognizedByName checks that every password, key and DSN is masked and can come from a file.
func TestSecretsAreRecognizedByName(t *testing.T) {
	c := Default()
	tree, found := settings(&c), 0
	for _, s := range tree {
		for _, word := range []string{"password", "secret", "token", "dsn", "shards"} {
			if strings.HasSuffix(s.key, word) {
				found++
				_, ok := fileOf(tree, s.key)
				require.True(t, ok, "%[1]s sounds like a secret: add a field %[1]s_file, which marks it as one", s.key)
			}
		}
	}
	require.GreaterOrEqual(t, found, 5,
		"kafka.sasl_password, mysql.dsn, mysql.migrate_dsn, mysql.shards, mysql.migrate_shards")
}

func TestPrintShowsNoSecret(t *testing.T) {
	const secret = "hunter2"
	dsn := "kudos:" + secret + "@tcp(db:3306)/kudos"
	for _, flags := range []map[string]Flag{
		set("kafka.sasl_password", secret, "mysql.dsn", dsn, "mysql.migrate_dsn", dsn),
		set("kafka.sasl_password_file", writeFile(t, secret), "mysql.dsn_file", writeFile(t, dsn),
			"mysql.migrate_dsn_file", writeFile(t, dsn)),
	} {
		l, err := Load(Sources{File: writeFile(t, saslSettings), Flags: flags})
		require.NoError(t, err)
		require.Equal(t, secret, l.Kafka.SASLPassword)
		require.Equal(t, []string{dsn, dsn}, []string{l.MySQL.DSN, l.MySQL.MigrateDSN})
		table, _ := printed(t, l, secret)
		require.Regexp(t, `(?m)^kafka\.sasl_password +\*\*\* +flag --set$`, table)
		require.Regexp(t, `(?m)^mysql\.migrate_dsn +kudos:\*\*\*@tcp\(db:3306\)/kudos +flag --set$`, table)
	}
}

// A URL may hold a user and a password, or a token as the user.
func TestURLsShowNoUser(t *testing.T) {
	l, err := Load(Sources{Flags: set(
		"reader.grafana_url", "https://hunter2:hunt%403@grafana:8443/d?a@b", "producer.jwks", "https://hunter2@issuer/",
		"reader.admin_urls", "http://a:9090,http://kudos:hunter2@b:9090/", "reader.post_url", "https://www/@{post_id}",
	)})
	require.NoError(t, err)
	table, _ := printed(t, l, "hunt")
	require.Regexp(t, `(?m)^reader\.grafana_url +https://\*\*\*@grafana:8443/d\?a@b +flag`, table)
	require.Regexp(t, `(?m)^reader\.admin_urls +http://a:9090,http://\*\*\*@b:9090/ +flag`, table)
	require.Regexp(t, `(?m)^reader\.post_url +https://www/@\{post_id\} +flag`, table)
}

func TestShardsShowNoSecret(t *testing.T) {
	const a, b = "kudos:hunter2@tcp(a:3306)/kudos", "kudos:hunter2@tcp(b:3306)/kudos"
	const odd = "kudos:hun,ter2@tcp(b:3306)/kudos"
	for _, c := range []struct {
		flags map[string]Flag
		want  []string
	}{
		{set("mysql.shards", a+","+b, "mysql.migrate_shards", a+","+b), []string{a, b}},
		{set("mysql.shards_file", writeFile(t, a+"\r\n"+odd+"\r\n"),
			"mysql.migrate_shards_file", writeFile(t, a+"\n"+odd)), []string{a, odd}},
	} {
		l, err := Load(Sources{Flags: c.flags})
		require.NoError(t, err)
		require.Equal(t, c.want, l.MySQL.Shards)
		require.Equal(t, c.want, l.MySQL.MigrateShards)
		require.Equal(t, "flag", l.Origin("mysql.shards").Kind)
		require.NoError(t, l.RequireMySQL())
		table, _ := printed(t, l, "hunter2", "ter2")
		const masked = `kudos:\*\*\*@tcp\(a:3306\)/kudos,kudos:\*\*\*@tcp\(b:3306\)/kudos`
		require.Regexp(t, `(?m)^mysql\.shards +`+masked+` +flag --set$`, table)
		require.Regexp(t, `(?m)^mysql\.migrate_shards +kudos:\*\*\*@`, table)
	}
	_, err := Load(Sources{Flags: set("mysql.shards_file", writeFile(t, a+"\n\n"+b))})
	require.ErrorContains(t, err, "mysql.shards[1]: dsn is empty")
	_, err = Load(Sources{Flags: set("mysql.shards_file", writeFile(t, a), "mysql.shards", b)})
	require.ErrorContains(t, err,
		"mysql.shards (flag --set) and mysql.shards_file (flag --set) are both set: set only one")
	require.NotContains(t, err.Error(), "hunter2")
}

func printed(t *testing.T, l *Loaded, secrets ...string) (table, script string) {
	t.Helper()
	var text, js bytes.Buffer
	require.NoError(t, l.WriteTable(&text))
	require.NoError(t, l.WriteJSON(&js))
	for _, secret := range secrets {
		require.NotContains(t, text.String(), secret)
		require.NotContains(t, js.String(), secret)
	}
	return text.String(), js.String()
}

func TestPrintMasksSecretsAndNamesOrigins(t *testing.T) {
	t.Setenv("KUDOS_LOG_LEVEL", "debug")
	const password = "s3cr=t@:/"
	for _, dsn := range []string{
		"kudos:" + password + "@tcp(db:3306)/kudos",
		"kudos:" + password + "@tcp(db:3306)/kudos?timeout=5s",
	} {
		l, err := Load(Sources{Flags: map[string]Flag{"mysql.dsn": {"--mysql-dsn", dsn}}})
		require.NoError(t, err)
		require.Equal(t, dsn, l.MySQL.DSN)

		table, script := printed(t, l, password)
		require.Contains(t, table, "kudos:***@tcp(db:3306)/kudos")
		require.Contains(t, script, "kudos:***@tcp(db:3306)/kudos")
		require.Regexp(t, `(?m)^mysql\.dsn +\S+ +flag --mysql-dsn$`, table)
		require.Regexp(t, `(?m)^log\.level +debug +env KUDOS_LOG_LEVEL$`, table)
		require.Regexp(t, `(?m)^kafka\.brokers +127\.0\.0\.1:9092 +default$`, table)
		require.Regexp(t, `(?m)^ranker\.windows +10m,1h,24h +default$`, table)

		var entries []entry
		require.NoError(t, json.Unmarshal([]byte(script), &entries))
		for _, want := range []entry{
			{Key: "kafka.dial_timeout", Value: "5s", From: "default", Env: "KUDOS_KAFKA_DIAL_TIMEOUT"},
			{Key: "ranker.windows", Value: []any{"10m", "1h", "24h"}, From: "default", Env: "KUDOS_RANKER_WINDOWS"},
		} {
			require.Contains(t, entries, want)
		}
	}
}

func TestDurationText(t *testing.T) {
	for text, d := range map[string]time.Duration{
		"0s": 0, "500ms": 500 * time.Millisecond, "10s": 10 * time.Second, "1m30s": 90 * time.Second,
		"10m": 10 * time.Minute, "1h": time.Hour, "1h10m": 70 * time.Minute, "10h0m1s": 10*time.Hour + time.Second,
		"-24h": -24 * time.Hour,
	} {
		require.Equal(t, text, durationText(d))
	}
}

func TestMaskDSN(t *testing.T) {
	require.Empty(t, maskDSN(""))
	require.Equal(t, "root@tcp(db:3306)/kudos", maskDSN("root@tcp(db:3306)/kudos"))
	require.Equal(t, mask, maskDSN("kudos:hunter2@tcp(db:3306"), "a malformed DSN must be masked entirely")
}

func TestParseSetNeverRepeatsItsArgument(t *testing.T) {
	_, _, err := ParseSet("mysql.dsn:hunter2")
	require.ErrorContains(t, err, "key=value")
	require.False(t, strings.Contains(err.Error(), "hunter2"))

	key, flag, err := ParseSet("MySQL.DSN=a=b")
	require.NoError(t, err)
	require.Equal(t, "mysql.dsn", key)
	require.Equal(t, Flag{"--set", "a=b"}, flag)
}
