package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// What a real broker does over a long time, tried out: `make facts` runs these. Each
// ends with the counts held against the oracle.

// TestEpochsRunOut: each transaction takes a producer epoch, of which there are 32,767;
// then the broker hands out a new producer id. Processors are killed around that.
func TestEpochsRunOut(t *testing.T) {
	tier.Nightly(t)
	// The broker retries every millisecond whether the transaction before is complete,
	// and not every 20, so that 70,000 of them take minutes.
	s := newOwnSystem(t, 1, stack.KafkaOptions{ExtraProperties: map[string]string{"add.partitions.to.txn.retry.backoff.ms": "1"}})
	s.toggles(1, fromEnv(t, "KUDOS_TEST_EVENTS", 75_000))
	adm := kadm.NewClient(s.client())
	p := s.processor("processor", "--set", "processor.max_batch=1")
	require.NoError(t, p.Start(t.Context()))
	ids := map[int64]int{} // kills around the end of each producer id's epochs
	for deadline := time.Now().Add(40 * time.Minute); ; {
		require.True(t, time.Now().Before(deadline), "the log was not folded in time")
		committed, end := s.standing(adm)
		if committed >= end {
			break
		}
		if id, epoch := s.producerEpoch(adm); id >= 0 {
			kills := ids[id]
			ids[id] = kills
			// Every kill takes some epochs: the last of them are met without one, or by one.
			if left := 32_767 - int(epoch); kills < 6 && left < 40*(6-kills) {
				require.NoError(t, p.Kill())
				require.NoError(t, p.Start(t.Context()))
				ids[id] = kills + 1
			}
		}
		pause(t, 10*time.Millisecond)
	}
	t.Logf("kills around the end of the epochs, by producer id: %v", ids)
	require.GreaterOrEqual(t, len(ids), 3, "producer ids")
	s.drain(20 * time.Minute)
	s.requireExact()
}

func (s *system) producerEpoch(adm *kadm.Client) (id int64, epoch int16) {
	s.t.Helper()
	described, err := adm.DescribeTransactions(s.t.Context(), schema.FoldTransactionalID(0))
	require.NoError(s.t, err)
	d := described[schema.FoldTransactionalID(0)]
	if d.Err != nil {
		return -1, 0
	}
	return d.ProducerID, d.ProducerEpoch
}

// TestCoordinatorsMove: leaders of the topics and of Kafka's own, and so the
// coordinators of transactions and groups, move from broker to broker under load.
func TestCoordinatorsMove(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 4, stack.KafkaOptions{Nodes: 3, ExtraProperties: map[string]string{
		"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4",
	}})
	s.toggles(1, fromEnv(t, "KUDOS_TEST_EVENTS", 1_000_000))
	adm := kadm.NewClient(s.client())
	for _, name := range []string{"processor-0", "processor-1"} {
		require.NoError(t, s.processor(name, "--set", "processor.max_batch=200").Start(t.Context()))
	}
	moves := 0
	waitFor(t, 30*time.Minute, "the log to be folded", func() bool {
		moves += s.moveLeaders(adm)
		committed, end := s.standing(adm)
		return committed >= end
	})
	t.Logf("leaders moved: %d", moves)
	require.Greater(t, moves, 50)
	s.drain(5 * time.Minute)
	s.requireExact()
}

// moveLeaders makes another replica the first of each partition, and elects it.
func (s *system) moveLeaders(adm *kadm.Client) (moved int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	topics, err := adm.ListTopicsWithInternal(ctx, "__transaction_state", "__consumer_offsets", schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	require.NoError(s.t, err)
	var order kadm.AlterPartitionAssignmentsReq
	var set kadm.TopicsSet
	topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Err != nil || len(p.ISR) < 3 {
			return
		}
		order.Assign(p.Topic, p.Partition, append(p.Replicas[1:len(p.Replicas):len(p.Replicas)], p.Replicas[0]))
		set.Add(p.Topic, p.Partition)
	})
	if len(set) == 0 {
		return 0
	}
	_, err = adm.AlterPartitionAssignments(ctx, order)
	require.NoError(s.t, err)
	results, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	require.NoError(s.t, err)
	for _, partitions := range results {
		for _, r := range partitions {
			if r.Err == nil {
				moved++
			}
		}
	}
	return moved
}

