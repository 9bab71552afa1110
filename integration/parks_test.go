package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// Parks, not skips: each cause that no retry repairs is made for real. The partition
// parks, the others go on, readiness and log name the remedy, and the remedy works.

// parks is a processor whose partitions have one post each, liked by ever new users.
type parks struct {
	*system
	processor *stack.Server
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

// newUnknownParks has a running processor of which nothing is known.
func newUnknownParks(s *system) *parks {
	p := &parks{system: s, post: map[int32]uint64{}, want: map[int32]int64{}}
	for post := uint64(1); len(p.post) < s.partitions; post++ {
		if partition := schema.PartitionFor(post, int32(s.partitions)); p.post[partition] == 0 {
			p.post[partition] = post
		}
	}
	at, err := stack.Reserve()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, at.Release()) })
	s.admin = at.Address()
	p.processor = s.processor("processor", "--set", "processor.park_interval=1s")
	p.start()
	return p
}

func newRealParks(t *testing.T) *parks { return newParks(newRealSystem(t)) }

func (p *parks) start() {
	p.t.Helper()
	require.NoError(p.t, p.processor.Start(p.t.Context()))
}

func (p *parks) stop() {
	p.t.Helper()
	require.NoError(p.t, p.processor.Stop())
}

// like has n new users like the post of each partition.
func (p *parks) like(n int) {
	p.t.Helper()
	var events []schema.Event
	for range n {
		p.users++
		for partition, post := range p.post {
			events = append(events, schema.Event{PostID: post, UserID: p.users, Action: schema.Like, TimeMs: time.Now().UnixMilli(), Region: schema.UnknownRegion})
			p.want[partition]++
		}
	}
	p.produce(records(events))
}

func (p *parks) counts() map[int32]int64 {
	p.t.Helper()
	all, counts := p.mysqlCounts(), map[int32]int64{}
	for partition, post := range p.post {
		counts[partition] = all[post].likes
	}
	return counts
}

// waitCounted waits for the counts to be those wanted, all partitions ready.
func (p *parks) waitCounted() {
	p.t.Helper()
	p.waitSaid("counts", func() (bool, any) { return maps.Equal(p.want, p.counts()), p.counts() })
	p.waitSaid("readiness", func() (bool, any) {
		ready, text := p.ready()
		return ready, text
	})
}

// waitSaid is waitFor with a word on how things are.
func (p *parks) waitSaid(what string, condition func() (bool, any)) {
	p.t.Helper()
	var now any
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%s: want %v, now: %v", what, p.want, now)
		}
	}()
	waitFor(p.t, time.Minute, what, func() (ok bool) {
		ok, now = condition()
		return ok
	})
}

func (p *parks) ready() (bool, string) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + p.admin + "/readyz")
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	require.NoError(p.t, err)
	return resp.StatusCode == http.StatusOK, string(body)
}

// waitParked waits until readiness and log tell of a partition why it is parked, and
// what helps.
func (p *parks) waitParked(partition, why, remedy string) {
	p.t.Helper()
	p.waitSaid(partition+" to park", func() (bool, any) {
		ready, text := p.ready()
		_, after, found := strings.Cut(text, partition+" parked: ")
		return !ready && found && strings.Contains(after, why) && strings.Contains(after, remedy), text
	})
	log, err := os.ReadFile(p.processor.LogPath())
	require.NoError(p.t, err)
	require.Contains(p.t, string(log), "partition is parked")
	require.Contains(p.t, string(log), remedy)
}

// othersGoOn sees to it that all partitions but one still count.
func (p *parks) othersGoOn(parked int32) {
	p.t.Helper()
	stands := p.counts()[parked]
	p.like(5)
	p.waitSaid("the others to go on", func() (bool, any) {
		counts := p.counts()
		for partition, want := range p.want {
			if partition != parked && counts[partition] != want {
				return false, counts
			}
		}
		return true, counts
	})
	require.Equal(p.t, stands, p.counts()[parked], "the parked partition counts nothing")
}

// mended likes some more and sees all counted, and that an audit has no objection.
func (p *parks) mended() {
	p.t.Helper()
	p.like(5)
	p.waitCounted()
	p.audit(0, "--deep")
}

// deleteBefore deletes the records of a partition that are before an offset, as
// retention does.
func (p *parks) deleteBefore(topic string, partition int32, offset int64) {
	p.t.Helper()
	adm := kadm.NewClient(p.client())
	policy := func(value string) {
		_, err := adm.AlterTopicConfigs(p.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &value}}, topic)
		require.NoError(p.t, err)
	}
	if topic != schema.TopicLikes {
		policy("compact,delete") // else Kafka refuses
		defer policy("compact")
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1})
	waitFor(p.t, time.Minute, "the records to be deleted", func() bool {
		deleted, err := adm.DeleteRecords(p.t.Context(), offsets)
		return err == nil && deleted.Error() == nil
	})
}

// The row of a partition is lost from MySQL.
func TestParkAtAMissingPosition(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	p.db.MustExec("DELETE FROM applied_offset WHERE partition_id = 2")
	p.waitParked("like-updates/2", "no applied_offset row", "kudos rebuild")
	p.othersGoOn(2)
	p.rebuild()
	p.mended()
}

