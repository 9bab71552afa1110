package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/deployed"
	"kudos/integration/tier"
	"kudos/schema"
)

func productionTopics(t *testing.T) map[string]schema.Topic {
	all := kudosWorkloads(t, productionDir)
	i := slices.IndexFunc(all, func(w workload) bool { return w.Metadata.Name == "kudos-topics" })
	require.NotEqual(t, -1, i, "no job creates the topics")
	_, cfg := asInPod(t, productionDir, all[i].Template.Spec)
	topics := map[string]schema.Topic{}
	for _, topic := range schema.Topics(cfg.Topics.Partitions, cfg.Topics.ReplicationFactor) {
		topics[topic.Name] = topic
	}
	return topics
}

// TestStrimziTopicsAreThoseOfTheProgram: otherwise Strimzi and `kudos topics apply` would keep overwriting each other.
func TestStrimziTopicsAreThoseOfTheProgram(t *testing.T) {
	want := productionTopics(t)
	for _, o := range ofKind(t, strimziDir, "KafkaTopic") {
		have := specOf[struct {
			Partitions, Replicas int
			Config               map[string]string
		}](t, o)
		topic, exists := want[o.Metadata.Name]
		require.True(t, exists, "%s is not a topic of kudos", o.Metadata.Name)
		require.Equal(t, int(topic.Partitions), have.Partitions, o.Metadata.Name)
		require.Equal(t, int(topic.ReplicationFactor), have.Replicas, o.Metadata.Name)
		require.Equal(t, topic.Configs, have.Config, o.Metadata.Name)
		require.NotEmpty(t, o.Metadata.Labels["strimzi.io/cluster"], o.Metadata.Name)
		delete(want, o.Metadata.Name)
	}
	require.Empty(t, want)
}

// TestStrimziHasAUserForEachAccount: pods find their certificate by the name of their account. An integration test
// checks the permissions against docs/security.md, on a real broker.
func TestStrimziHasAUserForEachAccount(t *testing.T) {
	var users, accounts []string
	for _, o := range ofKind(t, strimziDir, "KafkaUser") {
		users = append(users, o.Metadata.Name)
		require.Equal(t, "kudos", o.Metadata.Labels["strimzi.io/cluster"], "the name of the CA's Secret depends on it")
	}
	for _, o := range ofKind(t, productionDir, "ServiceAccount") {
		accounts = append(accounts, o.Metadata.Name)
	}
	require.ElementsMatch(t, accounts, users)
}

// TestKubernetesHasTheKafkaThatTestsRun compares with docker-compose.yml, whose version another test checks.
func TestKubernetesHasTheKafkaThatTestsRun(t *testing.T) {
	services := composeServices(t)
	images := map[string]string{}
	for _, w := range workloads(t, devDir) {
		images[w.Metadata.Name] = w.Template.Spec.Containers[0].Image
	}
	require.Equal(t, services["kafka"].Image, images["kafka"])
	require.Equal(t, services["mysql"].Image, images["mysql"])
}

// TestKubernetesAlertsEqualTheRules checks that the object is generated from the one copy of the rules.
func TestKubernetesAlertsEqualTheRules(t *testing.T) {
	tier.Verify(t)
	path := filepath.Join(t.TempDir(), "alerts.yaml")
	alerts, err := exec.CommandContext(t.Context(), "./kubernetes/prometheusrule.sh").Output()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, alerts, 0o600))
	rules := readYAML[map[string]any](t, "prometheus/kudos.rules.yaml")
	want, err := json.Marshal(rules)
	require.NoError(t, err)
	o := deployed.Read[object](t, path)[0]
	require.Equal(t, "PrometheusRule", o.Kind)
	require.JSONEq(t, string(want), string(o.Spec))
}
