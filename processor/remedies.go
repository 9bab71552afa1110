package processor

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

// What a person does where no retry helps. All begin with stopping the processors: a
// partition where nothing arrives does not look at its topics or its position again, and
// would go on from what it knows of those that are gone.
const (
	// applyAgain is for a partition that `kudos topics apply` did not come to.
	applyAgain = "stop the processors, then: kudos topics apply"
	// startOver folds again what likes still holds.
	startOver = "stop the processors and rankers, " + anew
	anew      = "delete " + schema.TopicState + " and " + schema.TopicUpdates + ", and what rankers have made of them (" + rankings +
		"), empty like_count, like_hourly and applied_offset in MySQL (in each database of mysql.shards), then: kudos topics apply"
	// rankings are the topics that hold positions in like-updates, and are made anew with it.
	rankings = schema.TopicTrending + ", " + schema.TopicTrendingTable + ", " + schema.TopicTrendingLocal + ", " + schema.TopicTrendingLocalTable
	// restore is for a state table that does not belong to the topics there are.
	restore = "stop the processors and rankers, and restore the topics that the state table was made with; or, to start over with the events that likes still holds, " + anew
	// offsetsAgain is for a group's offset that alone is wrong.
	offsetsAgain = "stop the processors, then: kudos rebuild --offsets"
	// fromEvents is for a state table that likes still explains.
	fromEvents = "stop the processors, then: kudos rebuild --from-events"
	// updatesAgain is for like-updates that is not of the state table, which likes goes on from.
	updatesAgain = "stop the processors, delete " + schema.TopicUpdates + ", then: kudos topics apply, and kudos rebuild --updates"
	// acceptLoss is for events that were lost before they were folded, or after.
	acceptLoss = "if the missing events are lost for good, go on without them: stop the processors, then: kudos rebuild --accept-loss"
	// updatesLost is for like-updates of another state table.
	updatesLost = "stop the processors, then: kudos rebuild --updates"
	// rebuild is for MySQL and like-updates that do not belong together any more.
	rebuild = "kudos rebuild (processors may run; it says what else is needed)"
)

const noProgress = "partition %d of the state table has no progress record"

// parkPartitions: with another count of partitions, posts live elsewhere. Since a count
// only ever grows, somebody has added some, and what lives elsewhere now is to be moved.
func parkPartitions(name string, have, was int32) error {
	if have < was {
		return stream.Park(stream.CauseTopics, restore, "topic %s has %d partitions, the state table was made for %d", name, have, was)
	}
	return stream.Park(stream.CauseTopics, Repartition+" --set topics.partitions="+strconv.Itoa(int(have)),
		"topic %s has %d partitions, the state table was made for %d", name, have, was)
}

// Repartition is for partitions that were added, and for a repartition that has not ended.
const Repartition = "kudos topics repartition"

// parkMoving: a repartition is at work, or was stopped.
func parkMoving(p *schema.Progress) error {
	return stream.Park(stream.CauseTopics, Repartition+" (if it is not at work: it goes on where it was stopped)",
		"a repartition to %d partitions has not ended; nothing is folded until it has", p.Partitions)
}

// checkPartitions looks at what goka would refuse the whole group for, without knowing
// which topic was changed. It is the larger one.
func checkPartitions(ctx context.Context, cl *kgo.Client) error {
	topics, err := stream.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicState)
	if err != nil {
		return err
	}
	likes, state := topics.ByName[schema.TopicLikes].Partitions, topics.ByName[schema.TopicState].Partitions
	switch {
	case likes > state:
		return parkPartitions(schema.TopicLikes, likes, state)
	case state > likes:
		return parkPartitions(schema.TopicState, state, likes)
	}
	return nil
}
