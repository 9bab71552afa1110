package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"kudos/schema"
)

// productionTopics are the topics as production's settings say.
func productionTopics(t *testing.T) map[string]schema.Topic {
	t.Helper()
	for _, w := range kudosWorkloads(t, productionFolder) {
		if w.Metadata.Name == "kudos-topics" {
			_, cfg := asInPod(t, productionFolder, w.Template.Spec)
			topics := map[string]schema.Topic{}
			for _, topic := range schema.Topics(cfg.Topics.Partitions, cfg.Topics.ReplicationFactor) {
				topics[topic.Name] = topic
			}
			return topics
		}
	}
	require.Fail(t, "no job makes the topics")
	return nil
}

// TestStrimziTopicsAreThoseOfTheProgram: otherwise Strimzi and `kudos topics apply` would set them back and forth.
func TestStrimziTopicsAreThoseOfTheProgram(t *testing.T) {
	want := productionTopics(t)
	for _, o := range ofKind(t, strimziFolder, "KafkaTopic") {
		have := specOf[struct {
			Partitions, Replicas int
			Config               map[string]string
		}](t, o)
		topic, exists := want[o.Metadata.Name]
		require.True(t, exists, "%s is no topic", o.Metadata.Name)
		require.Equal(t, int(topic.Partitions), have.Partitions, o.Metadata.Name)
		require.Equal(t, int(topic.ReplicationFactor), have.Replicas, o.Metadata.Name)
		require.Equal(t, topic.Configs, have.Config, o.Metadata.Name)
		require.NotEmpty(t, o.Metadata.Labels["strimzi.io/cluster"], o.Metadata.Name)
		delete(want, o.Metadata.Name)
	}
	require.Empty(t, want)
}

// TestStrimziUsersHaveNoMoreThanRolesNeed: their rights are on topics, groups and transactional ids of the program, and
// nobody has any on the cluster, or may delete.
func TestStrimziUsersHaveNoMoreThanRolesNeed(t *testing.T) {
	groups := []string{schema.GroupFold, schema.GroupApply, schema.GroupTrendingLocal, schema.GroupTrending, schema.GroupTrendingMySQL}
	topics := productionTopics(t)
	reach := map[string][]string{} // by operation and topic, who
	var users []string
	for _, o := range ofKind(t, strimziFolder, "KafkaUser") {
		users = append(users, o.Metadata.Name)
		s := specOf[struct {
			Authorization struct {
				ACLs []struct {
					Resource   struct{ Type, Name, PatternType string }
					Operations []string
				}
			}
		}](t, o)
		for _, acl := range s.Authorization.ACLs {
			r := acl.Resource
			require.NotContains(t, acl.Operations, "All", o.Metadata.Name)
			require.NotContains(t, acl.Operations, "Delete", o.Metadata.Name)
			switch r.Type {
			case "topic":
				require.Contains(t, topics, r.Name, o.Metadata.Name)
				require.Empty(t, r.PatternType, "%s: a prefix takes in topics of others", o.Metadata.Name)
			case "group":
				require.Contains(t, groups, r.Name, o.Metadata.Name)
				require.Empty(t, r.PatternType, o.Metadata.Name)
			case "transactionalId":
				require.Equal(t, "prefix", r.PatternType, o.Metadata.Name)
				require.True(t, strings.HasPrefix(schema.FoldTransactionalID(0), r.Name) || strings.HasPrefix(schema.TransactionalID(schema.GroupTrending, 0), r.Name), r.Name)
			default:
				require.Fail(t, "a right on "+r.Type, o.Metadata.Name)
			}
			for _, operation := range acl.Operations {
				reach[operation+" "+r.Type+" "+r.Name] = append(reach[operation+" "+r.Type+" "+r.Name], o.Metadata.Name)
			}
		}
	}
	var accounts []string
	for _, o := range ofKind(t, productionFolder, "ServiceAccount") {
		accounts = append(accounts, o.Metadata.Name)
	}
	require.ElementsMatch(t, accounts, users, "a user for each account")
	for right, want := range map[string][]string{
		"Write topic " + schema.TopicLikes:          {"kudos-producer", "kudos-processor"},
		"Write topic " + schema.TopicUpdates:        {"kudos-processor"},
		"Write topic " + schema.TopicState:          {"kudos-processor", "kudos-setup"},
		"Write topic " + schema.TopicDLT:            {"kudos-processor"},
		"Write topic " + schema.TopicExclusions:     nil,
		"Write transactionalId latest-like-action-": {"kudos-processor", "kudos-setup"},
	} {
		require.ElementsMatch(t, want, reach[right], right)
	}
}

// TestKubernetesHasTheKafkaThatTestsRun: as docker-compose.yml, whose version another test holds.
func TestKubernetesHasTheKafkaThatTestsRun(t *testing.T) {
	services := composeServices(t)
	images := map[string]string{}
	for _, w := range workloads(t, devFolder) {
		images[w.Metadata.Name] = w.Template.Spec.Containers[0].Image
	}
	require.Equal(t, services["kafka"].Image, images["kafka"])
	require.Equal(t, services["mysql"].Image, images["mysql"])
}

// TestAlertsForKubernetesAreTheRules: there is one copy of them.
func TestAlertsForKubernetesAreTheRules(t *testing.T) {
	text, err := os.ReadFile("deploy/prometheus/kudos.rules.yaml")
	require.NoError(t, err)
	var rules map[string]any
	require.NoError(t, yaml.Unmarshal(text, &rules))
	want, err := json.Marshal(rules)
	require.NoError(t, err)
	alerts := ofKind(t, alertsObject, "PrometheusRule")
	require.JSONEq(t, string(want), string(alerts[0].Spec))
}
