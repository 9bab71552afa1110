package bridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/dev/testkit/apikit"
	"kudos/integration/testrun"
	"kudos/schema"
	"kudos/stream/kafka"
)

const source = "shop.post_likes"

// site is a broker with the topics that a bridge uses, and a source of two partitions.
type site struct {
	*devtest.Kafka
	t    testing.TB
	opts Options
}

func newSite(t testing.TB) *site {
	s := &site{devtest.NewKafka(t), t, DefaultOptions()}
	s.opts.Topic, s.opts.ParkInterval = source, 20*time.Millisecond
	s.create(schema.TopicLikes, 3)
	s.create(schema.TopicDLT, 3)
	return s
}

func (s *site) create(topic string, partitions int32) {
	s.t.Helper()
	_, err := kadm.NewClient(s.Client).CreateTopic(s.t.Context(), partitions, 1, nil, topic)
	require.NoError(s.t, err)
}

// start runs a bridge until stop.
func (s *site) start() (b *Bridge, reg *prometheus.Registry, stop func()) {
	s.t.Helper()
	reg = prometheus.NewRegistry()
	b, err := New(s.opts, s.Options, devtest.Log(), reg)
	require.NoError(s.t, err)
	return b, reg, testrun.Start(s.t, "the bridge", 30*time.Second, b.Run)
}

// change writes a change of a row to partition post % 2.
func (s *site) change(op string, post, user uint64, ms int64) {
	s.t.Helper()
	key := fmt.Appendf(nil, `{"post_id":%d,"user_id":%d}`, post, user)
	s.Write(&kgo.Record{Topic: source, Partition: int32(post % 2), Key: key, Value: fmt.Appendf(nil,
		`{"before":null,"after":%s,"source":{"ts_ms":%d},"op":%q}`, key, ms, op)})
}

func (s *site) likes() (events []schema.Event) {
	s.t.Helper()
	for p := range int32(3) {
		for _, rec := range s.Records(schema.TopicLikes, p) {
			events = append(events, apikit.Event(s.t, rec))
		}
	}
	return events
}

func (s *site) waitLikes(n int) {
	s.t.Helper()
	devtest.WaitFor(s.t, fmt.Sprintf("%d events", n), func() (bool, any) {
		have := len(s.likes())
		return have == n, have
	}, nil)
}

func (s *site) committed(partition int32) (at kafka.Position, c clock) {
	s.t.Helper()
	at, ok, err := kafka.Committed(s.t.Context(), s.Client, s.opts.Group, source, partition)
	require.NoError(s.t, err)
	require.True(s.t, ok)
	require.NoError(s.t, json.Unmarshal([]byte(at.Metadata), &c))
	return at, c
}

func TestBridgePublishesEachRecordOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.create(source, 2)
	now := time.Now().UnixMilli()
	for i := range uint64(20) {
		s.change("c", 1+i, 7, now+int64(i))
	}
	s.Write(&kgo.Record{Topic: source, Key: []byte("{}"), Value: []byte("no JSON")},
		&kgo.Record{Topic: source, Key: []byte("{}")})
	_, reg, stop := s.start()
	s.waitLikes(20)
	for _, e := range s.likes() {
		require.Equal(t, schema.Event{PostID: e.PostID, UserID: 7, Action: schema.Like, Region: schema.UnknownRegion,
			TimeMs: now + int64(e.PostID-1)}, e)
	}
	devtest.WaitFor(t, "the invalid record", func() (bool, any) { return s.End(schema.TopicDLT, 0) > 0, nil }, nil)
	dead := s.Records(schema.TopicDLT, 0)
	require.Len(t, dead, 1)
	require.Equal(t, "no JSON", string(dead[0].Value))
	require.Equal(t, float64(20), testrun.Metric(t, reg, "kudos_bridge_events_total"))
	require.Equal(t, float64(1), testrun.Metric(t, reg, "kudos_bridge_dead_letters_total", "undecodable"))
	require.Equal(t, float64(1), testrun.Metric(t, reg, "kudos_bridge_skipped_total"))
	stop()

	_, c := s.committed(1)
	require.Equal(t, clock{TimeMs: now + 18, Partitions: 3}, c)
	s.change("d", 1, 7, now-5000) // the database's clock stepped back while nobody read
	_, _, stop = s.start()
	s.waitLikes(21)
	stop()
	var last schema.Event
	for _, e := range s.likes() {
		if e.PostID == 1 {
			last = e
		}
	}
	require.Equal(t, schema.Unlike, last.Action)
	require.Equal(t, now+18, last.TimeMs)
}

// If likes gets more partitions, events are sent by the new layout, with times after all earlier ones: those may still
// be forwarded.
func TestBridgeFollowsTheLayout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.create(source, 2)
	now := time.Now().UnixMilli()
	s.change("c", 1, 7, now)
	_, _, stop := s.start()
	s.waitLikes(1)
	stop()
	_, err := kadm.NewClient(s.Client).UpdatePartitions(t.Context(), 6, schema.TopicLikes)
	require.NoError(t, err)
	s.change("d", 1, 7, now)
	s.start()
	owner := schema.PartitionFor(1, 6)
	devtest.WaitFor(t, "the event in its new partition", func() (bool, any) {
		n := len(s.Records(schema.TopicLikes, owner))
		return n > 0 && (n > 1 || owner != schema.PartitionFor(1, 3)), n
	}, nil)
	events := s.Records(schema.TopicLikes, owner)
	require.Equal(t, now+1, apikit.Event(t, events[len(events)-1]).TimeMs)
}

func TestBridgeSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, _, _ := s.start()
	devtest.WaitReadiness(t, b.Ready, "there is no topic shop.post_likes", "bridge.topic")
	s.create(source, 2)
	s.Write(&kgo.Record{Topic: source, Key: []byte(`{"id":1}`),
		Value: []byte(`{"op":"c","after":{"post_id":1,"user_id":2}}`)})
	devtest.WaitReadiness(t, b.Ready, "shop.post_likes/0 offset 0: the key of a record must be", "message.key.columns")
	require.Empty(t, s.likes())
}

func TestBridgeParksIfItsPositionIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.create(source, 2)
	s.change("c", 1, 7, time.Now().UnixMilli())
	_, _, stop := s.start()
	s.waitLikes(1)
	stop()
	s.change("c", 1, 8, time.Now().UnixMilli())
	s.change("c", 1, 9, time.Now().UnixMilli())
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: source, Partition: 1, At: 2})
	_, err := kadm.NewClient(s.Client).DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	b, _, _ := s.start()
	devtest.WaitReadiness(t, b.Ready, "offset 1 is next, but shop.post_likes/1 holds 2 to 3", "--reset-offsets")
}

func TestClockOfALaterVersionParks(t *testing.T) {
	_, err := parseClock("v2")
	require.ErrorContains(t, err, "metadata of the committed offset")
	c, err := parseClock("")
	require.NoError(t, err)
	require.Zero(t, c)
}

func TestNewRefuses(t *testing.T) {
	_, err := New(DefaultOptions(), kafka.DefaultOptions(), devtest.Log(), prometheus.NewRegistry())
	require.ErrorContains(t, err, "bridge.topic")
	require.Equal(t, 1, strings.Count(err.Error(), "bridge."))
}