// TestCompactionWhileRunning: the state table is compacted again and again while it is
// written, and read by processors that lost their local state.
func TestCompactionWhileRunning(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 4, stack.KafkaOptions{ExtraProperties: map[string]string{"log.cleaner.backoff.ms": "200"}})
	adm := kadm.NewClient(s.client())
	s.configure(adm, map[string]string{"segment.bytes": "1048576", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}, schema.TopicState, schema.TopicUpdates)
	s.toggles(1, fromEnv(t, "KUDOS_TEST_EVENTS", 2_000_000))
	s.stateDir = filepath.Join(t.TempDir(), "state")
	p := s.processor("processor", "--set", "processor.max_batch=500")
	losses := 0
	for deadline := time.Now().Add(20 * time.Minute); ; losses++ {
		require.True(t, time.Now().Before(deadline), "the log was not folded in time")
		require.NoError(t, p.Start(t.Context()))
		before, end := s.standing(adm)
		waitFor(t, 2*time.Minute, "another part of the log to be folded", func() bool {
			committed, _ := s.standing(adm)
			return committed >= min(before+200_000, end)
		})
		if committed, _ := s.standing(adm); committed >= end {
			break
		}
		require.NoError(t, p.Kill())
		require.NoError(t, os.RemoveAll(s.stateDir))
	}
	s.drain(5 * time.Minute)
	readable := map[string]int{}
	for _, topic := range []string{schema.TopicState, schema.TopicUpdates} {
		s.readAll(topic, func(*kgo.Record) { readable[topic]++ })
		ends, err := adm.ListEndOffsets(t.Context(), topic)
		require.NoError(t, err)
		var written int64
		ends.Each(func(o kadm.ListedOffset) { written += o.Offset })
		t.Logf("%s: %d offsets written, %d records left", topic, written, readable[topic])
		if topic == schema.TopicState {
			require.Less(t, int64(readable[topic]), written/2, "the state table was not compacted")
		}
	}
	t.Logf("local states lost: %d", losses)
	require.Positive(t, losses)
	s.requireExact() // and no seq of like-updates is missing: its lag protects it
}

func (s *system) configure(adm *kadm.Client, configs map[string]string, topics ...string) {
	s.t.Helper()
	var alter []kadm.AlterConfig
	for name, value := range configs {
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	responses, err := adm.AlterTopicConfigs(s.t.Context(), alter, topics...)
	require.NoError(s.t, err)
	for _, r := range responses {
		require.NoError(s.t, r.Err, r.Name)
	}
}

// TestCommittedOffsetsExpire: a group without members loses its committed offsets
// after a while. The progress record says where to go on.
func TestCommittedOffsetsExpire(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 4, stack.KafkaOptions{ExtraProperties: map[string]string{
		"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000",
	}})
	adm := kadm.NewClient(s.client())
	s.toggles(1, 20_000)
	p := s.processor("processor")
	require.NoError(t, p.Start(t.Context()))
	s.drain(time.Minute)
	known := func() int {
		offsets, err := adm.FetchOffsets(t.Context(), schema.GroupFold)
		require.NoError(t, err)
		n := 0
		offsets.Each(func(o kadm.OffsetResponse) {
			if o.At >= 0 {
				n++
			}
		})
		return n
	}
	begin := time.Now()
	waitFor(t, 3*time.Minute, "a minute and a half without events", func() bool { return time.Since(begin) > 90*time.Second })
	require.Equal(t, s.partitions, known(), "offsets of an idle group that has members")
	require.NoError(t, p.Stop())
	waitFor(t, 5*time.Minute, "the committed offsets to expire", func() bool { return known() == 0 })
	t.Logf("expired %v after the start of the idle time", time.Since(begin).Round(time.Second))
	s.toggles(2, 20_000)
	require.NoError(t, p.Start(t.Context()))
	s.drain(time.Minute)
	s.requireExact()
	require.Equal(t, s.partitions, known(), "committed anew: %s", fmt.Sprint(s.partitions))
}

// TestTransactionRate: three brokers, replication 3, transactions of one event each. How
// many a second and partition? The brokers' default settings.
func TestTransactionRate(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 4, stack.KafkaOptions{Nodes: 3})
	s.preload(fromEnv(t, "KUDOS_TEST_EVENTS", 8000), 1000)
	_, end := s.standing(kadm.NewClient(s.client()))
	p := s.processor("processor", "--set", "processor.max_batch=1")
	require.NoError(t, p.Start(t.Context()))
	adm := kadm.NewClient(s.client())
	at := func(share int64) (time.Time, int64) {
		var committed int64
		waitFor(t, 10*time.Minute, "transactions", func() bool {
			committed, _ = s.standing(adm)
			return committed >= end*share/10
		})
		return time.Now(), committed
	}
	began, from := at(1)
	ended, to := at(9)
	rate := float64(to-from) / ended.Sub(began).Seconds()
	t.Logf("%.0f transactions/s, %.0f a partition", rate, rate/float64(s.partitions))
	s.drain(10 * time.Minute)
	s.requireExact()
}

// TestRecoveryTime: three brokers, replication 3. How long is a process away that was
// killed, with its local state and without?
func TestRecoveryTime(t *testing.T) {
	tier.Nightly(t)
	s := newOwnSystem(t, 4, stack.KafkaOptions{Nodes: 3})
	pairs := fromEnv(t, "KUDOS_TEST_EVENTS", 2_000_000)
	s.preload(pairs, 1_000_000)
	s.stateDir = filepath.Join(t.TempDir(), "state")
	p := s.processor("processor")
	require.NoError(t, p.Start(t.Context()))
	s.drain(10 * time.Minute)
	for _, lost := range []bool{false, true} {
		for range 3 {
			require.NoError(t, p.Kill())
			if lost {
				require.NoError(t, os.RemoveAll(s.stateDir))
			}
			s.preload(100, 1_000_000)
			began := time.Now()
			require.NoError(t, p.Start(t.Context()))
			s.drain(5 * time.Minute)
			t.Logf("%d pairs, local state lost: %v: all counted %.1f s after the start (session timeout %s)", pairs, lost, time.Since(began).Seconds(), s.sessionTimeout)
		}
	}
	s.requireExact()
}
