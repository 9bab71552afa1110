package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// Every cause that a retry cannot repair is created for real. The partition must park and not skip anything, the others
// must continue, readiness and log must name the action, and the action must work.

// parks is a processor whose partitions have one post each, liked by new users each time.
type parks struct {
	*system
	processor *process
	post      map[int32]uint64 // of each partition
	users     uint64
	want      map[int32]int64 // likes of each partition's post
}

// newParks has a running processor that has counted something in each partition.
func newParks(s *system) *parks {
	p := newUnknownParks(s)
	p.like(20)
	p.waitCounted()
	return p
}

// newUnknownParks has a running processor, without any likes yet.
func newUnknownParks(s *system) *parks {
	p := &parks{system: s, post: map[int32]uint64{}, want: map[int32]int64{}}
	for partition := range int32(s.partitions) {
		p.post[partition] = s.postIn(partition)
	}
	p.processor = s.processor("processor", "--set", "processor.park_interval=1s").start()
	return p
}

func newRealParks(t *testing.T) *parks { return newParks(verified(t)) }

func (p *parks) start() { p.processor.start() }
func (p *parks) stop()  { p.processor.stop() }

func (p *parks) like(n int) {
	p.pour(func(send func(schema.Event)) {
		for range n {
			p.users++
			for partition, post := range p.post {
				send(likeNow(post, p.users))
				p.want[partition]++
			}
		}
	})
}

func (p *parks) counts() map[int32]int64 {
	all, counts := p.mysqlCounts(), map[int32]int64{}
	for partition, post := range p.post {
		counts[partition] = all[post].likes
	}
	return counts
}

// waitCounted waits for the expected counts, and until all partitions are ready.
func (p *parks) waitCounted() {
	p.waitSaid("counts", func() (bool, any) { return maps.Equal(p.want, p.counts()), p.counts() })
	p.processor.waitReady()
}

// waitSaid waits up to a minute; a failure also shows the expected counts.
func (p *parks) waitSaid(what string, condition func() (bool, any)) {
	waitSaid(p.t, time.Minute, fmt.Sprintf("%s, with counts %v", what, p.want), condition)
}

// waitNotReady waits until the readiness error contains why and action after some text.
func (p *parks) waitNotReady(after, why, action string) {
	p.waitSaid("readiness: "+after, func() (bool, any) {
		ready, text := p.processor.said("readyz")
		_, rest, found := strings.Cut(text, after)
		return !ready && found && strings.Contains(rest, why) && strings.Contains(rest, action), text
	})
	require.Contains(p.t, p.processor.logged(), action)
}

// waitParked waits until readiness and log say that a partition is parked, why, and what to do.
func (p *parks) waitParked(partition, why, action string) {
	p.waitNotReady(partition+" parked: ", why, action)
	require.Contains(p.t, p.processor.logged(), "partition is parked")
}

func (p *parks) othersGoOn(parked int32) {
	stands := p.counts()[parked]
	p.like(5)
	p.waitSaid("the other partitions to continue", func() (bool, any) {
		want, counts := maps.Clone(p.want), p.counts()
		want[parked] = counts[parked]
		return maps.Equal(want, counts), counts
	})
	require.Equal(p.t, stands, p.counts()[parked], "the count of the parked partition")
}

// resumes sends more likes, and checks that they are counted and that an audit finds no difference.
func (p *parks) resumes() {
	p.like(5)
	p.waitCounted()
	p.audit(0, "--deep")
}

// repair rebuilds while the processor is stopped, checks that counting works afterwards, and returns the output.
func (p *parks) repair(args ...string) (said string) {
	p.stop()
	said = p.rebuild(args...)
	p.start()
	p.resumes()
	return said
}

// MySQL has lost the row of a partition.
func TestParkAtAMissingPosition(t *testing.T) {
	p := newRealParks(t)
	p.db.MustExec("DELETE FROM applied_offset WHERE partition_id = 2")
	p.waitParked("like-updates/2", "no applied_offset row", "kudos rebuild")
	p.othersGoOn(2)
	p.rebuild()
	p.resumes()
}

// Somebody has dropped a table: the counts in it can be rebuilt.
func TestParkAtADroppedTable(t *testing.T) {
	p := newRealParks(t)
	p.db.MustExec("DROP TABLE like_hourly")
	p.like(5)
	p.waitParked("like-updates/2", "a table is not as kudos created it", "then: kudos migrate, and kudos rebuild")
	p.stop()
	p.db.MustExec("DROP TABLE kudos_schema_version")
	p.db.MustExec("DELETE FROM trending_position")
	p.run("migrate", "--set", "mysql.dsn="+p.dsn)
	p.rebuild()
	p.start()
	p.resumes()
}

// Without likes.dlt, the first dead letter would park a partition.
func TestParkAtAMissingTopic(t *testing.T) {
	p := newRealParks(t)
	p.stop()
	p.deleteTopic(schema.TopicDLT)
	p.start()
	p.waitParked("likes/2", "there is no topic likes.dlt", "kudos topics apply")
	p.topicsApply()
	p.resumes()
}

