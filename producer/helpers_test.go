package producer

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/schema"
	"kudos/stream/kafka"
)

const (
	partitions = 4
	patience   = testkit.Patience

	accepted = http.StatusAccepted
	ndjson   = "application/x-ndjson"

	like  = "/v1/posts/7/likes/9"
	likes = "/v1/posts/7/likes"
	batch = "/v1/likes:batch"
)

// rig is a producer that runs against an embedded broker.
type rig struct {
	*Producer
	*apikit.Role
	cluster *testkit.Cluster
	brokers kafka.Options
}

// newRig returns a producer with options set by change; it does not run.
func newRig(t testing.TB, change func(*Options)) *rig {
	t.Helper()
	o := DefaultOptions()
	o.HTTPAddr = "127.0.0.1:0"
	if change != nil {
		change(&o)
	}
	r := &rig{Role: apikit.NewRole(t)}
	r.cluster, r.brokers = apikit.Broker(t, partitions, []string{schema.TopicLikes})
	r.brokers.RequestTimeout = kafka.DefaultOptions().RequestTimeout
	var err error
	r.Producer, err = New(o, r.brokers, testkit.Log(), r.Metrics)
	require.NoError(t, err)
	r.Role.Server = r.Producer
	return r
}

func start(t testing.TB, change func(*Options)) *rig {
	t.Helper()
	r := newRig(t, change)
	r.StartUntilReady()
	return r
}

func (r *rig) waitMetric(value int, name string, labels ...string) {
	r.T.Helper()
	r.WaitFor(name, func() bool { return r.Metric(name, labels...) == float64(value) })
}

func (r *rig) waitBuffered(n int) {
	r.T.Helper()
	r.waitMetric(n, "kudos_producer_buffered_records")
}

func (r *rig) requireCount(n int, name string, labels ...string) {
	r.T.Helper()
	require.EqualValues(r.T, n, r.Metric("kudos_producer_"+name, labels...), "%s%v", name, labels)
}

func requireRefused(a apikit.Answer, status int, slug, words string) apikit.Answer {
	a.T.Helper()
	return a.RequireProblem(status, slug, words).RequireProblem(status, slug, "; nothing was written")
}

func requireUnauthenticated(a apikit.Answer, words string) apikit.Answer {
	a.T.Helper()
	return requireRefused(a, http.StatusUnauthorized, "unauthenticated", words)
}

func placeOf(a apikit.Answer) (at position) {
	a.T.Helper()
	a.Require(accepted).Decode(&at)
	return at
}

func (r *rig) put(path string, headers ...string) apikit.Answer {
	r.T.Helper()
	return r.Send(http.MethodPut, path, "", headers...)
}

func (r *rig) putLater(path string, headers ...string) <-chan apikit.Answer {
	return r.Later(http.MethodPut, path, "", headers...)
}

func (r *rig) postLike(path, body string) apikit.Answer {
	r.T.Helper()
	return r.Send(http.MethodPost, path, body, "Content-Type", "application/json")
}

func (r *rig) postLines(query string, lines ...string) apikit.Answer {
	r.T.Helper()
	return r.postLinesAs(nil, query, lines...)
}

func (r *rig) postLinesAs(headers []string, query string, lines ...string) apikit.Answer {
	r.T.Helper()
	return r.Send(http.MethodPost, batch+query, strings.Join(lines, "\n"), append(headers, "Content-Type", ndjson)...)
}

// consume reads the events of likes, by partition and offset, and requires exactly n.
func (r *rig) consume(n int) []*kgo.Record {
	r.T.Helper()
	r.WaitFor("the topic likes must contain the events", func() bool { return r.written() >= int64(n) })
	records := apikit.Likes(r.T, r.brokers)
	require.Len(r.T, records, n, "records in likes")
	return records
}

func (r *rig) written() (n int64) {
	for _, p := range r.cluster.PartitionInfos(schema.TopicLikes) {
		n += p.HighWatermark
	}
	return n
}

func record(t testing.TB, records []*kgo.Record, at position) (*kgo.Record, schema.Event) {
	t.Helper()
	for _, r := range records {
		if r.Partition == at.Partition && r.Offset == at.Offset {
			return r, apikit.Event(t, r)
		}
	}
	require.Fail(t, "no record", "at %+v", at)
	return nil, schema.Event{}
}

// hold makes the broker delay produce requests. held waits for the first one; release lets all of them continue.
func (r *rig) hold() (held, release func()) {
	came, freed := make(chan struct{}), make(chan struct{})
	first, release := sync.OnceFunc(func() { close(came) }), sync.OnceFunc(func() { close(freed) })
	r.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.cluster.KeepControl()
		first()
		r.cluster.SleepControl(func() { <-freed })
		return nil, nil, false
	})
	r.T.Cleanup(release)
	return func() { testkit.Receive(r.T, came, "an event must reach the broker") }, release
}

// away makes the broker close the connection on every request while the flag is set.
func (r *rig) away() *atomic.Bool {
	var away atomic.Bool
	r.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		r.cluster.KeepControl()
		return nil, errors.New("unavailable"), away.Load()
	})
	return &away
}
