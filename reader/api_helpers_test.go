package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/sql"
)

// patience bounds every wait of a test.
const patience = 20 * time.Second

// sharedPost is in two partitions.
const sharedPost = 77

var (
	_ likesCopy    = (*view.Likes)(nil)
	_ rankingsCopy = (*view.Rankings)(nil)
)

// fakeLikes is a copy of a state table of four partitions.
type fakeLikes struct {
	mu struct {
		sync.Mutex
		partitions  error // why their number is not known
		asOf        [4]int64
		notReady    [4]error
		counts      map[uint64]schema.Counts
		reactions   map[[2]uint64]view.Reaction
		likers      []view.Liker // of post 1
		noReactions bool
		lag         time.Duration
		lagKnown    bool
		moved       chan struct{} // closed when asOf moves
		waits       chan wire.Position
		beyondEnd   error // what CheckEnds returns
	}
}

func newFakeLikes() *fakeLikes {
	f := &fakeLikes{}
	f.mu.asOf = [4]int64{10, 20, 30, 40}
	f.mu.counts = map[uint64]schema.Counts{1: {Likes: 3, Dislikes: 1}, 2: {Likes: -1}, 1<<64 - 1: {Likes: 1 << 60}}
	f.mu.reactions = map[[2]uint64]view.Reaction{
		{1, 7}: {Reaction: schema.Liked, SinceMs: 1763719200123, Region: schema.Region{'D', 'E'}},
		{1, 8}: {Reaction: schema.Disliked, SinceMs: 1763719200000, Region: schema.UnknownRegion},
	}
	f.mu.moved = make(chan struct{})
	f.mu.waits = make(chan wire.Position, 100)
	return f
}

func (f *fakeLikes) partition(post uint64) int32 { return schema.PartitionFor(post, 4) }

func (f *fakeLikes) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.mu.moved)
	f.mu.moved = make(chan struct{})
}

func (f *fakeLikes) Partitions() (int32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 4, f.mu.partitions
}

func (f *fakeLikes) Homes(post uint64) ([]int32, error) {
	_, err := f.Partitions()
	if post == sharedPost {
		return []int32{1, 3}, err
	}
	return []int32{f.partition(post)}, err
}

func (f *fakeLikes) HomesOfUser(post, user uint64) ([]int32, error) {
	homes, err := f.Homes(post)
	return homes[user%uint64(len(homes)):][:1], err
}

func (f *fakeLikes) AsOf(partition int32) (wire.Position, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return wire.Position{Partition: partition, Offset: f.mu.asOf[partition]}, f.mu.notReady[partition]
}

func (f *fakeLikes) Wait(ctx context.Context, want wire.Position) error {
	select {
	case f.mu.waits <- want:
	default: // nobody looks
	}
	for {
		f.mu.Lock()
		moved, there := f.mu.moved, f.mu.asOf[want.Partition] >= want.Offset && f.mu.notReady[want.Partition] == nil
		f.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeLikes) CheckEnds(context.Context, []wire.Position) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.beyondEnd
}

func (f *fakeLikes) Counts(posts []uint64) (counts []schema.Counts, asOf []wire.Position, err error) {
	var concerned [4]bool
	for _, post := range posts {
		homes, err := f.Homes(post)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range homes {
			concerned[p] = true
		}
		f.mu.Lock()
		counts = append(counts, f.mu.counts[post])
		f.mu.Unlock()
	}
	for p := range int32(4) {
		if concerned[p] {
			at, err := f.AsOf(p)
			if err != nil {
				return nil, nil, err
			}
			asOf = append(asOf, at)
		}
	}
	return counts, asOf, nil
}

func (f *fakeLikes) Reaction(post, user uint64) (view.Reaction, wire.Position, error) {
	at, err := f.AsOf(f.partition(post))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.noReactions {
		err = view.ErrNoReactions
	}
	return f.mu.reactions[[2]uint64{post, user}], at, err
}

func (f *fakeLikes) Likers(post, after uint64, limit int) (page []view.Liker, next uint64, asOf wire.Position, err error) {
	asOf, err = f.AsOf(f.partition(post))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.noReactions {
		return nil, 0, asOf, view.ErrNoReactions
	}
	for _, l := range f.mu.likers {
		if post != 1 || l.UserID <= after {
			continue
		}
		if len(page) == limit {
			return page, page[limit-1].UserID, asOf, err
		}
		page = append(page, l)
	}
	return page, 0, asOf, err
}

func (f *fakeLikes) Totals() view.Totals { return view.Totals{Posts: 3, Likes: 5, Dislikes: 1} }

func (f *fakeLikes) Lag() (int64, time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 12, f.mu.lag, f.mu.lagKnown
}

type fakeRankings struct {
	err  error
	list []*view.Ranking
}

func (f *fakeRankings) Get(region, window string) (*view.Ranking, error) {
	for _, r := range f.list {
		if r.Region == region && r.Window == window {
			return r, f.err
		}
	}
	return nil, f.err
}

func (f *fakeRankings) List() ([]*view.Ranking, error) { return f.list, f.err }

type fakeHistory func(ctx context.Context, region schema.Region, from, to time.Time) ([]sql.HourLikes, error)

func (f fakeHistory) LikesByHour(ctx context.Context, region schema.Region, from, to time.Time) ([]sql.HourLikes, error) {
	return f(ctx, region, from, to)
}

// rig is an API on fakes. Every request and answer is held against openapi.yaml.
type rig struct {
	*api
	t        testing.TB
	likes    *fakeLikes
	rankings *fakeRankings
	metrics  *prometheus.Registry
	logged   *bytes.Buffer
	doc      *openapi3.T
	router   routers.Router
}

