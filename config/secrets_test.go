package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// secretFile is a file with this text.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// saslSettings are what a password goes with.
const saslSettings = "kafka:\n  sasl_mechanism: SCRAM-SHA-512\n  sasl_user: kudos\n"

// TestSecretsFromFiles: by each way in which a setting is given, and only the last newline is none of the secret.
func TestSecretsFromFiles(t *testing.T) {
	for text, want := range map[string]string{
		"hunter2": "hunter2", "hunter2\n": "hunter2", "hunter2\r\n": "hunter2", "hunter2\n\n": "hunter2\n", " hunter 2 ": " hunter 2 ",
	} {
		path := secretFile(t, text)
		for name, load := range map[string]func(t *testing.T) Sources{
			"file": func(t *testing.T) Sources {
				return Sources{File: writeFile(t, saslSettings+"  sasl_password_file: "+path+"\n")}
			},
			"env": func(t *testing.T) Sources {
				t.Setenv("KUDOS_KAFKA_SASL_PASSWORD_FILE", path)
				return Sources{File: writeFile(t, saslSettings)}
			},
			"flag": func(t *testing.T) Sources {
				return Sources{File: writeFile(t, saslSettings), Flags: map[string]Flag{"kafka.sasl_password_file": {"--set", path}}}
			},
		} {
			t.Run(name, func(t *testing.T) {
				clearEnv(t)
				l, err := Load(load(t))
				require.NoError(t, err)
				require.Equal(t, want, l.Kafka.SASLPassword)
				require.Equal(t, name, l.Origin("kafka.sasl_password").Kind)
			})
		}
	}
}

// TestASecretAndItsFile: the stronger source holds, and of one source only one may be given.
func TestASecretAndItsFile(t *testing.T) {
	const key, fileKey = "kafka.sasl_password", "kafka.sasl_password_file"
	path := secretFile(t, "of the file")
	password := func(src Sources) string {
		t.Helper()
		l, err := Load(src)
		require.NoError(t, err)
		return l.Kafka.SASLPassword
	}
	clearEnv(t)
	direct := Sources{File: writeFile(t, saslSettings+"  sasl_password: direct\n")}
	byFile := Sources{File: writeFile(t, saslSettings+"  sasl_password_file: "+path+"\n")}
	direct.Flags = map[string]Flag{fileKey: {"--set", path}}
	require.Equal(t, "of the file", password(direct))
	byFile.Flags = map[string]Flag{key: {"--set", "direct"}}
	require.Equal(t, "direct", password(byFile))
	t.Setenv("KUDOS_KAFKA_SASL_PASSWORD", "of the environment")
	byFile.Flags = nil
	require.Equal(t, "of the environment", password(byFile))

	t.Setenv("KUDOS_KAFKA_SASL_PASSWORD_FILE", path)
	_, err := Load(byFile)
	require.ErrorContains(t, err, "kafka.sasl_password (env KUDOS_KAFKA_SASL_PASSWORD) and kafka.sasl_password_file (env KUDOS_KAFKA_SASL_PASSWORD_FILE) are both given")
	require.NotContains(t, err.Error(), "of the environment")
}