func TestParkAtRecreatedUpdates(t *testing.T) {
	p := newRealParks(t)
	p.stop()
	p.deleteTopic(schema.TopicUpdates)
	p.topicsApply()
	p.start()
	p.waitParked("likes/2", "topic like-updates was deleted and recreated", "kudos rebuild --updates")
	p.waitParked("like-updates/2", "the counts in MySQL come from topic id", "kudos rebuild")
	p.repair("--updates")
}

func TestParkAtARecreatedStateTable(t *testing.T) {
	p := newRealParks(t)
	p.stop()
	p.deleteTopic(schema.TopicState)
	p.run(p.topics(p.partitions, "apply")...)
	p.start()
	p.waitParked("likes/2", "no progress record", "kudos topics apply")
	p.stop()
	p.fails(p.topics(p.partitions, "apply"), "kudos rebuild --from-events")
	p.rebuild("--from-events")
	p.start()
	p.resumes()
}

func TestParkAtRecreatedLikes(t *testing.T) {
	p := newRealParks(t)
	p.stop()
	p.deleteTopic(schema.TopicLikes)
	p.run(p.topics(p.partitions, "apply")...)
	p.start()
	p.waitParked("likes/2", "topic likes was deleted and recreated", "kudos rebuild --accept-loss")
	p.stop()
	require.Contains(t, p.rebuild("--accept-loss"), "partition 2: likes was deleted and recreated")
	require.Contains(t, p.rebuild("--accept-loss"), "partition 2: nothing is lost")
	p.start()
	p.like(5)
	p.waitCounted() // counted likes stay counted
}

// `kudos topics apply` could not write to the last partition.
func TestParkAtAMissingProgressRecord(t *testing.T) {
	s := verified(t)
	s.deleteTopic(schema.TopicState)
	s.deleteTopic(schema.TopicUpdates)
	_, err := s.admin().CreateTopic(t.Context(), partitions, 1, nil, schema.TopicUpdates)
	require.NoError(t, err)
	s.write(updateRecord(3, schema.ProgressKey, schema.Update{Seq: 0}))
	s.fails(s.topics(partitions, "apply"), "like-updates/3 has records")

	p := newUnknownParks(s)
	p.waitParked("likes/3", "no progress record", "kudos topics apply")
	p.othersGoOn(3)
	p.stop()
	p.deleteBefore(schema.TopicUpdates, map[int32]int64{3: 1}) // the writer removes its record
	p.topicsApply()
	p.start()
	// The position is missing, or beyond the rewritten updates.
	p.waitParked("like-updates/3", "like-updates/3", "kudos rebuild")
	p.rebuild()
	p.resumes()
}

// Retention has deleted events that were not folded yet.
func TestParkWhereEventsAreGone(t *testing.T) {
	p := newRealParks(t)
	p.stop()
	p.like(20)
	p.deleteBefore(schema.TopicLikes, map[int32]int64{2: 30})
	p.start()
	p.waitParked("likes/2", "likes/2 holds 30 to 40", "kudos rebuild --accept-loss")
	p.othersGoOn(2)
	p.want[2] -= 10
	require.Contains(t, p.repair("--accept-loss"), "partition 2: offsets 20 to 29 were deleted before they were folded")
}

// Partitions were added: posts belong elsewhere, and nothing may continue until they have moved.
func TestParkAtAnotherPartitionCount(t *testing.T) {
	p := newRealParks(t)
	p.stop()
	before := p.counts()
	_, err := p.admin().CreatePartitions(t.Context(), 2, schema.TopicLikes, schema.TopicDLT)
	require.NoError(t, err)
	waitFor(t, time.Minute, "the new partitions", func() bool {
		topics, err := p.admin().ListTopics(t.Context(), schema.TopicLikes)
		return err == nil && len(topics[schema.TopicLikes].Partitions) == 6
	})
	p.start()
	p.waitNotReady("", "topic likes has 6 partitions, but the state table was created for 4",
		"kudos topics repartition --set topics.partitions=6")
	require.Equal(t, before, p.counts())
	p.repartition(6)
	p.partitions = 6
	p.resumes()
}

// While MySQL is unavailable, only the counts wait.
func TestParkWhileMySQLIsUnavailable(t *testing.T) {
	parallel(t, tier.Verify)
	database := stack.MariaDBForTest(t, stack.DatabaseOptions{})
	p := newParks(newSystemOn(t, database))
	require.NoError(t, database.Kill())
	p.like(20)
	for partition := range p.partitions {
		p.waitParked(fmt.Sprintf("like-updates/%d", partition), "applied position",
			"kudos retries; check the server that the reason names")
	}
	waitFor(t, time.Minute, "the fold to continue", func() bool {
		committed, end := p.standing()
		return committed == end
	})
	_, text := p.processor.said("readyz")
	require.NotContains(t, text, "likes/0 parked")
	require.NoError(t, database.Start(t.Context()))
	p.resumes()
}

