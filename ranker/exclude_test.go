package ranker

import (
	"bytes"
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/refusal"
	"kudos/schema"
)

func TestExcludeAndInclude(t *testing.T) {
	_, kafka, cl := newBroker(t, 1, schema.TopicExclusions)
	list := func() map[uint64]string {
		t.Helper()
		excluded, err := Exclusions(t.Context(), kafka, discardLog())
		require.NoError(t, err)
		reasons := map[uint64]string{}
		for i, e := range excluded {
			require.False(t, e.At.IsZero())
			require.True(t, i == 0 || excluded[i-1].PostID < e.PostID, "in order")
			reasons[e.PostID] = e.Reason
		}
		return reasons
	}
	exclude := func(e schema.Exclusion, posts ...uint64) {
		t.Helper()
		done, err := Exclude(t.Context(), kafka, posts, e, discardLog())
		require.NoError(t, err)
		require.Equal(t, posts, done)
	}
	require.Empty(t, list())
	exclude(schema.Exclusion{Excluded: true, Reason: "spam"}, 42, 7, math.MaxUint64)
	require.Equal(t, map[uint64]string{7: "spam", 42: "spam", math.MaxUint64: "spam"}, list())
	exclude(schema.Exclusion{Excluded: true, Reason: "worse"}, 7)
	exclude(schema.Exclusion{Reason: "appeal"}, 42, 43)
	require.Equal(t, map[uint64]string{7: "worse", math.MaxUint64: "spam"}, list())
	produce(t, cl, &kgo.Record{Topic: schema.TopicExclusions, Key: []byte("7")}) // a tombstone
	require.Equal(t, map[uint64]string{math.MaxUint64: "spam"}, list())
}

// What the record looks like is the contract: kcat may write it, too.
func TestExcludeWritesPlainRecords(t *testing.T) {
	_, kafka, cl := newBroker(t, 1, schema.TopicExclusions)
	_, err := Exclude(t.Context(), kafka, []uint64{42}, schema.Exclusion{Excluded: true, Reason: "spam"}, discardLog())
	require.NoError(t, err)
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{schema.TopicExclusions: {0: kgo.NewOffset().AtStart()}})
	fetches := cl.PollFetches(t.Context())
	require.NoError(t, fetches.Err())
	records := fetches.Records()
	require.Len(t, records, 1)
	require.Equal(t, "42", string(records[0].Key))
	require.Equal(t, `{"excluded":true,"reason":"spam"}`, string(records[0].Value))
}

func TestRecordsThatAreNoExclusionsAreToldAndLeftOut(t *testing.T) {
	_, kafka, cl := newBroker(t, 1, schema.TopicExclusions)
	produce(t, cl,
		&kgo.Record{Topic: schema.TopicExclusions, Key: []byte("1"), Value: []byte(`{"excluded":true}`)},
		&kgo.Record{Topic: schema.TopicExclusions, Key: []byte("all"), Value: []byte(`{"excluded":true}`)},
		&kgo.Record{Topic: schema.TopicExclusions, Key: []byte("2"), Value: []byte(`yes`)},
	)
	var text bytes.Buffer
	excluded, err := Exclusions(t.Context(), kafka, slog.New(slog.NewTextHandler(&text, nil)))
	require.NoError(t, err)
	require.Len(t, excluded, 1)
	require.Equal(t, uint64(1), excluded[0].PostID)
	require.Contains(t, text.String(), "offset=1")
	require.Contains(t, text.String(), "offset=2")
}

func TestExcludeNeedsItsTopic(t *testing.T) {
	_, kafka, _ := newBroker(t, 1, schema.TopicLikes)
	_, err := Exclude(t.Context(), kafka, []uint64{1}, schema.Exclusion{Excluded: true}, discardLog())
	require.ErrorContains(t, err, "kudos topics apply")
	require.ErrorContains(t, err, schema.TopicExclusions)
	_, err = Exclusions(t.Context(), kafka, discardLog())
	require.ErrorContains(t, err, "kudos topics apply")
}

// TestExcludeWaitsForKafka: what Kafka did not take is not said to be done.
func TestExcludeWaitsForKafka(t *testing.T) {
	cluster, kafka, _ := newBroker(t, 1, schema.TopicExclusions)
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return refusal.Produce(kreq, kerr.TopicAuthorizationFailed), nil, true
	})
	done, err := Exclude(t.Context(), kafka, []uint64{1, 2}, schema.Exclusion{Excluded: true}, discardLog())
	require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	require.ErrorContains(t, err, "0 of 2")
	require.Empty(t, done)
}
