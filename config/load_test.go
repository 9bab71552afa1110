package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

func TestMain(m *testing.M) {
	for _, entry := range os.Environ() { // ignore the settings of whoever runs the tests
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, envPrefix) {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kudos.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func set(pairs ...string) map[string]Flag {
	flags := map[string]Flag{}
	for i := 0; i < len(pairs); i += 2 {
		flags[pairs[i]] = Flag{"--set", pairs[i+1]}
	}
	return flags
}

func TestFlagBeforeEnvBeforeFileBeforeDefault(t *testing.T) {
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

	src.Flags = set(key, "from-flag")
	value, from = load(src)
	require.Equal(t, "from-flag", value)
	require.Equal(t, Origin{"flag", "--set"}, from)
}

func TestValuesOfEveryTypeFromEverySource(t *testing.T) {
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
	check(Load(Sources{Flags: set("kafka.brokers", "a:1, b:2", "kafka.request_timeout", "90s",
		"topics.partitions", "32", "processor.cache_bytes", "1073741824", "ranker.windows", "5m, 90m,12h")}))
	t.Setenv("KUDOS_KAFKA_BROKERS", "a:1,b:2")
	t.Setenv("KUDOS_KAFKA_REQUEST_TIMEOUT", "90s")
	t.Setenv("KUDOS_TOPICS_PARTITIONS", "32")
	t.Setenv("KUDOS_PROCESSOR_CACHE_BYTES", "1073741824")
	t.Setenv("KUDOS_RANKER_WINDOWS", "5m,90m,12h")
	check(Load(Sources{}))
}

func TestLoadRejectsInvalidFiles(t *testing.T) {
	fromFile := func(text string, wants ...string) {
		t.Helper()
		refused(t, Sources{File: writeFile(t, text)}, wants...)
	}
	fromEnv := func(name, value string, wants ...string) {
		t.Helper()
		t.Setenv(name, value)
		refused(t, Sources{}, wants...)
		require.NoError(t, os.Unsetenv(name))
	}
	// Unknown names, with the nearest known one.
	refused(t, Sources{File: "/nowhere/kudos.yaml"}, "/nowhere/kudos.yaml")
	fromFile("kafka:\n  broker: [a:1]\n", "kudos.yaml", "kafka.broker is unknown", "did you mean kafka.brokers?")
	fromFile("kafak:\n  brokers: [a:1]\n", "kafak.brokers is unknown", "did you mean kafka.brokers?")
	fromFile("colour: red\n", "colour is unknown", "kudos config") // not near any
	fromFile("brokers: [a:1]\n", "did you mean kafka.brokers?")
	fromFile("kafka:\n  client_id: {a: b}\n", "kafka.client_id.a is unknown", "did you mean kafka.client_id?")
	fromEnv("KUDOS_KAFKA_BROKER", "a:1", "KUDOS_KAFKA_BROKER is unknown", "did you mean KUDOS_KAFKA_BROKERS?")
	fromEnv("KUDOS_BROKERS", "a:1", "did you mean KUDOS_KAFKA_BROKERS?")
	refused(t, Sources{Flags: set("log.levle", "debug")}, "--set: key log.levle is unknown", "did you mean log.level?")

	// Values of the wrong type, with the key and its source.
	fromFile("kafka: a:1\n", "kafka must hold keys")
	fromFile("kafka:\n  client_id: [a, b]\n", "kafka.client_id", "list of 2 values is not a string")
	fromFile("log: {level: info}\nlog: {level: warn}\n", "kudos.yaml", "already defined")
	fromFile("topics:\n  partitions: eight\n", "topics.partitions (file ", `"eight" is not a whole number`)
	fromFile("topics:\n  partitions: 1.5\n", "topics.partitions", `"1.5" is not a whole number`)
	fromEnv("KUDOS_TOPICS_REPLICATION_FACTOR", "70000",
		"topics.replication_factor (env KUDOS_TOPICS_REPLICATION_FACTOR)", "2^15")
	fromFile("kafka:\n  dial_timeout: 5\n", "kafka.dial_timeout", `"5" is not a duration with its unit`)
	fromFile("ranker:\n  windows: [10m, 60, 24h]\n",
		"ranker.windows (file ", `element 2 of the list: "60" is not a duration with its unit`)
	fromEnv("KUDOS_RANKER_WINDOWS", "10m,,1h",
		"ranker.windows (env KUDOS_RANKER_WINDOWS)", "element 2 of the list: is empty; it must be a duration")

	// Invalid values are all reported.
	fromFile("ranker: {windows: []}\n", "ranker.windows: must be between 1 and 8")
	refused(t, Sources{Flags: set("ranker.windows", "90s,12h30m")},
		"ranker.windows: 1m30s is not a whole number of minutes", "12h30m0s is not a whole number of hours")
	fromFile("log: {level: loud, format: xml}\ntopics: {partitions: 0}\nmysql: {retries: -1}\n"+
		"ranker: {score: fame, top_n: 0}\n",
		"log.level", "log.format", "topics.partitions", "mysql.retries", "ranker.score", "ranker.top_n")
}

func refused(t *testing.T, src Sources, wants ...string) {
	t.Helper()
	_, err := Load(src)
	for _, want := range wants {
		require.ErrorContains(t, err, want)
	}
}

func TestUnknownVariables(t *testing.T) {
	for _, name := range []string{
		"KUDOS_TEST_DATA",
		// Kubernetes sets these in every pod if there is a Service named kudos-producer.
		"KUDOS_PRODUCER_SERVICE_HOST", "KUDOS_PRODUCER_SERVICE_PORT", "KUDOS_PRODUCER_SERVICE_PORT_HTTP",
		"KUDOS_PRODUCER_PORT", "KUDOS_PRODUCER_PORT_8080_TCP", "KUDOS_PRODUCER_PORT_8080_TCP_ADDR",
	} {
		t.Setenv(name, "x")
	}
	_, err := Load(Sources{})
	require.NoError(t, err)
}

func TestRequireMySQL(t *testing.T) {
	l, err := Load(Sources{})
	require.NoError(t, err, "commands without a database need no DSN")
	require.ErrorContains(t, l.RequireMySQL(), "--mysql-dsn")
}

func TestKeysAreUsable(t *testing.T) {
	c := Default()
	tree := settings(&c)
	var keys []string
	env := map[string]string{}
	for _, s := range tree {
		keys = append(keys, s.key)
		for _, part := range strings.Split(s.key, ".") {
			require.Regexp(t, `^[a-z][a-z0-9_]*$`, part,
				"%s: every field of an Options struct needs a mapstructure tag in snake_case", s.key)
		}
		require.Empty(t, env[EnvName(s.key)], "%s has the same environment variable", s.key)
		require.False(t, notOurs.MatchString(EnvName(s.key)),
			"%s: its variable looks like one that Kubernetes sets; rename it", s.key)
		env[EnvName(s.key)] = s.key
		require.NotContains(t, []reflect.Kind{reflect.Map, reflect.Pointer, reflect.Interface}, s.value.Kind(),
			"%s: config cannot set a %s", s.key, s.value.Kind())
	}
	slices.Sort(keys)
	require.Len(t, slices.Compact(keys), len(tree), "a key is listed twice")
}

func TestLogFormats(t *testing.T) {
	for _, c := range []struct {
		format   string
		terminal bool
		json     bool
	}{{"auto", true, false}, {"auto", false, true}, {"text", false, false}, {"json", true, true}} {
		var b strings.Builder
		log := Log{Level: "info", Format: c.format}
		require.NoError(t, log.Validate())
		log.New(&b, c.terminal).Info("hello", "post", 1)
		require.Equal(t, c.json, strings.HasPrefix(b.String(), "{"), b.String())
		require.Contains(t, b.String(), "hello")
	}
	require.ErrorContains(t, Log{Level: "info", Format: "xml"}.Validate(), `"xml" is not one of auto, text, json`)
}

const exampleFile = "kudos.example.yaml"

func TestExampleExplainsEveryKeyWithItsDefault(t *testing.T) {
	loaded, err := Load(Sources{File: exampleFile})
	require.NoError(t, err)
	if diff := cmp.Diff(Default(), loaded.Config); diff != "" {
		t.Errorf("%s must show the defaults; fix the differences (- default, + example):\n%s", exampleFile, diff)
	}

	want := Default()
	comments := exampleKeys(t)
	for _, s := range settings(&want) {
		if comment, ok := comments[s.key]; !ok {
			t.Errorf("%s lacks %s; add it with its default, its unit and what it is for", exampleFile, s.key)
		} else if comment == "" {
			t.Errorf("%s: %s has no comment above it; say what it is for and its unit", exampleFile, s.key)
		}
	}
}

// exampleKeys returns the keys of the example file with the comment above each.
func exampleKeys(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal(text, &doc))
	keys := map[string]string{}
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			if value.Kind == yaml.MappingNode {
				walk(prefix+name.Value+".", value)
				continue
			}
			keys[prefix+name.Value] = strings.TrimSpace(name.HeadComment)
		}
	}
	walk("", doc.Content[0])
	return keys
}
