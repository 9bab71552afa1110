package notify

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/integration/testrun"
	"kudos/schema"
	"kudos/stream/kafka"
)

// hook is a webhook that answers as the test wants, and keeps what it gets.
type hook struct {
	*devtest.Kafka
	t    testing.TB
	opts Options

	mu     sync.Mutex
	answer func(id string) int // the status; nil: 204
	got    []delivery
}

type delivery struct {
	header http.Header
	body   []byte
	event  event
}

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func newHook(t testing.TB) *hook {
	h := &hook{Kafka: devtest.NewKafka(t), t: t, opts: DefaultOptions()}
	for _, topic := range []string{schema.TopicMilestones, schema.TopicTrending, schema.TopicNotifyDLT} {
		_, err := kadm.NewClient(h.Client).CreateTopic(t.Context(), 2, 1, nil, topic)
		require.NoError(t, err)
	}
	server := httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(server.Close)
	h.opts.URL, h.opts.Secret, h.opts.ParkInterval = server.URL, testSecret, 20*time.Millisecond
	h.opts.Rankings = []string{"global/1h"}
	return h
}

func (h *hook) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	d := delivery{header: r.Header, body: body}
	if err != nil || json.Unmarshal(body, &d.event) != nil {
		h.t.Errorf("a request without an event: %q, %v", body, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, d)
	status := http.StatusNoContent
	if h.answer != nil {
		status = h.answer(d.event.ID)
	}
	if status == http.StatusFound {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(status)
}

func (h *hook) answers(answer func(id string) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

func (h *hook) ids() (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.got {
		ids = append(ids, d.event.ID)
	}
	return ids
}

// start runs a notifier, and waits until it is ready.
func (h *hook) start() (reg *prometheus.Registry, stop func()) {
	h.t.Helper()
	reg = prometheus.NewRegistry()
	n, err := New(h.opts, h.Options, devtest.Log(), reg)
	require.NoError(h.t, err)
	stop = testrun.Start(h.t, "the notifier", 30*time.Second, n.Run)
	devtest.WaitReady(h.t, n.Ready)
	return reg, stop
}

func (h *hook) milestone(post uint64, threshold int64) {
	h.t.Helper()
	m := schema.Milestone{Version: 1, PostID: post, Threshold: threshold, Likes: threshold,
		Time: time.UnixMilli(1e12).UTC()}
	key := schema.AppendPostKey(nil, post)
	h.Write(&kgo.Record{Topic: schema.TopicMilestones, Key: key, Value: schema.EncodeMilestone(&m)})
}

func (h *hook) waitIDs(want ...string) {
	h.t.Helper()
	devtest.WaitFor(h.t, fmt.Sprint(want), func() (bool, any) {
		have := h.ids()
		return fmt.Sprint(have) == fmt.Sprint(want), have
	}, nil)
}

func (h *hook) waitCommitted(offset int64) {
	h.t.Helper()
	devtest.WaitFor(h.t, "the committed offset", func() (bool, any) {
		at, _, err := kafka.CommittedOffset(h.t.Context(), h.Client, "notify-milestones", schema.TopicMilestones, 0)
		return err == nil && at == offset, at
	}, nil)
}

func TestNotify(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	h.milestone(1, 100) // before the first start
	_, stop := h.start()
	h.waitCommitted(1)
	h.milestone(42, 1000)
	h.waitIDs("milestone/42/1000")
	d := h.got[0]
	require.Equal(t, "application/cloudevents+json", d.header.Get("Content-Type"))
	require.Equal(t, event{SpecVersion: "1.0", ID: "milestone/42/1000", Source: "/kudos", Type: "kudos.milestone",
		Subject: "42", Time: time.UnixMilli(1e12).UTC(), ContentType: "application/json", Data: d.event.Data}, d.event)
	m, err := schema.DecodeMilestone(d.event.Data)
	require.NoError(t, err)
	require.EqualValues(t, 42, m.PostID)
	secret, err := key(testSecret)
	require.NoError(t, err)
	require.Equal(t, d.event.ID, d.header.Get("Webhook-Id"))
	signature := sign(secret, d.event.ID, d.header.Get("Webhook-Timestamp"), d.body)
	require.Equal(t, signature, d.header.Get("Webhook-Signature"))
	stop()

	h.milestone(43, 100) // while none runs
	h.start()
	h.waitIDs("milestone/42/1000", "milestone/43/100")
}

// An event is sent again until the webhook takes it, before the next one of its partition.
func TestNotifyRepeatsInOrder(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	failures := 0
	h.answers(func(id string) int {
		if id == "milestone/2/100" && failures < 3 {
			failures++
			return []int{http.StatusServiceUnavailable, http.StatusNotFound, http.StatusFound}[failures-1]
		}
		return http.StatusOK
	})
	reg, _ := h.start()
	h.milestone(1, 100)
	h.milestone(2, 100)
	h.milestone(3, 100)
	h.waitIDs("milestone/1/100", "milestone/2/100", "milestone/2/100", "milestone/2/100", "milestone/2/100",
		"milestone/3/100")
	require.Equal(t, float64(3), testrun.Metric(t, reg, "kudos_notify_sent_total"))
	require.Equal(t, float64(3), testrun.Metric(t, reg, "kudos_notify_failed_requests_total"))
}

func TestNotifyGivesUp(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	h.opts.GiveUpAfter = 200 * time.Millisecond
	h.answers(func(id string) int {
		if id == "milestone/2/100" {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	reg, _ := h.start()
	h.milestone(2, 100)
	h.milestone(3, 100)
	devtest.WaitFor(t, "the next event", func() (bool, any) {
		ids := h.ids()
		return len(ids) > 0 && ids[len(ids)-1] == "milestone/3/100", ids
	}, nil)
	dead := h.Records(schema.TopicNotifyDLT, 0)
	require.Len(t, dead, 1)
	require.Equal(t, "milestone/2/100", string(dead[0].Key))
	var e event
	require.NoError(t, json.Unmarshal(dead[0].Value, &e))
	require.Equal(t, "milestone/2/100", e.ID)
	require.Equal(t, "the webhook answered 400 Bad Request", string(dead[0].Headers[0].Value))
	require.Equal(t, float64(1), testrun.Metric(t, reg, "kudos_notify_dead_letters_total", "kudos.milestone"))
}

// Of the rankings, those of the settings are sent, and the last one if several came while the webhook failed.
func TestNotifyOfRankings(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	rank := func(key string, to schema.Minute) {
		value, err := schema.EncodeRanking(&schema.Ranking{Version: 1, Region: "global", Window: "1h",
			RankingBasis: schema.RankingBasis{From: to - 60, To: to, Watermark: to}, Score: "count", TopN: 1})
		require.NoError(t, err)
		h.Write(&kgo.Record{Topic: schema.TopicTrending, Key: []byte(key), Value: value})
	}
	h.start()
	rank("DE/1h", 1)
	rank("global/1h", 2)
	h.waitIDs("ranking/0/1")
	h.answers(func(string) int { return http.StatusInternalServerError })
	rank("global/1h", 3)
	devtest.WaitFor(t, "a failure", func() (bool, any) { return len(h.ids()) > 3, h.ids() }, nil)
	rank("global/1h", 4)
	rank("global/1h", 5)
	h.answers(nil)
	devtest.WaitFor(t, "the last one", func() (bool, any) {
		ids := h.ids()
		return ids[len(ids)-1] == "ranking/0/4", ids
	}, nil)
	require.NotContains(t, h.ids(), "ranking/0/3")
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.got[len(h.got)-1].event
	require.Equal(t, typeRanking, last.Type)
	require.Equal(t, "global/1h", last.Subject)
}

func TestNotifyParks(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	n, err := New(h.opts, h.Options, devtest.Log(), prometheus.NewRegistry())
	require.NoError(t, err)
	testrun.Start(t, "the notifier", 30*time.Second, n.Run)
	devtest.WaitReady(t, n.Ready)
	h.Write(&kgo.Record{Topic: schema.TopicMilestones, Key: []byte("1"), Value: []byte(`{"version":2}`)})
	devtest.WaitReadiness(t, n.Ready, "milestones/0 offset 0", "unknown version 2", "a later one")
	require.Empty(t, h.ids())
}

// The example of the Standard Webhooks libraries.
func TestSignature(t *testing.T) {
	secret, err := key(testSecret)
	require.NoError(t, err)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)))
}

func TestOptions(t *testing.T) {
	require.NoError(t, DefaultOptions().Validate())
	for want, change := range map[string]func(*Options){
		"notify.url: must be an http or https URL": func(o *Options) { o.URL = "ftp://x" },
		"notify.secret: must be whsec_":            func(o *Options) { o.Secret = "whsec_c2hvcnQ=" },
		"notify.source: must be a URI":             func(o *Options) { o.Source = "" },
		"notify.group: a name is needed":           func(o *Options) { o.Group = "" },
		`notify.rankings: "1h" is not REGION`:      func(o *Options) { o.Rankings = []string{"1h"} },
		"notify.request_timeout: must be above":    func(o *Options) { o.RequestTimeout = 0 },
		"notify.give_up_after: must be above":      func(o *Options) { o.GiveUpAfter = 0 },
		"notify.session_timeout: must be above":    func(o *Options) { o.SessionTimeout = 0 },
		"notify.park_interval: must be above":      func(o *Options) { o.ParkInterval = 0 },
		"notify.shutdown_timeout: must be above":   func(o *Options) { o.ShutdownTimeout = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		require.ErrorContains(t, o.Validate(), want)
	}
	_, err := New(DefaultOptions(), kafka.DefaultOptions(), devtest.Log(), prometheus.NewRegistry())
	require.ErrorContains(t, err, "notify.url: the URL of the webhook is needed")
}