// commit resets the fold's group, which has no members, like an operator.
func (p *parks) commit(partition int32, at int64) {
	waitFor(p.t, time.Minute, "the group to be empty", func() bool {
		return p.commitFold(map[int32]int64{partition: at}) == nil
	})
}

// tear makes n new users like the post of a partition, such that like-updates and the committed offset include it and
// the state table does not: as if Kafka had torn a transaction, or the state table was rewound.
func (p *parks) tear(partition int32, n int) {
	post, at := p.post[partition], time.Now().UnixMilli()
	progress := p.progress()[partition]
	p.pour(func(send func(schema.Event)) {
		for range n {
			p.users++
			send(like(post, p.users, at))
		}
	})
	p.want[partition] += int64(n)
	next := progress.NextOffset + int64(n)
	update := schema.Update{Seq: progress.NextSeq, SourceOffset: next, Counts: schema.Counts{Likes: p.want[partition]},
		Deltas: []schema.Delta{{Region: schema.UnknownRegion, Minute: schema.MinuteOf(at), Likes: int64(n)}}}
	last := schema.ProgressUpdate(progress.Layouts, false)
	last.Seq, last.SourceOffset = progress.NextSeq+1, next
	p.write(updateRecord(partition, fmt.Sprint(post), update), updateRecord(partition, schema.ProgressKey, last))
	p.commit(partition, next)
}

// recommits makes a partition whose group was reset resume from the position in the state table.
func (p *parks) recommits(partition int32, reset int64) {
	p.stop()
	stands := p.progress()[partition].NextOffset
	p.commit(partition, reset)
	p.start()
	p.waitParked(fmt.Sprintf("likes/%d", partition),
		fmt.Sprintf("but the group has committed %d: like-updates agrees with the state table", reset),
		"stop the processors, then: kudos rebuild --offsets")
	p.othersGoOn(partition)
	p.refused("stop all processors first", "--offsets")
	p.stop()
	said := p.rebuild("--offsets")
	require.Contains(p.t, said, fmt.Sprintf("offset %d is committed again", stands))
	require.Contains(p.t, said, "next: start the processors")
	said = p.rebuild("--offsets")
	require.Contains(p.t, said, fmt.Sprintf("partition %d: the committed offset is correct", partition))
	p.start()
	p.resumes()
}

// updatesAgain recreates like-updates, so that a partition whose state table is behind the published updates resumes.
func (p *parks) updatesAgain(partition int32) {
	p.stop()
	p.tear(partition, 5)
	p.start()
	const action = "stop the processors, delete like-updates, then: kudos topics apply, and kudos rebuild --updates"
	p.waitParked(fmt.Sprintf("likes/%d", partition), "the state table was lost or rewound", action)
	p.stop()
	for _, args := range []string{"--from-events", "--offsets", "--accept-loss", "--updates"} {
		p.refused("to fix this: "+action, args)
	}
	p.deleteTopic(schema.TopicUpdates)
	p.topicsApply()
	require.Contains(p.t, p.rebuild("--updates"), "the fold resumes at the offset of the state table")
	p.start()
	p.resumes()
}

// The state table and the group's committed offset disagree: because of the offset, or because of the state table.
func TestParkWhereStateAndCommittedOffsetDisagree(t *testing.T) {
	p := newRealParks(t)
	p.recommits(2, 5)
	p.recommits(2, 1000)
	// An action with a wider effect than necessary also works.
	p.stop()
	p.commit(2, 5)
	p.rebuild("--from-events")
	p.start()
	p.resumes()

	p.stop()
	p.tear(2, 5)
	p.start()
	p.waitParked("likes/2", "the state table was lost or rewound",
		"stop the processors, then: kudos rebuild --from-events")
	p.waitSaid("the published updates to be counted", func() (bool, any) {
		counts := p.counts()
		return counts[2] == p.want[2], counts
	})
	p.othersGoOn(2)
	p.repair("--from-events")
}

// Retention has deleted folded events: the state table can no longer be derived from likes.
func TestRegressStateParkOnAnOldCluster(t *testing.T) {
	parallel(t, tier.Test)
	p := newParks(newRealSystem(t))
	p.deleteBefore(schema.TopicLikes, map[int32]int64{0: 10, 1: 10, 2: 10, 3: 10})
	p.recommits(2, 5)
	p.recommits(2, 12)
	p.updatesAgain(2)
}

// Reactions have moved between partitions: the state table can no longer be derived from likes.
func TestRegressStateParkAfterARepartition(t *testing.T) {
	p := newRealParks(t)
	p.repartition(6)
	p.partitions = 6
	post, want := map[int32]uint64{}, map[int32]int64{}
	for was, id := range p.post {
		owner := schema.PartitionFor(id, 6)
		post[owner], want[owner] = id, p.want[was]
	}
	p.post, p.want = post, want
	p.resumes()
	owner := schema.PartitionFor(1, 6)
	require.Equal(t, uint64(1), p.post[owner])
	p.recommits(owner, 1)
	p.updatesAgain(owner)
}
