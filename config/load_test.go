package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clearEnv takes the settings of whoever runs the tests away.
func clearEnv(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, envPrefix) {
			t.Setenv(name, value) // restores it after the test
			require.NoError(t, os.Unsetenv(name))
		}
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kudos.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFlagBeforeEnvBeforeFileBeforeDefault(t *testing.T) {
	clearEnv(t)
	const key = "kafka.client_id"
	load := func(src Sources) (string, Origin) {
		l, err := Load(src)
		require.NoError(t, err)
		return l.Kafka.ClientID, l.Origin(key)
	}
	var src Sources
	value, from := load(src)
	require.Equal(t, "kudos", value)
	require.Equal(t, Origin{Kind: "default"}, from)

	src.File = writeFile(t, "kafka:\n  client_id: from-file\n")
	value, from = load(src)
	require.Equal(t, "from-file", value)
	require.Equal(t, Origin{"file", src.File}, from)

	t.Setenv("KUDOS_KAFKA_CLIENT_ID", "from-env")
	value, from = load(src)
	require.Equal(t, "from-env", value)
	require.Equal(t, Origin{"env", "KUDOS_KAFKA_CLIENT_ID"}, from)

	src.Flags = map[string]Flag{key: {"--set", "from-flag"}}
	value, from = load(src)
	require.Equal(t, "from-flag", value)
	require.Equal(t, Origin{"flag", "--set"}, from)
}

func TestValuesOfEveryTypeFromEverySource(t *testing.T) {
	clearEnv(t)
	check := func(l *Loaded, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, []string{"a:1", "b:2"}, l.Kafka.Brokers)
		require.Equal(t, 90*time.Second, l.Kafka.RequestTimeout)
		require.Equal(t, int32(32), l.Topics.Partitions)
		require.Equal(t, int64(1<<30), l.Processor.CacheBytes)
		require.Equal(t, []time.Duration{5 * time.Minute, 90 * time.Minute, 12 * time.Hour}, l.Ranker.Windows)
	}
	check(Load(Sources{File: writeFile(t, `
kafka: {brokers: ["a:1", "b:2"], request_timeout: 1m30s}
topics: {partitions: 32}
processor: {cache_bytes: 1_073_741_824}
ranker:
  windows: [5m, 1h30m, 12h]
log:
`)}))
	check(Load(Sources{Flags: map[string]Flag{
		"kafka.brokers":         {"--brokers", "a:1, b:2"},
		"kafka.request_timeout": {"--set", "90s"},
		"topics.partitions":     {"--set", "32"},
		"processor.cache_bytes": {"--set", "1073741824"},
		"ranker.windows":        {"--set", "5m, 90m,12h"},
	}}))
	t.Setenv("KUDOS_KAFKA_BROKERS", "a:1,b:2")
	t.Setenv("KUDOS_KAFKA_REQUEST_TIMEOUT", "90s")
	t.Setenv("KUDOS_TOPICS_PARTITIONS", "32")
	t.Setenv("KUDOS_PROCESSOR_CACHE_BYTES", "1073741824")
	t.Setenv("KUDOS_RANKER_WINDOWS", "5m,90m,12h")
	check(Load(Sources{}))
}

func TestLoadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		file, env, value string
		flags            map[string]Flag
		want             []string
	}{
		"unknown key in the file": {
			file: "kafka:\n  broker: [a:1]\n",
			want: []string{"kudos.yaml", "kafka.broker is not known", "did you mean kafka.brokers?"},
		},
		"unknown section in the file": {
			file: "kafak:\n  brokers: [a:1]\n",
			want: []string{"kafak.brokers is not known", "did you mean kafka.brokers?"},
		},
		"key far from any": {
			file: "colour: red\n",
			want: []string{"colour is not known", "kudos config"},
		},
		"value where a section belongs": {
			file: "kafka: a:1\n",
			want: []string{"kafka must hold keys"},
		},
		"section where a value belongs": {
			file: "kafka:\n  client_id: {a: b}\n",
			want: []string{"kafka.client_id.a is not known", "did you mean kafka.client_id?"},
		},
		"list where a text belongs": {
			file: "kafka:\n  client_id: [a, b]\n",
			want: []string{"kafka.client_id", "list of 2 is not a text"},
		},
		"key twice": {
			file: "log: {level: info}\nlog: {level: warn}\n",
			want: []string{"kudos.yaml", "already defined"},
		},
		"unknown variable": {
			env: "KUDOS_KAFKA_BROKER", value: "a:1",
			want: []string{"KUDOS_KAFKA_BROKER is not known", "did you mean KUDOS_KAFKA_BROKERS?"},
		},
		"variable without its section": {
			env: "KUDOS_BROKERS", value: "a:1",
			want: []string{"did you mean KUDOS_KAFKA_BROKERS?"},
		},
		"key without its section": {
			file: "brokers: [a:1]\n",
			want: []string{"did you mean kafka.brokers?"},
		},
		"unknown --set": {
			flags: map[string]Flag{"log.levle": {"--set", "debug"}},
			want:  []string{"--set: key log.levle is not known", "did you mean log.level?"},
		},
		"text for a number": {
			file: "topics:\n  partitions: eight\n",
			want: []string{"topics.partitions (file ", `"eight" is not a whole number`},
		},
		"fraction for a whole number": {
			file: "topics:\n  partitions: 1.5\n",
			want: []string{"topics.partitions", `"1.5" is not a whole number`},
		},
		"number out of range": {
			env: "KUDOS_TOPICS_REPLICATION_FACTOR", value: "70000",
			want: []string{"topics.replication_factor (env KUDOS_TOPICS_REPLICATION_FACTOR)", "2^15"},
		},
		"duration without unit": {
			file: "kafka:\n  dial_timeout: 5\n",
			want: []string{"kafka.dial_timeout", `"5" is not a duration with its unit`},
		},
		"list with a duration without unit": {
			file: "ranker:\n  windows: [10m, 60, 24h]\n",
			want: []string{"ranker.windows (file ", `number 2 of the list: "60" is not a duration with its unit`},
		},
		"list with nothing between commas": {
			env: "KUDOS_RANKER_WINDOWS", value: "10m,,1h",
			want: []string{"ranker.windows (env KUDOS_RANKER_WINDOWS)", "number 2 of the list: is empty; it must be a duration"},
		},
		"empty list": {
			file: "ranker: {windows: []}\n",
			want: []string{"ranker.windows: between 1 and 8"},
		},
		"window that does not slide": {
			flags: map[string]Flag{"ranker.windows": {"--set", "90s,12h30m"}},
			want:  []string{"ranker.windows: 1m30s is no whole number of minutes", "ranker.windows: 12h30m0s is no whole number of hours"},
		},
		"values that cannot work, all of them": {
			file: "log: {level: loud, format: xml}\ntopics: {partitions: 0}\nmysql: {retries: -1}\nranker: {score: fame, top_n: 0}\n",
			want: []string{"log.level", "log.format", "topics.partitions", "mysql.retries", "ranker.score", "ranker.top_n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnv(t)
			src := Sources{Flags: c.flags}
			if c.file != "" {
				src.File = writeFile(t, c.file)
			}
			if c.env != "" {
				t.Setenv(c.env, c.value)
			}
			_, err := Load(src)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestVariablesThatAreNoSettings(t *testing.T) {
	clearEnv(t)
	for _, name := range []string{
		"KUDOS_TEST_DATA",
		// What Kubernetes puts into every pod beside a Service named kudos-producer.
		"KUDOS_PRODUCER_SERVICE_HOST", "KUDOS_PRODUCER_SERVICE_PORT", "KUDOS_PRODUCER_SERVICE_PORT_HTTP",
		"KUDOS_PRODUCER_PORT", "KUDOS_PRODUCER_PORT_8080_TCP", "KUDOS_PRODUCER_PORT_8080_TCP_ADDR",
	} {
		t.Setenv(name, "x")
	}
	_, err := Load(Sources{})
	require.NoError(t, err)
}

func TestMissingFileIsNamed(t *testing.T) {
	clearEnv(t)
	_, err := Load(Sources{File: "/nowhere/kudos.yaml"})
	require.ErrorContains(t, err, "/nowhere/kudos.yaml")
}

func TestRequireMySQL(t *testing.T) {
	clearEnv(t)
	l, err := Load(Sources{})
	require.NoError(t, err, "commands without a database need no DSN")
	require.ErrorContains(t, l.RequireMySQL(), "--mysql-dsn")
}

// TestKeysAreUsable keeps the tree such that every setting can be given in every way.
func TestKeysAreUsable(t *testing.T) {
	c := Default()
	tree := settings(&c)
	keys := keysOf(tree)
	env := map[string]string{}
	for _, s := range tree {
		for _, part := range strings.Split(s.key, ".") {
			require.Regexp(t, `^[a-z][a-z0-9_]*$`, part, "%s: every field of an Options struct needs a mapstructure tag in snake_case", s.key)
		}
		require.Empty(t, env[EnvName(s.key)], "%s has the same environment variable", s.key)
		require.False(t, notOurs.MatchString(EnvName(s.key)), "%s: its variable looks like one of Kubernetes; rename it", s.key)
		env[EnvName(s.key)] = s.key
		require.NotContains(t, []reflect.Kind{reflect.Map, reflect.Pointer, reflect.Interface}, s.value.Kind(), "%s: config cannot set a %s", s.key, s.value.Kind())
	}
	slices.Sort(keys)
	require.Len(t, slices.Compact(keys), len(tree), "a key stands twice")
}
