package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/tier"
	"kudos/schema"
)

// commit is somebody who resets the group of the fold, which has no members.
func (p *parks) commit(partition int32, at int64) {
	p.t.Helper()
	adm := kadm.NewClient(p.client())
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: schema.TopicLikes, Partition: partition, At: at, LeaderEpoch: -1})
	waitFor(p.t, time.Minute, "the group to be empty", func() bool {
		return adm.CommitAllOffsets(p.t.Context(), schema.GroupFold, offsets) == nil
	})
}

// tear has n new users like the post of a partition, and like-updates and the committed offset have it, but the state table
// has not: Kafka committed a transaction in part. So it is, too, when the state table goes back.
func (p *parks) tear(partition int32, n int) {
	p.t.Helper()
	post, at := p.post[partition], time.Now().UnixMilli()
	var events []schema.Event
	for range n {
		p.users++
		events = append(events, schema.Event{PostID: post, UserID: p.users, Action: schema.Like, TimeMs: at, Region: schema.UnknownRegion})
	}
	progress := p.progress()[partition]
	p.produce(records(events))
	p.want[partition] += int64(n)
	next := progress.NextOffset + int64(n)
	update := schema.Update{Seq: progress.NextSeq, SourceOffset: next, Counts: schema.Counts{Likes: p.want[partition]},
		Deltas: []schema.Delta{{Region: schema.UnknownRegion, Minute: schema.MinuteOf(at), Likes: int64(n)}}}
	last := schema.ProgressUpdate(progress.Layouts, false)
	last.Seq, last.SourceOffset = progress.NextSeq+1, next
	p.write(
		&kgo.Record{Topic: schema.TopicUpdates, Partition: partition, Key: schema.AppendPostKey(nil, post), Value: schema.AppendUpdate(nil, &update)},
		&kgo.Record{Topic: schema.TopicUpdates, Partition: partition, Key: []byte(schema.ProgressKey), Value: schema.AppendUpdate(nil, &last)})
	p.commit(partition, next)
}

// recommits has a partition, of which the group was reset, go on from where the state table stands.
func (p *parks) recommits(partition int32, reset int64) {
	p.t.Helper()
	p.stop()
	stands := p.progress()[partition].NextOffset
	p.commit(partition, reset)
	p.start()
	p.waitParked(fmt.Sprintf("likes/%d", partition), fmt.Sprintf("but the group has committed %d: like-updates agrees with the state table", reset), "stop the processors, then: kudos rebuild --offsets")
	p.othersGoOn(partition)
	p.refused("stop all processors first", "--offsets")
	p.stop()
	out := p.rebuild("--offsets")
	require.Contains(p.t, out.stdout, fmt.Sprintf("offset %d is committed again", stands))
	require.Contains(p.t, out.stdout, "next: start the processors")
	require.Contains(p.t, p.rebuild("--offsets").stdout, fmt.Sprintf("partition %d: the committed offset is right", partition))
	p.start()
	p.mended()
}

// updatesAgain has a partition, whose state table is behind what was published, go on from there, with like-updates made anew.
func (p *parks) updatesAgain(partition int32) {
	p.t.Helper()
	p.stop()
	p.tear(partition, 5)
	p.start()
	p.waitParked(fmt.Sprintf("likes/%d", partition), "the state table was lost or went back", "stop the processors, delete like-updates, then: kudos topics apply, and kudos rebuild --updates")
	p.stop()
	for _, args := range []string{"--from-events", "--offsets", "--accept-loss", "--updates"} {
		p.refused("what helps: stop the processors, delete like-updates, then: kudos topics apply, and kudos rebuild --updates", args)
	}
	p.deleteTopic(schema.TopicUpdates)
	applied := p.run("topics", "apply", "--brokers", p.brokerList(), "--set", fmt.Sprintf("topics.partitions=%d", p.partitions), "--set", "topics.replication_factor=1")
	require.Zero(p.t, applied.code, applied.stderr)
	require.Contains(p.t, p.rebuild("--updates").stdout, "events are folded from where the state table stands")
	p.start()
	p.mended()
}

// The state table is not where the group's committed offset says: nothing but that is wrong, or the state table is.
func TestParkWhereStateAndCommittedOffsetDisagree(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	p.recommits(2, 5)
	p.recommits(2, 1000)
	// Each remedy does for what it can do more than there is need of.
	p.stop()
	p.commit(2, 5)
	p.rebuild("--from-events")
	p.start()
	p.mended()

	p.stop()
	p.tear(2, 5)
	p.start()
	p.waitParked("likes/2", "the state table was lost or went back", "stop the processors, then: kudos rebuild --from-events")
	p.waitSaid("what was published to be counted", func() (bool, any) {
		counts := p.counts()
		return counts[2] == p.want[2], counts
	})
	p.othersGoOn(2)
	p.stop()
	p.rebuild("--from-events")
	p.start()
	p.mended()
}

// Retention has deleted events that were folded: likes alone does not explain the state table any more.
func TestRegressStateParkOnAnOldCluster(t *testing.T) {
	tier.Test(t)
	t.Parallel()
	p := newRealParks(t)
	for partition := range int32(p.partitions) {
		p.deleteBefore(schema.TopicLikes, partition, 10)
	}
	p.recommits(2, 5)
	p.recommits(2, 12)
	p.updatesAgain(2)
}

// Reactions have moved between partitions: likes alone does not explain the state table any more.
func TestRegressStateParkAfterARepartition(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	p.repartition(6)
	p.partitions = 6
	post, want := map[int32]uint64{}, map[int32]int64{}
	for was, id := range p.post {
		home := schema.PartitionFor(id, 6)
		post[home], want[home] = id, p.want[was]
	}
	p.post, p.want = post, want
	p.mended()
	home := schema.PartitionFor(1, 6)
	require.Equal(t, uint64(1), p.post[home])
	p.recommits(home, 1)
	p.updatesAgain(home)
}
