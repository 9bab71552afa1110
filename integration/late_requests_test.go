package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/kafkaproxy"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
	"kudos/stream/kafka"
)

// lateNetwork is the network between all clients and a broker. It holds requests of the fold's transactions until the
// client has given up on them, and delivers each within a later transaction of the same transactional id.
type lateNetwork struct {
	*system
	proxy *kafkaproxy.Proxy

	mu       sync.Mutex
	toHold   []kmsg.Key
	takeover bool                           // deliver to a transaction of the next owner
	held     map[string]*kafkaproxy.Request // by transactional id
	ended    map[string]bool                // its transaction
	requests int
	late     map[string]int // delivered requests, by kind, transaction and the broker's answer
	twice    map[kmsg.Key]int
}

func newLateNetwork(t *testing.T, decide func(*lateNetwork, *kafkaproxy.Request) kafkaproxy.Action) *lateNetwork {
	parallel(t, tier.Verify)
	n := &lateNetwork{system: newSystem(t), held: map[string]*kafkaproxy.Request{}, ended: map[string]bool{},
		late: map[string]int{}, twice: map[kmsg.Key]int{}}
	n.kafka = stack.KafkaForTest(t, stack.KafkaOptions{Fronted: true, ExtraProperties: kafkaProperties})
	front := n.kafka.Fronts()[0]
	n.brokers, n.dsn, n.partitions = []string{front.Address}, shared.MariaDB(t).NewDatabase(t), 8
	proxy, end, err := kafkaproxy.Start(front.Address, front.Behind, func(r *kafkaproxy.Request) kafkaproxy.Action {
		n.mu.Lock()
		defer n.mu.Unlock()
		return decide(n, r)
	})
	require.NoError(t, err)
	n.proxy = proxy
	t.Cleanup(end)
	n.prepare()
	require.NoError(t, kafka.RequireTransactionVersion2(t.Context(), n.client()))
	return n
}

// foldID returns the transactional id of a request, if it is one of the fold.
func foldID(req kmsg.Request) (id string, ok bool) {
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		id = *cmp.Or(r.TransactionID, &id)
	case *kmsg.InitProducerIDRequest:
		id = *cmp.Or(r.TransactionalID, &id)
	case *kmsg.TxnOffsetCommitRequest:
		id = r.TransactionalID
	case *kmsg.EndTxnRequest:
		id = r.TransactionalID
	}
	return id, strings.HasPrefix(id, schema.GroupFold)
}