// like-updates of another making: of it deleted and created again.
func TestParkAtUpdatesMadeAnew(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	p.stop()
	p.deleteTopic(schema.TopicUpdates)
	require.Zero(t, p.topicsApply().code)
	p.start()
	p.waitParked("likes/2", "topic like-updates was deleted and created again", "kudos rebuild --updates")
	p.waitParked("like-updates/2", "the counts in MySQL come from topic id", "kudos rebuild")
	p.stop()
	p.rebuild("--updates")
	p.start()
	p.mended()
}

func TestParkAtAStateTableMadeAnew(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	p.stop()
	p.deleteTopic(schema.TopicState)
	p.topicsApply()
	p.start()
	p.waitParked("likes/2", "no progress record", "kudos topics apply")
	p.stop()
	applied := p.topicsApply()
	require.Equal(t, 1, applied.code)
	require.Contains(t, applied.stderr, "kudos rebuild --from-events")
	p.rebuild("--from-events")
	p.start()
	p.mended()
}

func TestParkAtLikesMadeAnew(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	p.stop()
	p.deleteTopic(schema.TopicLikes)
	p.topicsApply()
	p.start()
	p.waitParked("likes/2", "topic likes was deleted and created again", "kudos rebuild --accept-loss")
	p.stop()
	out := p.rebuild("--accept-loss")
	require.Contains(t, out.stdout, "partition 2: likes was deleted and created again")
	require.Contains(t, p.rebuild("--accept-loss").stdout, "partition 2: nothing is lost")
	p.start()
	p.like(5)
	p.waitCounted() // what was counted stays counted
}

// `kudos topics apply` could not write to the last partition.
func TestParkAtAMissingProgressRecord(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	for _, topic := range []string{schema.TopicState, schema.TopicUpdates} {
		s.deleteTopic(topic)
	}
	_, err := kadm.NewClient(s.client()).CreateTopic(t.Context(), partitions, 1, nil, schema.TopicUpdates)
	require.NoError(t, err)
	cl := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	foreign := schema.Update{Seq: 0}
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: schema.TopicUpdates, Partition: 3, Key: []byte(schema.ProgressKey), Value: schema.AppendUpdate(nil, &foreign)}).FirstErr())
	applied := s.topicsApply()
	require.Equal(t, 1, applied.code, applied.stdout)
	require.Contains(t, applied.stderr, "like-updates/3 has records")

	p := newUnknownParks(s)
	p.waitParked("likes/3", "no progress record", "kudos topics apply")
	p.othersGoOn(3)
	p.stop()
	p.deleteBefore(schema.TopicUpdates, 3, 1) // who wrote there takes it away
	require.Zero(t, p.topicsApply().code)
	p.start()
	p.waitParked("like-updates/3", "like-updates/3", "kudos rebuild") // its position is gone, or beyond what is written again
	p.rebuild()
	p.mended()
}

// Retention deletes events that were not folded yet.
func TestParkWhereEventsAreGone(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	p.stop()
	p.like(20)
	p.deleteBefore(schema.TopicLikes, 2, 30)
	p.start()
	p.waitParked("likes/2", "likes/2 holds 30 to 40", "kudos rebuild --accept-loss")
	p.othersGoOn(2)
	p.stop()
	out := p.rebuild("--accept-loss")
	require.Contains(t, out.stdout, "partition 2: offsets 20 to 29 were deleted before they were folded")
	p.want[2] -= 10
	p.start()
	p.mended()
}

// Somebody has added partitions: posts live elsewhere, and nothing may go on until they have moved.
func TestParkAtAnotherPartitionCount(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	p.stop()
	before := p.counts()
	adm := kadm.NewClient(p.client())
	_, err := adm.CreatePartitions(t.Context(), 2, schema.TopicLikes, schema.TopicDLT)
	require.NoError(t, err)
	waitFor(t, time.Minute, "the partitions", func() bool {
		topics, err := adm.ListTopics(t.Context(), schema.TopicLikes)
		return err == nil && len(topics[schema.TopicLikes].Partitions) == 6
	})
	p.start()
	remedy := "kudos topics repartition --set topics.partitions=6"
	p.waitSaid("readiness to say so", func() (bool, any) {
		ready, text := p.ready()
		return !ready && strings.Contains(text, "topic likes has 6 partitions, the state table was made for 4") && strings.Contains(text, remedy), text
	})
	log, err := os.ReadFile(p.processor.LogPath())
	require.NoError(t, err)
	require.Contains(t, string(log), remedy)
	require.Equal(t, before, p.counts())
	p.repartition(6)
	p.partitions = 6
	p.mended()
}

// MySQL is away: the counts wait, and nothing else does.
func TestParkWhileMySQLIsAway(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	database := stack.MariaDBForTest(t, stack.DatabaseOptions{})
	p := newParks(newSystemOn(t, database))
	require.NoError(t, database.Kill())
	p.like(20)
	for partition := range p.partitions {
		p.waitParked(fmt.Sprintf("like-updates/%d", partition), "applied position", "tried again until the cause is gone")
	}
	adm := kadm.NewClient(p.client())
	waitFor(t, time.Minute, "the fold to go on", func() bool {
		committed, end := p.standing(adm)
		return committed == end
	})
	_, text := p.ready()
	require.NotContains(t, text, "likes/0 parked")
	require.NoError(t, database.Start(t.Context()))
	p.mended()
}
