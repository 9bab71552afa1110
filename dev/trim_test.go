//go:build !nodev

package dev

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// trimming is a broker with likes of one partition, of which the first five are old.
func trimming(t *testing.T) (*Broker, *kadm.Client) {
	b := startBroker(t)
	createTopics(t, b, 1)
	cl := newClient(t, b)
	for i := range 10 {
		r := &kgo.Record{Topic: schema.TopicLikes, Value: []byte("v"), Timestamp: time.Now()}
		if i < 5 {
			r.Timestamp = r.Timestamp.Add(-time.Hour)
		}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
	return b, kadm.NewClient(cl)
}

func commit(t *testing.T, admin *kadm.Client, group string, offset int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(schema.TopicLikes, 0, offset, -1)
	require.NoError(t, admin.CommitAllOffsets(t.Context(), group, offsets))
}

func likesStart(t *testing.T, admin *kadm.Client) int64 {
	t.Helper()
	starts, err := admin.ListStartOffsets(t.Context(), schema.TopicLikes)
	require.NoError(t, err)
	start, known := starts.Lookup(schema.TopicLikes, 0)
	require.True(t, known)
	return start.Offset
}

func TestTrimmerDeletesWhatIsOldAndRead(t *testing.T) {
	b, admin := trimming(t)
	o := DefaultTrimmerOptions()
	o.Topics = map[string]TrimRule{
		schema.TopicLikes: {ReadBy: []string{"first", "second"}, Keep: 10 * time.Minute},
		"not-there":       {ReadBy: []string{"first"}},
	}
	trimmer := NewTrimmer(o, kafkaOptions(b), discardLog())
	trim := func() int64 {
		t.Helper()
		require.NoError(t, trimmer.trim(t.Context(), admin, time.Now()))
		return likesStart(t, admin)
	}
	require.Zero(t, trim(), "nobody has read")
	commit(t, admin, "first", 4)
	require.Zero(t, trim(), "one of two has read")
	commit(t, admin, "second", 3)
	require.EqualValues(t, 3, trim(), "the slower group counts")
	commit(t, admin, "first", 10)
	commit(t, admin, "second", 9)
	require.EqualValues(t, 5, trim(), "what is young stays")
	require.EqualValues(t, 5, trim())
}

func TestTrimmerKeepsTheLastRecords(t *testing.T) {
	b, admin := trimming(t)
	o := DefaultTrimmerOptions()
	for _, c := range []struct {
		age        time.Duration
		keep, want int64
	}{
		{2 * time.Hour, 1, 0},   // all of it is younger
		{time.Minute, 10, 0},    // there are no more than ten
		{time.Minute, 20, 0},    // nor twenty
		{time.Minute, 7, 3},     // ten, without the last seven
		{time.Minute, 1, 5},     // the old ones
		{time.Minute, 7, 5},     // nothing comes back
		{time.Nanosecond, 2, 8}, // all are old
	} {
		rule := TrimRule{Keep: c.age, KeepRecords: c.keep}
		o.Topics = map[string]TrimRule{schema.TopicLikes: rule, "not-there": rule}
		require.NoError(t, o.Validate())
		require.NoError(t, NewTrimmer(o, kafkaOptions(b), discardLog()).trim(t.Context(), admin, time.Now()))
		require.Equal(t, c.want, likesStart(t, admin), "older than %s, without the last %d", c.age, c.keep)
	}
}

func TestTrimmerRuns(t *testing.T) {
	b, admin := trimming(t)
	commit(t, admin, schema.GroupFold, 10)
	o := DefaultTrimmerOptions()
	o.Topics = map[string]TrimRule{schema.TopicLikes: {ReadBy: []string{schema.GroupFold}}}
	o.Interval = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewTrimmer(o, kafkaOptions(b), discardLog()).Run(ctx) }()
	require.Eventually(t, func() bool { return likesStart(t, admin) == 10 }, 10*time.Second, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

func TestTrimmerRefusesToTrimUnread(t *testing.T) {
	o := DefaultTrimmerOptions()
	o.Topics = map[string]TrimRule{"likes": {Keep: time.Hour}}
	require.ErrorContains(t, NewTrimmer(o, kafkaOptions(startBroker(t)), discardLog()).Run(t.Context()), "likes would be trimmed unread")
	o.Topics = map[string]TrimRule{"likes": {Keep: -time.Hour, KeepRecords: 1}}
	require.ErrorContains(t, o.Validate(), "likes: what is kept")
	require.NoError(t, DefaultTrimmerOptions().Validate())
}