// deliver sends a request (again), and returns the broker's answer.
func deliver(r *kafkaproxy.Request) string {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	resp, err := r.Send(ctx)
	switch resp := resp.(type) {
	case *kmsg.ProduceResponse:
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.TxnOffsetCommitResponse:
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.EndTxnResponse:
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	return fmt.Sprint(err)
}

const lateAs = "%s, taken over: %v, %v"

func (n *lateNetwork) disturb(r *kafkaproxy.Request) kafkaproxy.Action {
	id, ok := foldID(r.Request)
	if !ok {
		return kafkaproxy.Pass
	}
	n.requests++
	key, held := kmsg.Key(r.Key()), n.held[id]
	i := slices.Index(n.toHold, key)
	switch {
	case held == nil && i >= 0:
		n.toHold = slices.Delete(n.toHold, i, i+1)
		n.held[id], n.ended[id] = r, false
		return kafkaproxy.Hold
	case key == kmsg.InitProducerID || key == kmsg.EndTxn && !n.takeover:
		n.ended[id] = true
	case held != nil && n.ended[id] && key == kmsg.TxnOffsetCommit: // its records are in the log
		n.late[fmt.Sprintf(lateAs, kmsg.NameForKey(held.Key()), n.takeover, deliver(held))]++
		n.held[id] = nil
	case key == kmsg.Produce && n.requests%4 == 0:
		return kafkaproxy.Swap
	}
	if n.requests%10 == 1 && deliver(r) == "<nil>" {
		n.twice[key]++
	}
	return kafkaproxy.Pass
}

// TestLateRequests: requests of the fold's transactions arrive in a later transaction of the same owner or of the next
// one, twice, and behind the next request. The broker rejects the late ones, and the counts are exact.
func TestLateRequests(t *testing.T) {
	n := newLateNetwork(t, (*lateNetwork).disturb)
	n.toggles(1, 300_000) // batches of several Produce requests, which can overtake each other
	processors := n.twoProcessors("--set", "processor.transaction_timeout=1m")
	end, want := n.keepToggling(2, 3000, 400), map[string]int{}
	wait := func(what string, condition func() bool) {
		waitSaid(t, 2*time.Minute, what, func() (bool, any) {
			n.mu.Lock()
			defer n.mu.Unlock()
			return condition(), fmt.Sprint(n.late)
		})
	}
	fenced := map[kmsg.Key]error{kmsg.Produce: kerr.InvalidProducerEpoch,
		kmsg.TxnOffsetCommit: kerr.InvalidProducerEpoch, kmsg.EndTxn: kerr.ProducerFenced}
	late := func(takeover bool, keys ...kmsg.Key) {
		n.mu.Lock()
		n.takeover, n.toHold = takeover, keys
		for _, key := range keys {
			want[fmt.Sprintf(lateAs, key.Name(), takeover, fenced[key])]++
		}
		n.mu.Unlock()
		for i := 0; takeover && i < len(processors); i++ {
			wait("a request to hold", func() bool { return len(n.toHold) == 0 })
			processors[i].kill()
			processors[i].start()
		}
		wait("late requests to be rejected", func() bool { return maps.Equal(n.late, want) })
	}
	keys := slices.Collect(maps.Keys(fenced))
	late(false, slices.Repeat(keys, 2)...)
	for _, key := range keys {
		late(true, key)
	}
	events := 300_000 + end()
	n.drainExact(2 * time.Minute)
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Logf("%d events; late: %v; twice: %v; overtaken: %d", events, n.late, n.twice, n.proxy.Swapped.Load())
	require.Len(t, n.twice, 4)
	require.Positive(t, n.proxy.Swapped.Load())
}

// TestRegressLateEndTxn: under transaction.version 1, a late EndTxn ends the producer's next transaction (Jepsen on
// Bufstream 0.1.0, 2024). So kudos works only under version 2, also if the cluster is downgraded while it runs.
func TestRegressLateEndTxn(t *testing.T) {
	held := make(chan *kafkaproxy.Request, 1)
	n := newLateNetwork(t, func(n *lateNetwork, r *kafkaproxy.Request) kafkaproxy.Action {
		if slices.Contains(n.toHold, kmsg.Key(r.Key())) {
			n.toHold = nil
			held <- r
			return kafkaproxy.Hold
		}
		return kafkaproxy.Pass
	})
	// visible are the committed records, after an EndTxn of a transaction with one record arrived once more within the
	// next one, of two records, which ends the other way.
	visible := func(topic string, end kgo.TransactionEndTry, answer error) (values []string) {
		_, err := n.admin().CreateTopic(t.Context(), 2, 1, nil, topic)
		require.NoError(t, err)
		cl := n.client(kgo.TransactionalID(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.RequestTimeoutOverhead(2*time.Second))
		write := func(partition int32, value string) {
			rec := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
			require.NoError(t, cl.ProduceSync(t.Context(), rec).FirstErr())
		}
		require.NoError(t, cl.BeginTransaction())
		write(0, "first")
		n.mu.Lock()
		n.toHold = []kmsg.Key{kmsg.EndTxn}
		n.mu.Unlock()
		require.NoError(t, cl.EndTransaction(t.Context(), end))
		require.NoError(t, cl.BeginTransaction())
		write(0, "second")
		require.Equal(t, fmt.Sprint(answer), deliver(<-held))
		write(1, "third")
		require.NoError(t, cl.EndTransaction(t.Context(), !end))
		n.requireDecided(topic)
		n.readAll(topic, func(r *kgo.Record) { values = append(values, string(r.Value)) })
		return values
	}
	setVersion := func(version int16, kind int8) {
		updated, err := n.admin().UpdateFeatures(t.Context(), false,
			kadm.FeatureUpdate{Feature: "transaction.version", MaxVersionLevel: version, UpgradeType: kind})
		require.NoError(t, errors.Join(err, updated.Error()))
	}
	require.Equal(t, []string{"first"}, visible("2-commit", kgo.TryCommit, kerr.ProducerFenced))
	require.ElementsMatch(t, []string{"second", "third"}, visible("2-abort", kgo.TryAbort, kerr.ProducerFenced))
	processors := n.twoProcessors()
	processors[0].waitAlive()
	processors[1].waitAlive()
	n.waitShared(false, processors[0], processors[1])
	setVersion(1, 2)
	// The second is of an aborted transaction, then it is missing in a committed one.
	require.ElementsMatch(t, []string{"first", "second"}, visible("1-commit", kgo.TryCommit, nil))
	require.Equal(t, []string{"third"}, visible("1-abort", kgo.TryAbort, nil))

	const refusal = "the cluster's transaction.version is below 2"
	n.fails(n.on("processor", "--set", "processor.state_dir="+t.TempDir()), refusal)
	processors[0].kill()
	waitFor(t, time.Minute, "the other one to park what it takes over", func() bool {
		_, text := processors[1].said("readyz")
		return len(processors[1].running()) == n.partitions/2 && strings.Contains(text, refusal)
	})
	n.toggles(1, 1000)
	setVersion(2, 1)
	n.drainExact(2 * time.Minute)
}