func newRig(t testing.TB, change func(*Options), h history) *rig {
	t.Helper()
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	require.NoError(t, o.Validate())
	r := &rig{t: t, likes: newFakeLikes(), rankings: &fakeRankings{}, metrics: prometheus.NewRegistry(), logged: &bytes.Buffer{}}
	var err error
	r.api, err = newAPI(o, r.likes, r.rankings, h, slog.New(slog.NewTextHandler(r.logged, nil)), r.metrics)
	require.NoError(t, err)
	r.doc, err = openapi3.NewLoader().LoadFromData([]byte(document))
	require.NoError(t, err)
	r.router, err = legacy.NewRouter(r.doc)
	require.NoError(t, err)
	return r
}

// answered is what a request was answered.
type answered struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

// ask sends a request; headers come as pairs.
func (r *rig) ask(method, target, body string, headers ...string) answered {
	r.t.Helper()
	return r.askWithin(context.Background(), method, target, body, headers...)
}

func (r *rig) get(target string, headers ...string) answered {
	r.t.Helper()
	return r.ask(http.MethodGet, target, "", headers...)
}

func (r *rig) post(target, body string) answered {
	r.t.Helper()
	return r.ask(http.MethodPost, target, body, "Content-Type", "application/json")
}

func (r *rig) askWithin(ctx context.Context, method, target, body string, headers ...string) answered {
	r.t.Helper()
	req := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	a := answered{r.t, w.Code, w.Header(), w.Body.String()}
	r.hold(method, target, body, req.Header, a)
	return a
}

// hold holds an exchange against the document. A request that is refused as not valid
// may break it, any other must not.
func (r *rig) hold(method, target, body string, header http.Header, a answered) {
	r.t.Helper()
	if method == http.MethodHead {
		method = http.MethodGet
	}
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Header = header.Clone()
	route, params, err := r.router.FindRoute(req)
	if err != nil || strings.Contains(a.body, "urn:kudos:problem:not-found") { // the router takes a / more for the same path
		require.Contains(r.t, []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNoContent}, a.status, "%s %s is not in the document: %v", method, target, err)
		if a.status != http.StatusNoContent {
			r.holdProblem(a)
		}
		return
	}
	options := &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true, SkipSettingDefaults: true}
	asked := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: options}
	if err := openapi3filter.ValidateRequest(context.Background(), asked); err != nil {
		require.Contains(r.t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusRequestTimeout, http.StatusTooManyRequests}, a.status,
			"%s %s breaks the document, and was answered: %v", method, target, err)
	}
	require.NoError(r.t, openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: asked, Status: a.status, Header: a.header, Options: options,
		Body: io.NopCloser(strings.NewReader(a.body)),
	}), "%s %s was answered %d: %s", method, target, a.status, a.body)
	if a.status >= 400 {
		r.holdProblem(a)
	}
}

func (r *rig) holdProblem(a answered) {
	r.t.Helper()
	require.Equal(r.t, "application/problem+json", a.header.Get("Content-Type"))
	require.Equal(r.t, "no-store", a.header.Get("Cache-Control"))
	var value map[string]any
	a.decode(&value)
	require.NoError(r.t, r.doc.Components.Schemas["Problem"].Value.VisitJSON(value), a.body)
	require.EqualValues(r.t, a.status, value["status"])
	kind := strings.TrimPrefix(value["type"].(string), "urn:kudos:problem:")
	require.Contains(r.t, r.doc.Components.Schemas["Problem"].Value.Description, kind, "the document lists the types")
	again := a.status == http.StatusTooManyRequests || (a.status == http.StatusServiceUnavailable && kind != "no-mysql")
	require.Equal(r.t, again, a.header.Get("Retry-After") != "", "Retry-After of %s", kind)
}

func (a answered) decode(into any) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal([]byte(a.body), into), a.body)
}

func (a answered) requireJSON(status int, want string) answered {
	a.t.Helper()
	require.Equal(a.t, status, a.status, a.body)
	require.JSONEq(a.t, want, a.body)
	return a
}

// requireInvalid wants a 400 with one error.
func (a answered) requireInvalid(field, reason, detail string) {
	a.t.Helper()
	require.Equal(a.t, http.StatusBadRequest, a.status, a.body)
	var got struct {
		Type   string
		Errors []struct{ Field, Reason, Detail string }
	}
	a.decode(&got)
	require.Equal(a.t, "urn:kudos:problem:invalid-request", got.Type)
	require.Len(a.t, got.Errors, 1, a.body)
	require.Equal(a.t, struct{ Field, Reason, Detail string }{field, reason, detail}, got.Errors[0])
}

// requireProblem wants a problem, and returns its detail.
func (a answered) requireProblem(status int, kind string) string {
	a.t.Helper()
	require.Equal(a.t, status, a.status, a.body)
	var got struct{ Type, Detail string }
	a.decode(&got)
	require.Equal(a.t, "urn:kudos:problem:"+kind, got.Type, a.body)
	return got.Detail
}

// metric is the value of a counter, or how often a histogram was observed; labels as pairs.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(r.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			fits := f.GetName() == name
			for i := 0; i < len(labels); i += 2 {
				fits = fits && have[labels[i]] == labels[i+1]
			}
			if fits && m.GetHistogram() != nil {
				return float64(m.GetHistogram().GetSampleCount())
			}
			if fits {
				return m.GetCounter().GetValue()
			}
		}
	}
	require.Fail(r.t, "no metric", "%s%v", name, labels)
	return 0
}
