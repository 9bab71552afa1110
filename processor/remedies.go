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
	startOver = "stop the processors, " + anew
	anew      = "delete " + schema.TopicState + " and " + schema.TopicUpdates +
		", empty like_count, like_hourly and applied_offset in MySQL, then: kudos topics apply"
	// restore is for a state table that does not belong to the topics there are.
	restore = "stop the processors and restore the topics that the state table was made with; or, to start over with the events that likes still holds, " + anew
	// remake is for a state table that is not where the group is.
	remake = "stop the processors, delete " + schema.TopicState + ", then: kudos topics apply (it will say that the state table was lost) and kudos rebuild --from-events; if likes has lost its start, " + anew
	// rebuild is for MySQL and like-updates that do not belong together any more.
	rebuild = "stop the processors and empty like_count, like_hourly and applied_offset: they are built again from like-updates, if that still is whole"
)

const noProgress = "partition %d of the state table has no progress record"

// parkPartitions: with another count of partitions, posts live elsewhere. Since a count
// only ever grows, the one that likes has now is the one to start over with.
func parkPartitions(topics stream.Topics, name string, was int32) error {
	likes := topics.ByName[schema.TopicLikes].Partitions
	how := restore + " --set topics.partitions=" + strconv.Itoa(int(likes))
	if name == schema.TopicLikes {
		how += " (" + schema.TopicDLT + " must have as many: kafka-topics.sh --alter)"
	}
	return stream.Park(how, "topic %s has %d partitions, the state table was made for %d", name, topics.ByName[name].Partitions, was)
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
		return parkPartitions(topics, schema.TopicLikes, state)
	case state > likes:
		return parkPartitions(topics, schema.TopicState, likes)
	}
	return nil
}
