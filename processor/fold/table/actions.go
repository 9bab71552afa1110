package table

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// What an operator does where no retry helps. All begin with stopping the processors: an idle partition does not check
// its topics or its position again, and would continue from what it knows of the deleted ones.
const (
	// ActionApply is for a partition that `kudos topics apply` did not come to.
	ActionApply = "stop the processors, then: kudos topics apply"
	// ActionStartOver folds again what likes still holds.
	ActionStartOver = "stop the processors and rankers, " + anew
	anew            = "delete " + schema.TopicState + " and " + schema.TopicUpdates +
		", and what rankers have made of them (" + rankings + "), empty like_count, like_hourly and applied_offset" +
		" in MySQL (in each database of mysql.shards), then: kudos topics apply"
	// rankings are the topics that hold positions in like-updates, and are made anew with it.
	rankings = schema.TopicTrending + ", " + schema.TopicTrendingTable + ", " +
		schema.TopicTrendingLocal + ", " + schema.TopicTrendingLocalTable
	// ActionRestore is for a state table that does not belong to the topics there are.
	ActionRestore = "stop the processors and rankers, and restore the topics that the state table was made with; " +
		"or, to start over with the events that likes still holds, " + anew
	// ActionOffsets is for a group's offset that alone is wrong.
	ActionOffsets = "stop the processors, then: kudos rebuild --offsets"
	// ActionFromEvents is for a state table that likes still explains.
	ActionFromEvents = "stop the processors, then: kudos rebuild --from-events"
	// ActionUpdates is for like-updates that is not of the state table, which likes goes on from.
	ActionUpdates = "stop the processors, delete " + schema.TopicUpdates +
		", then: kudos topics apply, and kudos rebuild --updates"
	// ActionAcceptLoss is for events that were lost before they were folded, or after.
	ActionAcceptLoss = "if the missing events are lost for good, go on without them: " +
		"stop the processors, then: kudos rebuild --accept-loss"
	// ActionUpdatesLost is for like-updates of another state table.
	ActionUpdatesLost = "stop the processors, then: kudos rebuild --updates"
	// ActionRebuild is for MySQL and like-updates that do not belong together any more.
	ActionRebuild = "kudos rebuild (processors may run; it says what else is needed)"
)

// NoProgress is the reason of a park; its argument is the partition.
const NoProgress = "partition %d of the state table has no progress record"

// ParkPartitions parks because a topic has another number of partitions than the state table was
// made for. The number decides where a post lives. It only ever grows, so the reactions are to be moved.
func ParkPartitions(name string, have, was int32) error {
	const otherPartitions = "topic %s has %d partitions, the state table was made for %d"
	if have < was {
		return stream.Park(stream.CauseTopics, ActionRestore, otherPartitions, name, have, was)
	}
	action := ActionRepartition + " --set topics.partitions=" + strconv.Itoa(int(have))
	return stream.Park(stream.CauseTopics, action, otherPartitions, name, have, was)
}

// ActionRepartition is for partitions that were added, and for a repartition that has not ended.
const ActionRepartition = "kudos topics repartition"

// ParkMoving parks because a repartition is running, or was stopped.
func ParkMoving(p *schema.Progress) error {
	return stream.Park(stream.CauseTopics, ActionRepartition+" (if it is not at work: it goes on where it was stopped)",
		"a repartition to %d partitions has not ended; nothing is folded until it has", p.Partitions)
}

// CheckPartitions compares the partition counts of likes and the state table. goka would refuse the
// whole group if they differ, without telling which topic was changed: it is the larger one.
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
