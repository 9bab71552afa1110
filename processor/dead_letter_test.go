package processor_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/classify"
	"kudos/schema"
)

func TestInvalidEventsAreSkipped(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	owner := fmt.Sprint(postIn(0))
	poison := func(key, value string, headers ...kgo.RecordHeader) *kgo.Record {
		return &kgo.Record{Key: []byte(key), Value: []byte(value),
			Headers: append(headers, kgo.RecordHeader{Key: "n", Value: []byte(value)[:min(len(value), 9)]})}
	}
	dead := []*kgo.Record{
		poison(owner, "\xff\xff"),
		poison(owner, ""),
		poison(owner, `{"post_id":424242,"user_id":1,"action":"LIKE"}`),
		poison("post", `{"user_id":1,"action":"LIKE"}`),
		poison("0", `{"user_id":1,"action":"LIKE"}`),
		poison(owner, `{"action":"LIKE"}`),
		poison(owner, `{"user_id":1,"action":"HATE"}`),
		poison(owner, `{"user_id":1,"action":"LIKE","time_ms":-5}`),
		poison(owner, strings.Repeat("x", 60_000)),
		poison(fmt.Sprint(postIn(2)), `{"user_id":1,"action":"LIKE"}`,
			kgo.RecordHeader{Key: schema.HeaderForwarded, Value: []byte("1@1")}),
	}
	// All of it is written to partition 0, between events.
	var records []*kgo.Record
	for i, rec := range dead {
		records = append(records, record(like(0, uint64(i+1))), rec)
	}
	s.produce(records...)
	p := s.run(maxBatch(3))
	s.waitExact()
	require.Equal(t, map[uint64]schema.Counts{postIn(0): {Likes: int64(len(dead))}}, s.counts())
	require.NoError(t, p.Ready())
	p.waitIdle()

	letters := s.Records(schema.TopicDLT, 0)
	require.Len(t, letters, len(dead))
	reasons := map[string]int{}
	for i, letter := range letters {
		require.Equal(t, dead[i].Key, letter.Key)
		require.True(t, bytes.Equal(dead[i].Value, letter.Value), "value of dead letter %d", i)
		require.Equal(t, dead[i].Headers, letter.Headers[:len(dead[i].Headers)])
		require.Equal(t, schema.TopicLikes, classify.Header(letter, schema.HeaderDLTTopic))
		require.Equal(t, "0", classify.Header(letter, schema.HeaderDLTPartition))
		require.Equal(t, strconv.Itoa(2*i+1), classify.Header(letter, schema.HeaderDLTOffset))
		reason, _, _ := strings.Cut(classify.Header(letter, schema.HeaderDLTError), ":")
		reasons[reason]++
	}
	for _, reason := range schema.PoisonReasons {
		require.NotZero(t, reasons[string(reason)], "a dead letter for %s", reason)
		require.Equal(t, reasons[string(reason)], p.metric("kudos_dead_letters_total", string(reason)),
			"dead letters counted for %s", reason)
	}
	require.Equal(t, len(records), p.metric("kudos_events_folded_total"))
}

// The broker checks the compressed size only, whatever a batch contains.
func TestDecompressionBombDoesNotStopThePartition(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.run()
	giant := &kgo.Record{Key: []byte(fmt.Sprint(postIn(0))), Value: bytes.Repeat([]byte(" "), 2<<20)}
	cl := s.NewClient(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(4<<20),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	require.NoError(t, cl.ProduceSync(t.Context(), giant, record(like(0, 1))).FirstErr())
	s.waitExact()
	letters := s.Records(schema.TopicDLT, 0)
	require.Len(t, letters, 1)
	require.Equal(t, giant.Value[:schema.MaxEventBytes], letters[0].Value)
	require.NotEmpty(t, classify.Header(letters[0], "kudos.truncated"))
}

func TestBatchOfInvalidEventsMovesThePosition(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	var records []*kgo.Record
	for range 100 {
		records = append(records, &kgo.Record{Partition: 1, Key: []byte("x"), Value: []byte("y")})
	}
	s.produce(records...)
	p := s.run()
	s.waitExact()
	require.Equal(t, int64(100), s.progress(1).NextOffset)
	require.Empty(t, s.counts())
	p.waitIdle()
	require.Equal(t, 100, p.metric("kudos_dead_letters_total", string(schema.Undecodable)))
	// Another processor starts after them.
	p.stop()
	s.produce(&kgo.Record{Partition: 1, Key: []byte(fmt.Sprint(postIn(1))),
		Value: []byte(`{"user_id":1,"action":"LIKE"}`)})
	p = s.run()
	s.waitExact()
	p.waitIdle()
	require.Equal(t, 1, p.metric("kudos_events_folded_total"))
}

func TestMisroutedEventsCountOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run()
	ahead := time.Now().Add(time.Hour).UnixMilli()
	var records []*kgo.Record
	for user := uint64(1); user <= 20; user++ {
		post := postIn(int32(user % partitions))
		away := int32((user + 1) % partitions)
		value := fmt.Sprintf(`{"user_id":%d,"action":"LIKE","time_ms":%d,"region":"Atlantis"}`, user, ahead)
		records = append(records,
			&kgo.Record{Partition: away, Key: fmt.Appendf(nil, "00%d", post), Value: []byte(value)},
			&kgo.Record{Partition: away, Value: fmt.Appendf(nil, `{"post_id":%d,"user_id":%d,"action":"LIKE"}`, post,
				user+1000)})
	}
	s.produce(records...)
	s.waitExact()
	total := int64(0)
	for _, c := range s.counts() {
		total += c.Likes
	}
	require.Equal(t, int64(len(records)), total)
	p.waitIdle()
	require.Equal(t, len(records), p.metric("kudos_events_forwarded_total"))
	require.Equal(t, 2*len(records), p.metric("kudos_events_folded_total"),
		"each is seen where it was found and in its partition")
	require.Equal(t, len(records)/2, p.metric("kudos_events_capped_total"))
	require.Equal(t, len(records)/2, p.metric("kudos_events_ahead_total"))
	require.Equal(t, len(records)/2, p.metric("kudos_events_bad_region_total"))
	require.Zero(t, p.metric("kudos_dead_letters_total"))
	require.Equal(t, 2*len(records), s.seen()[schema.TopicLikes], "each is forwarded once")
}
