package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

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
	for _, o := range append(deployed.Read[object](t, path), ofKind(t, chartDir, "PrometheusRule")...) {
		require.Equal(t, "PrometheusRule", o.Kind)
		require.JSONEq(t, string(want), string(o.Spec))
	}

	cmd := exec.CommandContext(t.Context(), "./kubernetes/prometheusrule.sh")
	cmd.Env = append(os.Environ(), "RUNBOOKS=https://wiki.example.com/kudos")
	alerts, err = cmd.Output()
	require.NoError(t, err)
	links := strings.Count(string(alerts), "runbook_url: ")
	require.NotZero(t, links)
	require.Equal(t, links, strings.Count(string(alerts), "runbook_url: https://wiki.example.com/kudos#kudos"))
}

// TestChartEqualsKustomizations: Helm installs the same objects, besides the alerts, with setup before the roles.
func TestChartEqualsKustomizations(t *testing.T) {
	hash := regexp.MustCompile(`-[0-9a-z]{10}"`)
	read := func(directory string) map[string]any {
		all := map[string]any{}
		for _, text := range deployed.Read[json.RawMessage](t, "deploy/"+directory) {
			var o map[string]any
			require.NoError(t, json.Unmarshal(hash.ReplaceAll(text, []byte(`"`)), &o))
			metadata := o["metadata"].(map[string]any)
			labels, _ := metadata["labels"].(map[string]any)
			if labels["app.kubernetes.io/name"] != "kudos" || o["kind"] == "PrometheusRule" {
				continue
			}
			before := strings.HasPrefix(directory, "helm/") && labels["app.kubernetes.io/component"] == "setup"
			require.Equal(t, before, metadata["annotations"] != nil, "%s: only setup is a hook", metadata["name"])
			delete(metadata, "annotations")
			if data, is := o["data"].(map[string]any); is {
				var settings any
				require.NoError(t, yaml.Unmarshal([]byte(data["kudos.yaml"].(string)), &settings))
				o["data"] = settings
			}
			all[fmt.Sprint(o["kind"], " ", metadata["name"])] = o
		}
		return all
	}
	require.Equal(t, read(devDir), read(chartDevDir))
	require.Equal(t, read(productionDir), read(chartDir))
}
