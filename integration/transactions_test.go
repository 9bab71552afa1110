package integration

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kudos/integration/stack"
	"kudos/integration/tier"
	opened "kudos/ops/transactions"
	"kudos/schema"
)

// unverified lets a broker add to a transaction that no coordinator knows, as with one that hangs because of a fault.
var unverified = map[string]string{"transaction.partition.verification.enable": "false"}

// held is a system whose partitions of likes are all held back by an open transaction.
type held struct {
	*system
	api       string
	processor *process
	reads     *reader
	want      map[uint64]count
}

// TestTransactionsThatHoldBackLikes: a writer's open transaction hides likes that were accepted. It is visible, and
// `kudos transactions` ends it, whether its coordinator knows it or not; then all likes are counted, and only they.
func TestTransactionsThatHoldBackLikes(t *testing.T) {
	parallel(t, tier.Verify)
	h := newHeld(t)
	writer := h.client(kgo.TransactionalID("upstream"), kgo.TransactionTimeout(10*time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, writer.BeginTransaction())
	for p := range int32(partitions) {
		like := record(likeNow(h.postIn(p), 1000))
		like.Topic, like.Partition = schema.TopicLikes, p
		require.NoError(t, writer.ProduceSync(t.Context(), like).FirstErr())
	}
	h.like(2)
	h.visible()
	open := h.list()
	require.Equal(t, "upstream", open.ID)
	require.Equal(t, "Ongoing", open.State)
	require.False(t, open.Own)
	require.Len(t, open.Partitions, partitions)
	require.Contains(t, h.command("transactions", "--brokers", h.brokerList()), "not of kudos")
	h.abort(open)
	require.ErrorIs(t, writer.EndTransaction(t.Context(), kgo.TryCommit), kerr.ProducerFenced)
	writer.Close()

	id := h.hang()
	h.like(3)
	h.visible()
	open = h.list()
	require.Equal(t, opened.Unknown, open.State)
	abort := []string{"transactions", "--abort", strconv.FormatInt(id, 10), "--brokers", h.brokerList()}
	h.fails(append(abort, "--yes"), "no coordinator knows")
	pause(t, time.Second)
	open = h.list("--max-timeout=1s")
	require.Equal(t, opened.Hanging, open.State)
	require.Equal(t, id, open.ProducerID)
	h.exits(2, abort...) // nobody to ask
	h.abort(open, "--max-timeout=1s")
}

func newHeld(t *testing.T) *held {
	s := newOwnSystem(t, partitions, 1, unverified)
	h := &held{system: s, api: stack.ReserveForTest(t), processor: s.processor("processor"),
		reads: s.reader("reader"), want: map[uint64]count{}}
	startAll(h.processor, h.reads.process, s.role("producer", "producer", "--set", "producer.http_addr="+h.api))
	h.like(1)
	h.waitCounts(h.want)
	return h
}

// like adds a like of a user to a post in each partition.
func (h *held) like(user uint64) {
	for p := range int32(partitions) {
		post := h.postIn(p)
		putLike(h.t, "http://"+h.api, post, user)
		h.want[post] = count{likes: h.want[post].likes + 1}
	}
}

// visible waits until metrics, /readyz and /v1/stats show the transaction; nothing else shows that something is wrong.
func (h *held) visible() {
	fold := map[string]string{"group": schema.GroupFold}
	waitFor(h.t, time.Minute, "the age of the transaction in all partitions", func() bool {
		ages := h.processor.samples("kudos_open_transaction_age_seconds", fold)
		for _, age := range ages {
			if age.value < 2 {
				return false
			}
		}
		return len(ages) == partitions
	})
	require.GreaterOrEqual(h.t, h.processor.sum("kudos_hidden_records", fold), 2.0*partitions)
	require.Zero(h.t, h.processor.sum("kafka_consumergroup_lag", map[string]string{"consumergroup": schema.GroupFold}))
	require.Zero(h.t, h.processor.sum("kudos_position_age_seconds", fold))
	require.True(h.t, h.processor.ready())
	waitSaid(h.t, time.Minute, "/v1/stats to tell it", func() (bool, any) {
		stats := get[struct {
			Transactions []struct {
				Offset int
				End    int `json:"high_watermark"`
				OpenMs int `json:"open_ms"`
			}
		}](h.t, "%s/v1/stats", h.reads.base).Transactions
		return len(stats) == partitions && stats[0].End >= stats[0].Offset+2 && stats[0].OpenMs > 1000, stats
	})
}

func (h *held) list(args ...string) opened.Open {
	var open []opened.Open
	h.report(&open, 0, append([]string{"transactions", "--brokers", h.brokerList(), "--output", "json"},
		args...)...)
	require.Len(h.t, open, 1, "transactions of kudos end")
	return open[0]
}

func (h *held) abort(o opened.Open, args ...string) {
	said := h.command(append([]string{"transactions", "--abort", strconv.FormatInt(o.ProducerID, 10), "--yes",
		"--brokers", h.brokerList()}, args...)...)
	require.Contains(h.t, said, "is aborted")
	h.waitCounts(h.want)
	h.reads.waitCounts(h.want)
	waitFor(h.t, time.Minute, "no transaction to be shown", func() bool {
		return h.processor.sum("kudos_hidden_records", nil) == 0 &&
			h.command("transactions", "--brokers", h.brokerList(), "--output", "json") == "[]\n"
	})
}

// hang writes a transactional record to each partition under a producer id that no coordinator knows.
func (s *system) hang() (producer int64) {
	cl := s.client(kgo.MaxVersions(kversion.V3_8_0()))
	init := kmsg.NewPtrInitProducerIDRequest()
	id, err := init.RequestWith(s.t.Context(), cl)
	require.NoError(s.t, err)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.TransactionID = -1, 10_000, kmsg.StringPtr("gone")
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = schema.TopicLikes
	for p := range int32(partitions) {
		like := record(likeNow(s.postIn(p), 2000))
		topic.Partitions = append(topic.Partitions, kmsg.ProduceRequestTopicPartition{Partition: p,
			Records: transactional(id.ProducerID, id.ProducerEpoch, like)})
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(s.t.Context(), cl)
	require.NoError(s.t, err)
	for _, p := range resp.Topics[0].Partitions {
		require.NoError(s.t, kerr.ErrorForCode(p.ErrorCode), fmt.Sprint(p.ErrorMessage))
	}
	return id.ProducerID
}

// transactional encodes a batch of one record.
func transactional(producer int64, epoch int16, rec *kgo.Record) []byte {
	r := kmsg.Record{Key: rec.Key, Value: rec.Value}
	r.Length = int32(len(r.AppendTo(nil)) - 1) // its own varint has one byte, as long as it is zero
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{Magic: 2, Attributes: 1 << 4, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: producer, ProducerEpoch: epoch, NumRecords: 1, Records: r.AppendTo(nil), PartitionLeaderEpoch: -1}
	b := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
