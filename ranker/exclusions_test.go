package ranker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

func exclusionOf(t *testing.T, post uint64, excluded bool) *kgo.Record {
	t.Helper()
	value, err := schema.AppendExclusion(nil, schema.Exclusion{Excluded: excluded})
	require.NoError(t, err)
	return &kgo.Record{Topic: schema.TopicExclusions, Key: schema.AppendPostKey(nil, post), Value: value}
}

// TestExclusionsAreFollowed: every change is told once, and looked for at an interval.
func TestExclusionsAreFollowed(t *testing.T) {
	_, _, cl := newBroker(t, 1, schema.TopicExclusions)
	e, now := newExclusions(), time.Unix(1_000_000, 0)
	var told []uint64
	poll := func() {
		t.Helper()
		require.NoError(t, e.poll(t.Context(), cl, now, discardLog(), func(post uint64, excluded bool) {
			require.Equal(t, e.has(post), excluded)
			told = append(told, post)
		}))
	}
	poll()
	produce(t, cl, exclusionOf(t, 1, true), exclusionOf(t, 1, true), exclusionOf(t, 2, true))
	poll()
	require.Empty(t, told, "it is not time to look")
	now = now.Add(exclusionsInterval)
	poll()
	require.Equal(t, []uint64{1, 2}, told)
	produce(t, cl, exclusionOf(t, 1, false))
	now = now.Add(exclusionsInterval)
	poll()
	require.Equal(t, []uint64{1, 2, 1}, told)
	require.False(t, e.has(1))
	require.True(t, e.has(2))
	require.EqualValues(t, 4, e.next)
}

// TestExclusionsBeginWhereTheLogDoes: somebody may have cut it, or set a retention.
func TestExclusionsBeginWhereTheLogDoes(t *testing.T) {
	_, _, cl := newBroker(t, 1, schema.TopicExclusions)
	produce(t, cl, exclusionOf(t, 1, true), exclusionOf(t, 2, true))
	cut := kadm.Offsets{}
	cut.AddOffset(schema.TopicExclusions, 0, 1, -1)
	_, err := kadm.NewClient(cl).DeleteRecords(t.Context(), cut)
	require.NoError(t, err)
	e := newExclusions()
	require.NoError(t, e.poll(t.Context(), cl, time.Now(), discardLog(), func(uint64, bool) {}))
	require.False(t, e.has(1))
	require.True(t, e.has(2))
}

// TestExclusionsMadeAnew: a topic that is shorter than what was read is an error, upon
// which the worker opens anew and reads it from its start.
func TestExclusionsMadeAnew(t *testing.T) {
	_, _, cl := newBroker(t, 1, schema.TopicExclusions)
	produce(t, cl, exclusionOf(t, 1, true))
	e := newExclusions()
	e.next, e.read = 5, time.Unix(0, 0)
	require.ErrorIs(t, e.poll(t.Context(), cl, time.Now(), discardLog(), func(uint64, bool) {}), kerr.OffsetOutOfRange)
}