func TestASecretsFileThatIsNoGood(t *testing.T) {
	for name, c := range map[string]struct{ path, want string }{
		"missing": {"/nowhere/secret", "/nowhere/secret: no such file"},
		"empty":   {secretFile(t, "\n"), "is empty"},
		"large":   {secretFile(t, strings.Repeat("x", secretBytes+1)), "more than 65536 bytes"},
		"folder":  {t.TempDir(), "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnv(t)
			_, err := Load(Sources{Flags: map[string]Flag{"mysql.dsn_file": {"--set", c.path}}})
			require.ErrorContains(t, err, "mysql.dsn_file (flag --set)")
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestWhatSoundsSecretIs keeps every password, key and DSN of the tree out of sight, and has it come from a file.
func TestWhatSoundsSecretIs(t *testing.T) {
	c := Default()
	tree, found := settings(&c), 0
	for _, s := range tree {
		for _, word := range []string{"password", "secret", "token", "dsn", "shards"} {
			if strings.HasSuffix(s.key, word) {
				found++
				_, ok := fileOf(tree, s.key)
				require.True(t, ok, "%s sounds like a secret: add a field %s_file beside it, by which it is one", s.key, s.key)
			}
		}
	}
	require.GreaterOrEqual(t, found, 5, "kafka.sasl_password, mysql.dsn, mysql.migrate_dsn, mysql.shards, mysql.migrate_shards")
}

// TestPrintShowsNoSecret: neither those given by themselves nor those of files.
func TestPrintShowsNoSecret(t *testing.T) {
	clearEnv(t)
	const secret = "hunter2"
	dsn := "kudos:" + secret + "@tcp(db:3306)/kudos"
	for name, flags := range map[string]map[string]Flag{
		"direct": {"kafka.sasl_password": {"--set", secret}, "mysql.dsn": {"--set", dsn}, "mysql.migrate_dsn": {"--set", dsn}},
		"files": {
			"kafka.sasl_password_file": {"--set", secretFile(t, secret)}, "mysql.dsn_file": {"--set", secretFile(t, dsn)},
			"mysql.migrate_dsn_file": {"--set", secretFile(t, dsn)},
		},
	} {
		l, err := Load(Sources{File: writeFile(t, saslSettings), Flags: flags})
		require.NoError(t, err)
		require.Equal(t, secret, l.Kafka.SASLPassword)
		require.Equal(t, []string{dsn, dsn}, []string{l.MySQL.DSN, l.MySQL.MigrateDSN})
		var table, script bytes.Buffer
		require.NoError(t, l.WriteTable(&table))
		require.NoError(t, l.WriteJSON(&script))
		for _, out := range []string{table.String(), script.String()} {
			require.NotContains(t, out, secret, name)
		}
		require.Regexp(t, `(?m)^kafka\.sasl_password +\*\*\* +flag --set$`, table.String())
		require.Regexp(t, `(?m)^mysql\.migrate_dsn +kudos:\*\*\*@tcp\(db:3306\)/kudos +flag --set$`, table.String())
	}
}

// TestShardsShowNoSecret: a list of DSNs, by commas or by lines.
func TestShardsShowNoSecret(t *testing.T) {
	clearEnv(t)
	const a, b, odd = "kudos:hunter2@tcp(a:3306)/kudos", "kudos:hunter2@tcp(b:3306)/kudos", "kudos:hun,ter2@tcp(b:3306)/kudos"
	for name, c := range map[string]struct {
		flags map[string]Flag
		want  []string
	}{
		"direct": {map[string]Flag{"mysql.shards": {"--set", a + "," + b}, "mysql.migrate_shards": {"--set", a + "," + b}}, []string{a, b}},
		"files":  {map[string]Flag{"mysql.shards_file": {"--set", secretFile(t, a+"\r\n"+odd+"\r\n")}, "mysql.migrate_shards_file": {"--set", secretFile(t, a+"\n"+odd)}}, []string{a, odd}},
	} {
		l, err := Load(Sources{Flags: c.flags})
		require.NoError(t, err, name)
		require.Equal(t, c.want, l.MySQL.Shards, name)
		require.Equal(t, c.want, l.MySQL.MigrateShards, name)
		require.Equal(t, "flag", l.Origin("mysql.shards").Kind)
		require.NoError(t, l.RequireMySQL())
		var table, script bytes.Buffer
		require.NoError(t, l.WriteTable(&table))
		require.NoError(t, l.WriteJSON(&script))
		for _, out := range []string{table.String(), script.String()} {
			require.NotContains(t, out, "hunter2", name)
			require.NotContains(t, out, "ter2", name)
		}
		require.Regexp(t, `(?m)^mysql\.shards +kudos:\*\*\*@tcp\(a:3306\)/kudos,kudos:\*\*\*@tcp\(b:3306\)/kudos +flag --set$`, table.String())
		require.Regexp(t, `(?m)^mysql\.migrate_shards +kudos:\*\*\*@`, table.String())
	}
	_, err := Load(Sources{Flags: map[string]Flag{"mysql.shards_file": {"--set", secretFile(t, a+"\n\n"+b)}}})
	require.ErrorContains(t, err, "mysql.shards[1]: dsn is empty")
	_, err = Load(Sources{Flags: map[string]Flag{"mysql.shards_file": {"--set", secretFile(t, a)}, "mysql.shards": {"--set", b}}})
	require.ErrorContains(t, err, "mysql.shards (flag --set) and mysql.shards_file (flag --set) are both given: give one")
	require.NotContains(t, err.Error(), "hunter2")
}
