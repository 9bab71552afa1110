package reader

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

func TestHealthNamesWhatIsWrongWhere(t *testing.T) {
	asked := 0
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.RequestURI() != "/readyz?verbose" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"ready": false, "checks": [{"name": "processor", "ready": false, "error": "parked",
			"detail": [{"group": "like-count", "partitions": [{"cause": "loss", "action": "kudos rebuild"}]}]}]}`))
	}))
	defer process.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	secret := strings.Replace(gone.URL, "://", "://hunter2@", 1)
	r := newRig(t, func(o *Options) { o.AdminURLs = []string{process.URL + "/", secret} }, nil)
	now := time.Date(2026, 11, 27, 12, 3, 4, 0, time.UTC)
	r.now = func() time.Time { return now }
	stable := kadm.ListedOffsets{schema.TopicLikes: {0: {Offset: 15}, 1: {Offset: 20}}}
	audit := &schema.AuditResult{At: now, Differences: 3, Exit: 3}
	at := wire.Position{Partition: 2, Offset: 7}
	open := []wire.OpenTransaction{{Topic: schema.TopicCounts, Position: at, End: 9}}
	r.likes.set(func() {
		r.likes.mu.notReady[3] = &view.NotReadyError{Topic: schema.TopicCounts, Partition: 3, Behind: -1}
		r.likes.mu.stable, r.likes.mu.open, r.likes.mu.audit = stable, open, audit
		r.likes.mu.unknown = []string{"no coordinator"}
	})

	var h wire.Health
	a := r.get("/v1/health").Require(200).RequireHeader("Cache-Control", "no-store")
	require.NotContains(t, a.Body, "hunter2", "users in URLs are masked")
	a.Decode(&h)
	require.Equal(t, now, h.At)
	require.Len(t, h.Lanes, 8)
	require.Equal(t, wire.LaneStats{Lane: "counts", Lag: 5,
		PartitionStats: wire.PartitionStats{AsOf: wire.Position{Offset: 10}, Ready: true}}, h.Lanes[0])
	require.Zero(t, h.Lanes[1].Lag)
	require.EqualValues(t, -1, h.Lanes[2].Lag, "Kafka does not say where it ends")
	require.False(t, h.Lanes[3].Ready)
	require.Equal(t, "reactions", h.Lanes[4].Lane)
	require.Equal(t, open, h.Transactions)
	require.Equal(t, audit, h.Audit)
	require.Equal(t, []string{"no coordinator"}, h.Errors)

	require.False(t, h.Processes[0].Ready)
	require.Equal(t, "parked", h.Processes[0].Checks[0].Error)
	require.Contains(t, r.get("/v1/health").Body, `"action":"kudos rebuild"`)
	require.Equal(t, strings.Replace(gone.URL, "://", "://***@", 1), h.Processes[1].URL)
	require.Contains(t, h.Processes[1].Error, "connection refused")
	require.Equal(t, 1, asked, "a second request within 2 s gets the same answer")
	now = now.Add(healthFor)
	r.get("/v1/health").Require(200)
	require.Equal(t, 2, asked)
}

func TestHealthOfAnEmptySystem(t *testing.T) {
	r := newRig(t, nil, nil)
	r.reactions = nil
	r.likes.set(func() { r.likes.mu.partitions = errors.New("no topic yet") })
	var h wire.Health
	a := r.get("/v1/health").Require(200)
	a.Decode(&h)
	require.Equal(t, []string{"counts: no topic yet"}, h.Errors)
	require.Contains(t, a.Body, `"lanes":[],"processes":[],"transactions":[],"errors":`)
}
