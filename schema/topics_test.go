package schema

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func topicsByName(t *testing.T, partitions int32, replication int16) map[string]Topic {
	t.Helper()
	byName := map[string]Topic{}
	for _, topic := range Topics(partitions, replication) {
		require.NotContains(t, byName, topic.Name)
		byName[topic.Name] = topic
	}
	return byName
}

// The topic settings are a contract. Rankings stay uncompacted for 7 days, like updates.
func TestTopics(t *testing.T) {
	topics := topicsByName(t, 12, 3)
	configs := map[string]map[string]string{
		"likes": {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1",
			"message.timestamp.type": "LogAppendTime", "max.message.bytes": "65536"},
		"latest-like-action-table": {"cleanup.policy": "compact"},
		"like-updates": {"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000",
			"message.timestamp.type": "LogAppendTime"},
		"like-counts": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2",
			"segment.bytes": "16777216", "segment.ms": "3600000"},
		"likes.dlt": {"cleanup.policy": "delete", "retention.ms": "2592000000", "retention.bytes": "-1",
			"max.message.bytes": "131072"}, // must fit an oversized original with its headers
		"trending":             {"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"},
		"trending-table":       {"cleanup.policy": "compact"},
		"trending-local":       {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"},
		"trending-local-table": {"cleanup.policy": "compact"},
		"trending-exclusions":  {"cleanup.policy": "compact"},
		"milestones":           {"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"},
		"milestones-local":     {"cleanup.policy": "delete", "retention.ms": "604800000"},
		"milestones-table":     {"cleanup.policy": "compact"},
		"notify.dlt":           {"cleanup.policy": "delete", "retention.ms": "2592000000"},
	}
	require.Len(t, topics, len(configs))
	for name, want := range configs {
		topic := topics[name]
		want["min.insync.replicas"], want["unclean.leader.election.enable"] = "2", "false"
		require.Equal(t, want, topic.Configs, name)
		require.Equal(t, int16(3), topic.ReplicationFactor, name)
		if name == "trending-exclusions" {
			require.Equal(t, int32(1), topic.Partitions, "every ranker must read all of it, in one order")
		} else {
			require.Equal(t, int32(12), topic.Partitions, "%s: a post has one partition number in every topic", name)
		}
	}
	require.Equal(t, GroupTrending+"-table", TopicTrendingTable, "goka names the group's table")
	require.Equal(t, GroupTrendingLocal+"-table", TopicTrendingLocalTable)
}

func TestALongerRetentionIsAccepted(t *testing.T) {
	likes := topicsByName(t, 1, 1)[TopicLikes]
	for value, want := range map[string]bool{
		"604800000": true, "604800001": true, "-1": true,
		"604799999": false, "0": false, "-2": false, "": false, "week": false,
	} {
		require.Equal(t, want, likes.Accepts("retention.ms", value), "retention.ms = %q", value)
	}
	updates := topicsByName(t, 1, 1)[TopicUpdates]
	for value, want := range map[string]bool{"604800000": true, "604800001": true, "604799999": false, "-1": false} {
		require.Equal(t, want, updates.Accepts("min.compaction.lag.ms", value), "min.compaction.lag.ms = %q", value)
	}
	require.False(t, likes.Accepts("retention.bytes", "1000000000000"), "events would go before their time")
	require.False(t, likes.Accepts("max.message.bytes", "65537"), "other settings must match exactly")
	require.True(t, likes.Accepts("max.message.bytes", "65536"))
}

func TestMinInsyncReplicas(t *testing.T) {
	for replication, want := range map[int16]string{1: "1", 2: "1", 3: "2", 5: "4"} {
		for name, topic := range topicsByName(t, 1, replication) {
			require.Equal(t, want, topic.Configs["min.insync.replicas"], "%s with %d replicas", name, replication)
		}
	}
}

func TestFoldTransactionalIDs(t *testing.T) {
	require.Equal(t, []string{"latest-like-action-0", "latest-like-action-0-second"}, FoldTransactionalIDs(0))
	require.Equal(t, []string{"latest-like-action-17", "latest-like-action-17-second"}, FoldTransactionalIDs(17))
}
