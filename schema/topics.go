package schema

import (
	"slices"
	"strconv"
	"time"
)

// The topics. goka derives the name of a state table from the name of its group.
const (
	TopicLikes   = "likes"
	TopicState   = GroupFold + "-table"
	TopicUpdates = "like-updates"
	TopicCounts  = "like-counts"
	TopicDLT     = "likes.dlt"

	TopicTrending           = GroupTrending
	TopicTrendingLocal      = GroupTrendingLocal
	TopicTrendingTable      = GroupTrending + "-table"
	TopicTrendingLocalTable = GroupTrendingLocal + "-table"
	TopicExclusions         = "trending-exclusions" // one partition: every ranker reads all of it

	TopicMilestones      = GroupMilestones
	TopicMilestonesLocal = GroupMilestones + "-local"
	TopicMilestonesTable = GroupMilestones + "-table"

	TopicNotifyDLT = "notify.dlt" // events that a webhook has not taken
)

// The consumer groups of the processor, and of the ranker: its first two are named after the topic they produce, its
// last one writes to MySQL.
const (
	GroupFold  = "latest-like-action"
	GroupApply = "like-count"

	GroupTrendingLocal = "trending-local"
	GroupTrending      = "trending"
	GroupTrendingMySQL = "trending-mysql"
	GroupMilestones    = "milestones"

	GroupReactions = "reader-reactions" // readers that share out the reactions
	GroupAudit     = "audit"            // has no members; see AuditResult
)

// AuditResult is the result of the last `kudos audit`. It is the metadata, in JSON, of the offset of GroupAudit in
// partition 0 of TopicState.
type AuditResult struct {
	At          time.Time `json:"at"`
	Deep        bool      `json:"deep"`
	Differences int64     `json:"differences"`
	NotCompared int       `json:"not_compared"` // partitions
	Exit        int       `json:"exit"`         // exit code of the command
}

// Record headers. A forwarded event has its original position, a dead letter its position and the error.
const (
	HeaderForwarded    = "kudos.forwarded" // <partition>@<offset>, plus /<layouts> once the layout has changed
	HeaderDLTError     = "kudos.error"
	HeaderDLTTopic     = "kudos.topic"
	HeaderDLTPartition = "kudos.partition"
	HeaderDLTOffset    = "kudos.offset"
)

// FoldTransactionalIDs are the transactional ids of a partition's fold. They belong to the partition, not to a process:
// initializing them, in this order, fences an earlier owner of the partition.
func FoldTransactionalIDs(partition int32) []string {
	first := TransactionalID(GroupFold, partition)
	return []string{first, first + "-second"}
}

// TransactionalID is the transactional id of a group's partition.
func TransactionalID(group string, partition int32) string {
	return group + "-" + strconv.Itoa(int(partition))
}

// RepartitionTransactionalID is that of `kudos topics repartition` in all partitions: a second run fences the first.
const RepartitionTransactionalID = GroupFold + "-repartition"

// KeepsPartitions reports whether a topic keeps its number of partitions while the others grow (`kudos topics
// repartition`): the partition of a ranking or milestone does not depend on those of its posts.
func KeepsPartitions(topic string) bool {
	return slices.Contains([]string{TopicTrending, TopicTrendingLocal, TopicTrendingTable, TopicExclusions,
		TopicMilestones, TopicMilestonesLocal, TopicMilestonesTable, TopicNotifyDLT}, topic)
}

// Topic is the required setup of a topic.
type Topic struct {
	Name string
	// Partitions is the same for all topics except trending-exclusions, which has one, until partitions are added
	// (KeepsPartitions). ReplicationFactor is the same for all.
	Partitions        int32
	ReplicationFactor int16
	Configs           map[string]string
	Least             []string // the settings that are lower bounds: an operator may set higher values
}

// Accepts reports whether value is allowed for a setting of the topic.
func (t Topic) Accepts(config, value string) bool {
	want := t.Configs[config]
	if value == want {
		return true
	}
	if !slices.Contains(t.Least, config) {
		return false
	}
	have, err := strconv.ParseInt(value, 10, 64)
	least, _ := strconv.ParseInt(want, 10, 64)
	return err == nil && (have > least || have == -1 && config == "retention.ms") // -1: unlimited
}

// Topics returns all topics with their settings. min.insync.replicas lets writes continue with one broker down.
func Topics(partitions int32, replicationFactor int16) []Topic {
	const day = 24 * 60 * 60 * 1000
	ms := func(n int64) string { return strconv.FormatInt(n, 10) }
	topic := func(name string, configs map[string]string) Topic {
		configs["min.insync.replicas"] = strconv.Itoa(max(1, int(replicationFactor)-1))
		configs["unclean.leader.election.enable"] = "false"
		return Topic{Name: name, Partitions: partitions, ReplicationFactor: replicationFactor, Configs: configs,
			Least: []string{"retention.ms", "min.compaction.lag.ms"}}
	}
	compacted := func(name string) Topic { return topic(name, map[string]string{"cleanup.policy": "compact"}) }
	exclusions := compacted(TopicExclusions)
	exclusions.Partitions = 1
	return []Topic{
		topic(TopicLikes, map[string]string{
			"cleanup.policy":         "delete",
			"retention.ms":           ms(7 * day),
			"retention.bytes":        "-1",
			"message.timestamp.type": "LogAppendTime",
			"max.message.bytes":      strconv.Itoa(LikesMaxMessageBytes),
		}),
		compacted(TopicState),
		topic(TopicUpdates, map[string]string{
			"cleanup.policy":         "compact",
			"min.compaction.lag.ms":  ms(7 * day),
			"message.timestamp.type": "LogAppendTime",
		}),
		// A new reader reads all of it: segments that roll soon are compacted soon.
		topic(TopicCounts, map[string]string{
			"cleanup.policy":            "compact",
			"min.cleanable.dirty.ratio": "0.2",
			"segment.bytes":             strconv.Itoa(16 << 20),
			"segment.ms":                ms(day / 24),
		}),
		topic(TopicDLT, map[string]string{
			"cleanup.policy":  "delete",
			"retention.ms":    ms(30 * day),
			"retention.bytes": "-1", // dead letters go by age, not because there are many
			// Room for a whole batch of likes, with headers.
			"max.message.bytes": strconv.Itoa(dltMaxMessageBytes),
		}),
		// Compacted, not deleted: the last ranking of a quiet region may be old, but is still valid.
		topic(TopicTrending, map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": ms(7 * day)}),
		topic(TopicTrendingLocal, map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": ms(day)}),
		compacted(TopicTrendingLocalTable),
		compacted(TopicTrendingTable),
		exclusions,
		// The last milestone of each post is kept.
		topic(TopicMilestones, map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": ms(7 * day)}),
		topic(TopicMilestonesLocal, map[string]string{"cleanup.policy": "delete", "retention.ms": ms(7 * day)}),
		compacted(TopicMilestonesTable),
		topic(TopicNotifyDLT, map[string]string{"cleanup.policy": "delete", "retention.ms": ms(30 * day)}),
	}
}

const (
	LikesMaxMessageBytes = 64 << 10 // bounds a record batch in likes, as the broker measures it
	dltMaxMessageBytes   = 2 * LikesMaxMessageBytes
)

// BatchMaxBytes bounds a producer's record batches for a topic, just below the broker's limit; 0 is Kafka's default.
func BatchMaxBytes(topic string) int32 {
	switch topic {
	case TopicLikes:
		return LikesMaxMessageBytes - 1<<10
	case TopicDLT:
		return dltMaxMessageBytes - 1<<10
	}
	return 0
}
