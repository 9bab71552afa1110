package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"kudos/integration/oracle"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// powered is a whole system under load, with servers that can lose power.
type powered struct {
	*system
	database *stack.Database
	folds    *process
	reads    *reader
	likers   *likers
	next     func() schema.Event
}

// TestPowerLoss: a 202 means that all in-sync replicas have the event, but not on disk. It survives a loss of power at
// MariaDB, at some brokers, and at all brokers if topics flush. Otherwise the ends of the logs are lost, but counted in
// MySQL: it parks, even after other events have the offsets, until it is rebuilt.
func TestPowerLoss(t *testing.T) {
	parallel(t, tier.Turn(1))
	stack.Require(t, stack.NeedDisk)
	api := stack.ReserveForTest(t)
	p := &powered{system: newSystem(t), likers: newLikers([]string{"http://" + api}),
		next: opinions(1, time.Now().Add(-time.Hour))}
	p.kafka = stack.KafkaForTest(t, stack.KafkaOptions{Nodes: 3, Disks: true, ExtraProperties: kafkaProperties})
	p.database = stack.MariaDBForTest(t, stack.DatabaseOptions{Disk: true})
	p.brokers, p.replication, p.dsn = p.kafka.Brokers(), 3, p.database.NewDatabase(t)
	p.prepare()
	unix.Sync() // the servers are older than their last writes
	p.folds = p.processor("processor", "--set", "processor.max_batch=500", "--set", "processor.park_interval=1s")
	p.reads = p.reader("reader")
	startAll(p.folds, p.reads.process, p.role("producer", "producer", "--set", "producer.http_addr="+api))
	all := p.kafka.Nodes()
	p.survives("MariaDB", p.database.Server)
	p.survives("two brokers at the same time", all[1:]...)
	p.survives("one broker", all[:1]...)
	topics, err := p.admin().ListTopicsWithInternal(t.Context())
	require.NoError(t, err)
	p.configure(map[string]string{"flush.messages": "1"}, topics.Names()...)
	p.survives("all brokers, which flush each batch", all...)
	// Kafka's own topics still flush: a coordinator whose epochs are behind those in the logs fences everybody.
	p.configure(map[string]string{"flush.messages": fmt.Sprint(math.MaxInt64)}, schema.TopicLikes, schema.TopicState,
		schema.TopicUpdates, schema.TopicCounts)
	p.losesTheEnd()
}

// losePower cuts the power of servers at the same time, under load, starts them again, and returns which likes were
// accepted before and until they have recovered. Likes of a long outage may fail: only a 202 is a promise.
func (p *powered) losePower(recovered func(before, acks []oracle.Ack) bool, servers ...*stack.Server) []oracle.Ack {
	load := background(p.t, func(ctx context.Context) (last, _ error) {
		for ctx.Err() == nil {
			_, last = p.likers.run(ctx, p.next, 400)
		}
		return last, nil
	})
	begin := len(p.acks())
	waitFor(p.t, time.Minute, "likes to be accepted", func() bool { return len(p.acks()) > begin+3000 })
	require.NoError(p.t, stack.LosePower(servers...))
	before := p.acks()[begin:]
	if pause(p.t, time.Second); !p.database.Running() {
		require.NoError(p.t, p.database.Start(p.t.Context()))
	}
	require.NoError(p.t, p.kafka.Start(p.t.Context()))
	if err := p.kafka.WaitInSync(p.t.Context()); err != nil { // a replica did not rejoin, once: restart
		p.t.Log(err)
		require.NoError(p.t, errors.Join(p.kafka.Kill(), p.kafka.Start(p.t.Context())))
	}
	waitFor(p.t, 3*time.Minute, "the recovery", func() bool { return recovered(before, p.acks()[begin:]) })
	load.stop()
	p.adm, p.ora = nil, nil // their connections are dead
	return p.acks()[begin:]
}

// survives: everything that was accepted is counted, and only that.
func (p *powered) survives(what string, servers ...*stack.Server) {
	acks := p.losePower(func(before, acks []oracle.Ack) bool { return len(acks) > len(before)+2000 }, servers...)
	p.drain(2 * time.Minute)
	p.requireExact(acks...)
	p.reads.waitCounts(p.mysqlCounts())
	p.t.Logf("%s: all of %d likes are counted", what, len(acks))
}

// losesTheEnd cuts the power of all brokers, which do not flush, and waits until others have the offsets of lost likes.
func (p *powered) losesTheEnd() {
	var lost, regrown map[int32]int
	p.losePower(func(before, acks []oracle.Ack) bool {
		taken, ends := map[place]bool{}, map[int32]int64{}
		lost, regrown = map[int32]int{}, map[int32]int{}
		for i, a := range acks {
			at := place{a.Partition, a.Offset}
			if taken[at] {
				lost[a.Partition]++
			}
			taken[at] = true
			if i < len(before) {
				ends[a.Partition] = max(ends[a.Partition], a.Offset+likersInFlight)
			} else if a.Offset > ends[a.Partition] { // past what was folded, too: otherwise events are missing
				regrown[a.Partition]++
			}
		}
		return len(regrown) == p.partitions
	}, p.kafka.Nodes()...)
	parked := regexp.MustCompile(`like-updates/\d parked: [^;]*\(action: kudos rebuild \(`)
	waitSaid(p.t, time.Minute, "the counts of all partitions to be parked", func() (bool, any) {
		_, said := p.folds.said("readyz")
		return len(parked.FindAllString(said, -1)) == p.partitions, said
	})
	// The fold may have parked too, as each topic has lost its end elsewhere. This is right for what is left: stores
	// notice what their changelogs have lost.
	p.folds.stop()
	p.deleteTopic(schema.TopicUpdates) // it has deltas of lost likes, or may lack some
	p.topicsApply()
	p.rebuild("--from-events")
	p.folds.start()
	p.drain(time.Minute)
	p.requireExact() // that is, for what the log has
	p.audit(0, "--deep")
	p.reads.waitCounts(p.mysqlCounts())
	require.Len(p.t, lost, p.partitions)
	p.t.Logf("all brokers: at least these likes are lost, by partition: %v", lost)
}

func (p *powered) acks() []oracle.Ack {
	p.likers.mu.Lock()
	defer p.likers.mu.Unlock()
	return p.likers.mu.acks
}
