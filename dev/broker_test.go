//go:build !nodev

package dev

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/testrun"
	"kudos/schema"
	"kudos/stream/kafka"
)

// startBroker is an embedded broker for one test.
func startBroker(t testing.TB) *Broker {
	t.Helper()
	o := DefaultBrokerOptions()
	o.Address = "127.0.0.1:0"
	b := NewBroker(o, discardLog())
	require.NoError(t, b.Start())
	testrun.Start(t, "the broker", time.Minute, b.Run)
	return b
}

func kafkaOptions(b *Broker) kafka.Options {
	o := kafka.DefaultOptions()
	o.Brokers = []string{b.Address()}
	return o
}

func newClient(t testing.TB, b *Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kafkaOptions(b).NewClient(discardLog(), opts...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// createTopics makes the system's topics, as `kudos topics apply` does.
func createTopics(t testing.TB, b *Broker, partitions int32) {
	t.Helper()
	admin := kadm.NewClient(newClient(t, b))
	for _, topic := range schema.Topics(partitions, 1) {
		configs := map[string]*string{}
		for k, v := range topic.Configs {
			configs[k] = &v
		}
		_, err := admin.CreateTopic(t.Context(), topic.Partitions, topic.ReplicationFactor, configs, topic.Name)
		require.NoError(t, err)
	}
}

// deadline bounds what a test waits for.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// read polls n records, control records included if the client keeps them.
func read(t testing.TB, cl *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx := deadline(t)
	var records []*kgo.Record
	for len(records) < n {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err(), "after %d of %d records", len(records), n)
		records = append(records, fetches.Records()...)
	}
	return records
}

func transactional(t testing.TB, b *Broker, id string) *kgo.Client {
	return newClient(t, b, kgo.TransactionalID(id), kgo.TransactionTimeout(30*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(schema.TopicUpdates))
}

func transact(t testing.TB, cl *kgo.Client, end kgo.TransactionEndTry, values ...string) {
	t.Helper()
	require.NoError(t, cl.BeginTransaction())
	for _, v := range values {
		require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord(v)).FirstErr())
	}
	require.NoError(t, cl.EndTransaction(t.Context(), end))
}

func readFromStart(topic string) kgo.Opt {
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}})
}

func TestBrokerIsWhatKudosRequires(t *testing.T) {
	b := startBroker(t)
	createTopics(t, b, 4)
	cl := newClient(t, b)
	admin := kadm.NewClient(cl)

	versions, err := admin.ApiVersions(t.Context())
	require.NoError(t, err)
	require.Len(t, versions, 1)
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), cl)
	require.NoError(t, err)
	finalized := map[string]int16{}
	for _, f := range resp.FinalizedFeatures {
		finalized[f.Name] = f.MaxVersionLevel
	}
	require.GreaterOrEqual(t, finalized["transaction.version"], int16(2))

	metadata, err := admin.Metadata(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, metadata.Cluster)
	ids := map[kadm.TopicID]bool{}
	for _, topic := range metadata.Topics {
		want := 4
		if topic.Topic == schema.TopicExclusions {
			want = 1
		}
		require.Len(t, topic.Partitions, want, topic.Topic)
		ids[topic.ID] = true
	}
	require.Len(t, ids, 9, "each topic has an id of its own")
	require.NotContains(t, ids, kadm.TopicID{})

	other, err := kadm.NewClient(newClient(t, startBroker(t))).Metadata(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, metadata.Cluster, other.Cluster, "new data is a new cluster")

	configs, err := admin.DescribeTopicConfigs(t.Context(), schema.TopicUpdates)
	require.NoError(t, err)
	described := map[string]string{}
	for _, c := range configs[0].Configs {
		described[c.Key] = c.MaybeValue()
	}
	for _, topic := range schema.Topics(4, 1) {
		if topic.Name == schema.TopicUpdates {
			for k, v := range topic.Configs {
				require.Equal(t, v, described[k], k)
			}
		}
	}
}

