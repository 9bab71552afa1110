package schema

import (
	"slices"
	"strconv"
)

// The topics. The state table's name is what goka makes of its group's name.
const (
	TopicLikes   = "likes"
	TopicState   = GroupFold + "-table"
	TopicUpdates = "like-updates"
	TopicDLT     = "likes.dlt"

	TopicTrending           = GroupTrending
	TopicTrendingLocal      = GroupTrendingLocal
	TopicTrendingTable      = GroupTrending + "-table"
	TopicTrendingLocalTable = GroupTrendingLocal + "-table"
	// TopicExclusions has one partition: every ranker reads all of it.
	TopicExclusions = "trending-exclusions"
)

// The consumer groups of the processor role.
const (
	GroupFold  = "latest-like-action"
	GroupApply = "like-count"
)

// The consumer groups of the ranker role, each named for the topic that it makes; the
// last one brings rankings to MySQL.
const (
	GroupTrendingLocal = "trending-local"
	GroupTrending      = "trending"
	GroupTrendingMySQL = "trending-mysql"
)

// Headers of records. A forwarded event names its origin; a dead letter, why and from where it came.
const (
	HeaderForwarded    = "kudos.forwarded" // <partition>@<offset>, and /<layouts> once the layout has changed
	HeaderDLTError     = "kudos.error"
	HeaderDLTTopic     = "kudos.topic"
	HeaderDLTPartition = "kudos.partition"
	HeaderDLTOffset    = "kudos.offset"
)

// FoldTransactionalID is the transactional id of a partition's fold. One id per
// partition, never one per process: initialising it is what fences an earlier owner.
func FoldTransactionalID(partition int32) string {
	return TransactionalID(GroupFold, partition)
}

// TransactionalID is the transactional id of a group's partition.
func TransactionalID(group string, partition int32) string {
	return group + "-" + strconv.Itoa(int(partition))
}

// RepartitionTransactionalID is that of the moves of `kudos topics repartition`, of all partitions: a
// second one fences the first.
const RepartitionTransactionalID = GroupFold + "-repartition"

// KeepsPartitions tells whether a topic keeps the number of partitions that it was made with while the
// others grow (`kudos topics repartition`): where a ranking lives has nothing to do with where posts live.
func KeepsPartitions(topic string) bool {
	switch topic {
	case TopicTrending, TopicTrendingLocal, TopicTrendingTable, TopicExclusions:
		return true
	}
	return false
}

// Topic is how a topic must be set up.
type Topic struct {
	Name string
	// Partitions are the same for all topics but trending-exclusions, which has one, until
	// partitions are added (KeepsPartitions); ReplicationFactor is for all.
	Partitions        int32
	ReplicationFactor int16
	Configs           map[string]string
	// Least names the settings that are lower bounds: an operator may have more.
	Least []string
}

// Accepts tells whether a setting of the topic may have a value.
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
	return err == nil && (have == unlimited || have > least)
}

// unlimited is Kafka's -1, which is more than any number.
const unlimited = -1

// Topics lists every topic with its settings. A minimum of in-sync replicas below
// the replication factor keeps writes going with a broker down.
func Topics(partitions int32, replicationFactor int16) []Topic {
	const day = 24 * 60 * 60 * 1000
	ms := func(n int64) string { return strconv.FormatInt(n, 10) }
	topic := func(name string, configs map[string]string) Topic {
		configs["min.insync.replicas"] = strconv.Itoa(max(1, int(replicationFactor)-1))
		configs["unclean.leader.election.enable"] = "false"
		return Topic{
			Name: name, Partitions: partitions, ReplicationFactor: replicationFactor, Configs: configs,
			Least: []string{"retention.ms"},
		}
	}
	compacted := func(name string) Topic { return topic(name, map[string]string{"cleanup.policy": "compact"}) }
	exclusions := compacted(TopicExclusions)
	exclusions.Partitions = 1
	return []Topic{
		topic(TopicLikes, map[string]string{
			"cleanup.policy":         "delete",
			"retention.ms":           ms(7 * day),
			"message.timestamp.type": "LogAppendTime",
			"max.message.bytes":      strconv.Itoa(LikesMaxMessageBytes),
		}),
		compacted(TopicState),
		topic(TopicUpdates, map[string]string{
			"cleanup.policy":         "compact",
			"min.compaction.lag.ms":  ms(7 * day),
			"message.timestamp.type": "LogAppendTime",
		}),
		topic(TopicDLT, map[string]string{
			"cleanup.policy": "delete",
			"retention.ms":   ms(30 * day),
			// Space for a whole batch of likes, with headers.
			"max.message.bytes": strconv.Itoa(dltMaxMessageBytes),
		}),
		// Not deleted: the last ranking of a quiet region may be old, and still holds.
		topic(TopicTrending, map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": ms(7 * day)}),
		topic(TopicTrendingLocal, map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": ms(day)}),
		compacted(TopicTrendingLocalTable),
		compacted(TopicTrendingTable),
		exclusions,
	}
}

const (
	// LikesMaxMessageBytes bounds a record batch in likes, as the broker sees it.
	LikesMaxMessageBytes = 64 << 10
	dltMaxMessageBytes   = 2 * LikesMaxMessageBytes
)

// BatchMaxBytes is how large a writer's record batches may be for a topic, a little
// below what the broker takes; 0: as large as Kafka's default.
func BatchMaxBytes(topic string) int32 {
	switch topic {
	case TopicLikes:
		return LikesMaxMessageBytes - 1<<10
	case TopicDLT:
		return dltMaxMessageBytes - 1<<10
	}
	return 0
}
