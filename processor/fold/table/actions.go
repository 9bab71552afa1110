package table

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// Actions of an operator where no retry helps. Those that delete or reset something begin with stopping the processors:
// an idle partition does not check its topics or position again, and would continue with those of the deleted topics.
const (
	// ActionApply is for a partition that `kudos topics apply` has not initialized.
	ActionApply = "stop the processors, then: kudos topics apply"
	// ActionStartOver folds again what likes still holds.
	ActionStartOver = "stop the processors and rankers, " + recreated
	recreated       = "delete " + schema.TopicState + " and " + schema.TopicUpdates +
		", and the topics of the rankers (" + rankings + "), empty like_count, like_hourly and applied_offset" +
		" in MySQL (in each database of mysql.shards), then: kudos topics apply"
	// rankings are the topics that hold positions in like-updates, and must be recreated with it.
	rankings = schema.TopicTrending + ", " + schema.TopicTrendingTable + ", " +
		schema.TopicTrendingLocal + ", " + schema.TopicTrendingLocalTable
	// ActionRestore is for a state table that does not belong to the current topics.
	ActionRestore = "stop the processors and rankers, and restore the topics that the state table was built from; " +
		"or, to start over from the events that likes still holds, " + recreated
	// ActionOffsets is for a committed offset that is wrong, and nothing else is.
	ActionOffsets = "stop the processors, then: kudos rebuild --offsets"
	// ActionFromEvents is for a state table that can be rebuilt from likes.
	ActionFromEvents = "stop the processors, then: kudos rebuild --from-events"
	// ActionUpdates is for like-updates contradicting the state table, while likes has all events after its position.
	ActionUpdates = "stop the processors, delete " + schema.TopicUpdates +
		", then: kudos topics apply, and kudos rebuild --updates"
	// ActionAcceptLoss is for events that were lost before they were folded, or after.
	ActionAcceptLoss = "if the missing events are permanently lost, continue without them: " +
		"stop the processors, then: kudos rebuild --accept-loss"
	// ActionUpdatesLost is for like-updates of another state table.
	ActionUpdatesLost = "stop the processors, then: kudos rebuild --updates"
	// ActionRebuild is for MySQL and like-updates that do not match.
	ActionRebuild = "kudos rebuild (processors may keep running; it prints further steps)"
)

// NoProgress is the reason for parking; its argument is the partition.
const NoProgress = "partition %d of the state table has no progress record"

// ParkPartitions parks because a topic has another partition count than the state table was made for. The count decides
// which partition owns a post. It only ever grows, so the reactions must be moved.
func ParkPartitions(name string, have, was int32) error {
	const otherPartitions = "topic %s has %d partitions, but the state table was created for %d"
	if have < was {
		return stream.Park(stream.CauseTopics, ActionRestore, otherPartitions, name, have, was)
	}
	action := ActionRepartition + " --set topics.partitions=" + strconv.Itoa(int(have))
	return stream.Park(stream.CauseTopics, action, otherPartitions, name, have, was)
}

// ActionRepartition is for partitions that were added, and for a repartition that has not finished.
const ActionRepartition = "kudos topics repartition"

// ParkMigrating parks because a repartition is running, or was interrupted.
func ParkMigrating(p *schema.Progress) error {
	return stream.Park(stream.CauseTopics, ActionRepartition+" (if it is not running: it resumes where it stopped)",
		"a repartition to %d partitions has not ended; nothing is folded until it has", p.Partitions)
}

// CheckPartitions compares likes with the state table: goka would fail the group without naming the changed topic.
func CheckPartitions(ctx context.Context, cl *kgo.Client) error {
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicState)
	if err != nil {
		return err
	}
	likes, state := topics.ByName[schema.TopicLikes].Partitions, topics.ByName[schema.TopicState].Partitions
	switch {
	case likes > state:
		return ParkPartitions(schema.TopicLikes, likes, state)
	case state > likes:
		return ParkPartitions(schema.TopicState, state, likes)
	}
	return nil
}