func TestBrokerTransactions(t *testing.T) {
	b := startBroker(t)
	createTopics(t, b, 1)
	admin := kadm.NewClient(newClient(t, b))
	cl := transactional(t, b, "t-0")
	transact(t, cl, kgo.TryCommit, "a", "b")                                             // 0 1, marker 2
	transact(t, cl, kgo.TryAbort, "x")                                                   // 3, marker 4
	transact(t, cl, kgo.TryCommit, "c")                                                  // 5, marker 6
	require.NoError(t, cl.BeginTransaction())                                            // left open
	require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord("open")).FirstErr()) // 7

	committed := newClient(t, b, readFromStart(schema.TopicUpdates), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	var seen []string
	for _, r := range read(t, committed, 6) {
		what := string(r.Value)
		if r.Attrs.IsControl() {
			what = "marker"
		}
		seen = append(seen, fmt.Sprint(r.Offset, " ", what))
	}
	require.Equal(t, []string{"0 a", "1 b", "2 marker", "4 marker", "5 c", "6 marker"}, seen)

	ends, err := admin.ListEndOffsets(t.Context(), schema.TopicUpdates)
	require.NoError(t, err)
	stable, err := admin.ListCommittedOffsets(t.Context(), schema.TopicUpdates)
	require.NoError(t, err)
	end, _ := ends.Lookup(schema.TopicUpdates, 0)
	lso, _ := stable.Lookup(schema.TopicUpdates, 0)
	require.EqualValues(t, 8, end.Offset)
	require.EqualValues(t, 7, lso.Offset, "the last stable offset is before the open transaction")

	next := transactional(t, b, "t-0") // takes over: the open transaction is aborted, and its owner fenced
	_, _, err = next.ProducerID(t.Context())
	require.NoError(t, err)
	require.Error(t, cl.EndTransaction(t.Context(), kgo.TryCommit), "the owner before is fenced")
	stable, err = admin.ListCommittedOffsets(t.Context(), schema.TopicUpdates)
	require.NoError(t, err)
	lso, _ = stable.Lookup(schema.TopicUpdates, 0)
	require.EqualValues(t, 9, lso.Offset)
}

func TestBrokerCommitsOffsetsWithATransaction(t *testing.T) {
	b := startBroker(t)
	createTopics(t, b, 2)
	member := newClient(t, b, kgo.ConsumerGroup("g"), kgo.ConsumeTopics(schema.TopicLikes), kgo.DisableAutoCommit(),
		kgo.Balancers(kgo.RangeBalancer()))
	producer := newClient(t, b)
	require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: schema.TopicLikes, Key: []byte("1"), Value: []byte("{}")}).FirstErr())
	record := read(t, member, 1)[0]
	id, generation := member.GroupMetadata()
	metadata, err := kadm.NewClient(producer).Metadata(t.Context(), schema.TopicLikes)
	require.NoError(t, err)

	cl := transactional(t, b, "g-0")
	offset := func(generation int32) int16 {
		pid, epoch, err := cl.ProducerID(t.Context())
		require.NoError(t, err)
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.Group, req.MemberID, req.Generation = "g-0", "g", id, generation
		req.ProducerID, req.ProducerEpoch = pid, epoch
		rt, rp := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rt.Topic, rt.TopicID = schema.TopicLikes, metadata.Topics[schema.TopicLikes].ID
		rp.Partition, rp.Offset = record.Partition, record.Offset+1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(t.Context(), cl)
		require.NoError(t, err)
		require.GreaterOrEqual(t, resp.Version, int16(5), "the group joins the transaction by itself")
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	committed := func() int64 {
		offsets, err := kadm.NewClient(producer).FetchOffsets(t.Context(), "g")
		require.NoError(t, err)
		o, known := offsets.Lookup(schema.TopicLikes, record.Partition)
		if !known {
			return -1
		}
		return o.At
	}
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord("update")).FirstErr())
	require.Equal(t, kerr.IllegalGeneration.Code, offset(generation+1))
	require.Zero(t, offset(generation))
	require.EqualValues(t, -1, committed())
	require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryCommit))
	require.Equal(t, record.Offset+1, committed())
}

// A pin: should kfake learn LogAppendTime, the note at Broker can go.
func TestBrokerKeepsTheProducersTime(t *testing.T) {
	b := startBroker(t)
	createTopics(t, b, 1)
	past := time.UnixMilli(1_000_000)
	require.NoError(t, newClient(t, b).ProduceSync(t.Context(), &kgo.Record{Topic: schema.TopicLikes, Timestamp: past, Value: []byte("v")}).FirstErr())
	require.Equal(t, past, read(t, newClient(t, b, readFromStart(schema.TopicLikes)), 1)[0].Timestamp)
}

func TestBrokerTakesKcat(t *testing.T) {
	client, err := exec.LookPath("kcat")
	if err != nil {
		const missing = "needs kcat (Debian: apt-get install kcat)"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	b := startBroker(t)
	createTopics(t, b, 1)
	ctx := deadline(t)
	produce := exec.CommandContext(ctx, client, "-b", b.Address(), "-P", "-t", schema.TopicLikes, "-K:")
	produce.Stdin = bytes.NewBufferString(`42:{"user_id":7,"action":"LIKE"}` + "\n")
	out, err := produce.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(ctx, client, "-b", b.Address(), "-C", "-t", schema.TopicLikes, "-e", "-q", "-f", "%k %s").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, `42 {"user_id":7,"action":"LIKE"}`, string(out))
}

func TestBrokerRefusesAddresses(t *testing.T) {
	o := DefaultBrokerOptions()
	o.Address = startBroker(t).Address()
	require.ErrorContains(t, NewBroker(o, discardLog()).Start(), o.Address)
	for _, address := range []string{"0.0.0.0:9092", ":9092", "[::]:9092", "localhost"} {
		o.Address = address
		require.ErrorContains(t, NewBroker(o, discardLog()).Start(), address)
	}
}
