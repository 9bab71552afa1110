package integration

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/bench/producer"
	"kudos/schema"
	"kudos/stream/kafka"
)

// BenchmarkTransactions measures the transactions of one partition's fold, one after another, with one transactional id
// and with two in turn, with as many brokers as replicas, and with the broker's default for how long it waits for the
// previous transaction of an id (20 ms) or 1 ms. Half of the records go to the state table, half to like-updates.
// Latency is from the beginning of a transaction until a consumer has its last record. Run it with -benchtime 1000x.
func BenchmarkTransactions(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		for _, backoff := range []string{"20", "1"} {
			b.Run(fmt.Sprintf("replicas=%d/backoff=%s", replicas, backoff), func(b *testing.B) {
				s := newOwnSystem(b, 1, replicas, map[string]string{"add.partitions.to.txn.retry.backoff.ms": backoff})
				t := newTransactions(b, s)
				for _, records := range []int{20, 2000} {
					for _, ids := range []int{1, 2} {
						b.Run(fmt.Sprintf("records=%d/ids=%d", records, ids), func(b *testing.B) {
							t.txn.Alternate(ids == 2)
							t.measure(b, records)
						})
					}
				}
			})
		}
	}
}

// transactions is the fold of a partition whose consumer group has one member.
type transactions struct {
	txn     *kafka.Txn
	offset  int64 // in likes
	visible chan time.Duration
}

func newTransactions(b *testing.B, s *system) *transactions {
	m, _ := s.joinFold()
	options := kafka.DefaultOptions()
	options.Brokers = s.brokers
	t := &transactions{visible: make(chan time.Duration, 1_000_000)}
	t.txn = kafka.NewTxn(kafka.TxnOptions{IDs: schema.FoldTransactionalIDs(0), Group: m.Group,
		Member: func() (kafka.Member, error) { return m, nil },
		Source: kafka.LogPartition{Topic: schema.TopicLikes}, Timeout: time.Minute, Kafka: options,
		BatchMaxBytes: schema.BatchMaxBytes}, s.log)
	require.NoError(b, t.txn.Fence(b.Context()))
	b.Cleanup(t.txn.Close)
	updates := s.client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics(schema.TopicUpdates))
	go func() {
		for b.Context().Err() == nil {
			updates.PollFetches(b.Context()).EachRecord(func(r *kgo.Record) {
				if began := binary.BigEndian.Uint64(r.Key); len(r.Value) == 0 {
					t.visible <- time.Since(time.Unix(0, int64(began)))
				}
			})
		}
	}()
	return t
}

// measure commits transactions of n records, which have the time of their beginning as key; the last one has no value.
func (t *transactions) measure(b *testing.B, n int) {
	for b.Loop() {
		key := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		records := make([]*kgo.Record, n)
		for i := range records {
			topic := []string{schema.TopicState, schema.TopicUpdates}[2*i/n]
			records[i] = &kgo.Record{Topic: topic, Key: key, Value: make([]byte, 16)}
		}
		records[n-1].Value = nil
		t.offset++
		require.NoError(b, t.txn.Commit(b.Context(), records, kafka.Position{Offset: t.offset, Epoch: -1}))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transactions/s")
	var visible []time.Duration
	for range b.N {
		visible = append(visible, <-t.visible)
	}
	p50, p99, _, _ := producer.Percentiles(visible)
	b.ReportMetric(p50, "visible-p50-ms")
	b.ReportMetric(p99, "visible-p99-ms")
}
