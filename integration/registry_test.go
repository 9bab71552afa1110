package integration

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// buildProgram builds kudos as it is released, "full", or with Iceberg, "lake".
func buildProgram(t testing.TB, name string) string {
	path := filepath.Join(t.TempDir(), "kudos")
	runs(t, "go", slices.Concat([]string{"build", "-C", "../cli/" + name}, stack.ForTests(),
		[]string{"-o", path, "."})...)
	return path
}

// Debezium writes a table's changes in Avro, by a registry that stands still at first. The bridge waits for it, and
// kudos has what the table has.
func TestBridgeReadsATableInAvro(t *testing.T) {
	tier.Verify(t)
	registry, s := stack.RegistryForTest(t), newShop(t, postLikes)
	s.db.MustExecContext(t.Context(), `INSERT INTO post_likes (post_id, user_id, created_at)
		SELECT 1 + seq % 500, 1 + seq DIV 500, '2026-01-01' + INTERVAL seq SECOND FROM seq_0_to_9999`)
	config := s.database.DebeziumConfig(s.brokers, "shop", "shop.post_likes")
	config["message.key.columns"] = "shop.post_likes:post_id,user_id"
	maps.Copy(config, registry.AvroConverters())
	s.connect.ConnectorForTest(t, "post-likes", config)
	s.waitSource(10_000)
	s.db.MustExecContext(t.Context(), "DELETE FROM post_likes WHERE user_id % 3 = 0")
	s.waitSource(13_000)
	require.NoError(t, registry.Pause())
	s.processor("processor").start()
	s.fails([]string{"bridge", "--brokers", s.brokerList(), "--set", "bridge.topic=shop.shop.post_likes",
		"--set", "bridge.registry.url=" + registry.URL()}, "this build has no client of schema registries")
	bridge := s.byRegistry(registry, "--set", "bridge.topic=shop.shop.post_likes",
		"--set", "bridge.columns.time=created_at")
	waitSaid(t, time.Minute, "the bridge to wait for the registry", func() (bool, any) {
		ready, text := bridge.said("readyz")
		return !ready && strings.Contains(text, "the schema registry (bridge.registry.url)"), text
	})
	require.NoError(t, registry.Resume())
	waitSaid(t, time.Minute, "the table's likes", func() (bool, any) {
		table, counted := s.sums()
		return table == counted, []int64{table, counted}
	})
	s.drain(time.Minute)
	require.True(t, s.against(0).Equal)
	s.auditBoth()
	require.Zero(t, s.written(t.Context(), schema.TopicDLT))
}

// byRegistry starts the bridge of a released kudos.
func (s *system) byRegistry(registry *stack.Registry, args ...string) *process {
	light := s.program
	defer func() { s.program = light }()
	s.program = buildProgram(s.t, "full")
	bridge := s.role("bridge", "bridge", append(args, "--set", "bridge.park_interval=200ms",
		"--set", "bridge.registry.url="+registry.URL())...).start()
	bridge.waitAlive()
	return bridge
}

// Services write reactions with Confluent's serializers: integration/registry/write.py.
func TestBridgeReadsConfluentsFormats(t *testing.T) {
	tier.Verify(t)
	const events = 3000
	registry, python := stack.RegistryForTest(t), pythonFor(t, "registry/requirements.txt")
	for _, format := range []string{"avro", "json"} {
		t.Run(format, func(t *testing.T) {
			s, topic := newRealSystem(t), "reactions-"+format
			_, err := s.admin().CreateTopic(t.Context(), 3, 1, nil, topic)
			require.NoError(t, err)
			runs(t, python, "registry/write.py", format, s.brokerList(), registry.URL(), topic, fmt.Sprint(events))
			latest := map[[2]int]bool{}
			for i := range events {
				latest[[2]int{1 + i%50, 1 + 7*i%41}] = i%3 != 0
			}
			want := 0
			for _, liked := range latest {
				if liked {
					want++
				}
			}
			s.processor("processor").start()
			bridge := s.byRegistry(registry, "--set", "bridge.topic="+topic, "--set", "bridge.format=json",
				"--set", "bridge.columns.post_id=post", "--set", "bridge.columns.user_id=member",
				"--set", "bridge.columns.time=at", "--set", "bridge.columns.reaction=kind",
				"--set", "bridge.reactions=love=LIKE,none=UNLIKE")
			waitSaid(t, time.Minute, "the reactions", func() (bool, any) {
				published, counted := bridge.sum("kudos_bridge_events_total", nil), 0
				require.NoError(t, s.db.Get(&counted, "SELECT COALESCE(SUM(count), 0) FROM like_count"))
				return published == events && counted == want, fmt.Sprint(published, counted)
			})
			s.drain(time.Minute)
			s.auditBoth()
			require.Zero(t, s.written(t.Context(), schema.TopicDLT))
		})
	}
}

// pythonFor returns a Python that has the packages of a file.
func pythonFor(t *testing.T, requirements string) string {
	dir := t.TempDir()
	runs(t, "python3", "-m", "venv", dir)
	runs(t, filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--require-hashes",
		"--only-binary", ":all:", "-r", requirements)
	return filepath.Join(dir, "bin", "python")
}

func runs(t testing.TB, program string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(testkit.Within(t, 5*time.Minute), program, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// waitSource waits until the topic of the connector has n records.
func (s *shop) waitSource(n int64) {
	waitSaid(s.t, time.Minute, "the changes", func() (bool, any) {
		written, err := s.sourceEnd(s.t.Context())
		require.NoError(s.t, err)
		return written >= n, written
	})
}
