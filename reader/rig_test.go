package reader

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

const (
	patience = testkit.Patience

	likesOf1 = "/v1/posts/1/likes"
	byBody   = "/v1/likes:get"
	overTime = "/v1/analytics/likes"
)

// rig is an API on fakes. Every request and response is validated against openapi.yaml.
type rig struct {
	*api
	*apikit.Role // for its metrics; it does not run
	likes        *fakeLikes
	rankings     *fakeRankings
	logged       *bytes.Buffer
	doc          *apikit.Document
}

func newRig(t testing.TB, change func(*Options), h history) *rig {
	t.Helper()
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	require.NoError(t, o.Validate())
	r := &rig{
		Role: apikit.NewRole(t), likes: newFakeLikes(), rankings: &fakeRankings{}, logged: &bytes.Buffer{},
		doc: apikit.LoadDocument(t, document),
	}
	var err error
	r.api, err = newAPI(o, lanes{r.likes, r.likes, r.likes.CheckEnds, r.likes.Ends, r.likes.AskKafka}, r.rankings, h,
		slog.New(slog.NewTextHandler(r.logged, nil)), r.Metrics)
	require.NoError(t, err)
	return r
}

// ask sends a request; headers come as pairs.
func (r *rig) ask(method, target, body string, headers ...string) apikit.Answer {
	r.T.Helper()
	return r.askWithin(context.Background(), method, target, strings.NewReader(body), headers...)
}

func (r *rig) get(target string, headers ...string) apikit.Answer {
	r.T.Helper()
	return r.ask(http.MethodGet, target, "", headers...)
}

// getGone is get by a client that has disconnected.
func (r *rig) getGone(target string) apikit.Answer {
	r.T.Helper()
	return r.askWithin(testkit.Canceled(), http.MethodGet, target, http.NoBody)
}

func (r *rig) post(target, body string) apikit.Answer {
	r.T.Helper()
	return r.ask(http.MethodPost, target, body, "Content-Type", "application/json")
}

func (r *rig) askWithin(ctx context.Context, method, target string, body io.Reader, headers ...string) apikit.Answer {
	r.T.Helper()
	var sent strings.Builder
	req := httptest.NewRequestWithContext(ctx, method, target, io.TeeReader(body, &sent))
	apikit.SetHeaders(req, headers)
	a := apikit.Ask(r.T, r.api, req)
	r.hold(method, target, sent.String(), req.Header, a)
	return a
}

// hold validates an exchange against the document. Only a request that is rejected as invalid may violate it.
func (r *rig) hold(method, target, body string, header http.Header, a apikit.Answer) {
	r.T.Helper()
	var broken error
	found := false
	// The router ignores an additional /.
	if !strings.Contains(a.Body, "urn:kudos:problem:not-found") {
		broken, found = r.doc.Hold(a, method, target, body, header)
	}
	switch {
	case !found:
		require.Contains(r.T, []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNoContent}, a.Status,
			"%s %s is not in the document: %v", method, target, broken)
	case broken != nil:
		require.Contains(r.T, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusRequestTimeout, http.StatusTooManyRequests}, a.Status,
			"%s %s violates the document but was accepted: %v", method, target, broken)
	}
	if a.Status >= 400 {
		r.holdProblem(a)
	}
}

func (r *rig) holdProblem(a apikit.Answer) {
	r.T.Helper()
	a.RequireHeader("Content-Type", "application/problem+json").RequireHeader("Cache-Control", "no-store")
	var value map[string]any
	a.Decode(&value)
	problem := r.doc.Components.Schemas["Problem"].Value
	require.NoError(r.T, problem.VisitJSON(value), a.Body)
	require.EqualValues(r.T, a.Status, value["status"])
	kind := strings.TrimPrefix(value["type"].(string), "urn:kudos:problem:")
	require.Contains(r.T, problem.Description, kind, "the document lists the types")
	again := ""
	if a.Status == http.StatusTooManyRequests || (a.Status == 503 && kind != "no-mysql") {
		again = "1"
	}
	a.RequireHeader("Retry-After", again)
}

const sharedPost = 77 // is in two partitions

// fakeLikes is a view of a state table of four partitions. A post is in partition id mod 4.
type fakeLikes struct {
	beforeLook func() // called before each read with a position
	mu         struct {
		sync.Mutex
		partitions error    // why the number is unknown
		asOf       [5]int64 // the last one may be added
		notReady   [5]error
		counts     map[uint64]schema.Counts
		reactions  map[[2]uint64]view.Reaction
		likers     []wire.Liker // of post 1
		lag        time.Duration
		lagKnown   bool
		hiding     []wire.OpenTransaction
		moved      chan struct{} // closed when asOf moves
		waits      chan wire.Position
		beyondEnd  error // what CheckEnds returns
		count      int32 // of partitions
		inKafka    int
		looked     int // at the number of partitions
		ends       [5]int64
		layout     uint32
		holders    []string // of each partition

		stable  kadm.ListedOffsets
		open    []wire.OpenTransaction
		audit   *schema.AuditResult
		unknown []string
	}
}

func newFakeLikes() *fakeLikes {
	f := &fakeLikes{beforeLook: func() {}}
	f.mu.asOf = [5]int64{10, 20, 30, 40, 50}
	f.mu.count, f.mu.inKafka = 4, 4
	f.mu.counts = map[uint64]schema.Counts{1: {Likes: 3, Dislikes: 1}, 2: {Likes: -1}, 1<<64 - 1: {Likes: 1 << 60}}
	f.mu.reactions = map[[2]uint64]view.Reaction{
		{1, 7}: {Reaction: schema.Liked, SinceMs: 1763719200123, Region: schema.Region{'D', 'E'}},
		{1, 8}: {Reaction: schema.Disliked, SinceMs: 1763719200000, Region: schema.UnknownRegion},
	}
	f.mu.moved = make(chan struct{})
	f.mu.waits = make(chan wire.Position, 100)
	return f
}

func (f *fakeLikes) partition(post uint64) int32 { return int32(post % 4) }

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
	f.mu.looked++
	return f.mu.count, f.mu.partitions
}

func (f *fakeLikes) PartitionsOf(post uint64) ([]int32, error) {
	_, err := f.Partitions()
	if post == sharedPost {
		return []int32{1, 3}, err
	}
	return []int32{f.partition(post)}, err
}

func (f *fakeLikes) PartitionsOfUser(post, user uint64) ([]int32, error) {
	owners, err := f.PartitionsOf(post)
	return owners[user%uint64(len(owners)):][:1], err
}

func (f *fakeLikes) AsOf(partition int32) (wire.Position, error) {
	f.beforeLook()
	return f.asOf(partition)
}

func (f *fakeLikes) asOf(partition int32) (wire.Position, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return wire.Position{Partition: partition, Offset: f.mu.asOf[partition]}, f.mu.notReady[partition]
}

func (f *fakeLikes) Wait(ctx context.Context, want wire.Position) error {
	select {
	case f.mu.waits <- want:
	default: // nobody reads it
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

func (f *fakeLikes) CheckEnds(_ context.Context, want []wire.Position) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range want {
		if int(p.Partition) >= f.mu.inKafka {
			return &view.BeyondEndError{Want: p, Partitions: f.mu.inKafka}
		}
	}
	return f.mu.beyondEnd
}

func (f *fakeLikes) Ends(_ context.Context, partitions []int32) (ends []wire.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range partitions {
		if end := f.mu.ends[p]; end > 0 {
			ends = append(ends, wire.Position{Partition: p, Offset: end})
		}
	}
	return ends
}

func (f *fakeLikes) AskKafka(_ context.Context, h *wire.Health) kadm.ListedOffsets {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.Transactions, h.Audit, h.Errors = append(h.Transactions, f.mu.open...), f.mu.audit, f.mu.unknown
	return f.mu.stable
}

func (f *fakeLikes) Counts(posts []uint64) (counts []schema.Counts, asOf []wire.Position, err error) {
	f.beforeLook()
	var partitions []int32
	for _, post := range posts {
		owners, err := f.PartitionsOf(post)
		if err != nil {
			return nil, nil, err
		}
		partitions = append(partitions, owners...)
		f.mu.Lock()
		counts = append(counts, f.mu.counts[post])
		f.mu.Unlock()
	}
	slices.Sort(partitions)
	for _, p := range slices.Compact(partitions) {
		at, err := f.asOf(p)
		if err != nil {
			return nil, nil, err
		}
		asOf = append(asOf, at)
	}
	return counts, asOf, nil
}

func (f *fakeLikes) Layout() view.Layout {
	f.mu.Lock()
	defer f.mu.Unlock()
	return view.Layout{Number: f.mu.layout}
}

func (f *fakeLikes) AwaitLayout(_ context.Context, _ int32, want view.Layout) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if want.Number > f.mu.layout {
		return context.DeadlineExceeded
	}
	return nil
}

func (f *fakeLikes) Holders(int32) (addresses []string, generation int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.holders, 7
}

func (f *fakeLikes) Of(partition int32, user uint64, posts []uint64) (
	list []view.Reaction, asOf wire.Position, err error,
) {
	f.beforeLook()
	asOf, err = f.asOf(partition)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, post := range posts {
		list = append(list, f.mu.reactions[[2]uint64{post, user}])
	}
	return list, asOf, err
}

func (f *fakeLikes) Likers(
	partition int32, post, after uint64, limit int,
) (page view.Page, asOf wire.Position, err error) {
	f.beforeLook()
	asOf, err = f.asOf(partition)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.mu.likers {
		if post != 1 || l.UserID <= after {
			continue
		}
		if len(page.Likers) == limit {
			page.Next = page.Likers[limit-1].UserID
			return page, asOf, err
		}
		page.Likers = append(page.Likers, l)
	}
	return page, asOf, err
}

func (f *fakeLikes) Totals() view.Totals { return view.Totals{Posts: 3, Likes: 5, Dislikes: 1} }

func (f *fakeLikes) Open() []wire.OpenTransaction {
	return append([]wire.OpenTransaction{}, f.mu.hiding...)
}

func (f *fakeLikes) Lag() (int64, time.Duration, []wire.OpenTransaction, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 12, f.mu.lag, f.mu.hiding, f.mu.lagKnown
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

// move adds an event to each partition. What is read then reflects the offset of that event.
func (f *fakeLikes) move() {
	f.set(func() {
		for p := range f.mu.asOf {
			f.mu.asOf[p]++
		}
		at := func(post uint64) int64 { return f.mu.asOf[f.partition(post)] }
		for post := range uint64(10) {
			f.mu.counts[post] = schema.Counts{Likes: at(post), Dislikes: -at(post)}
		}
		reaction := view.Reaction{Reaction: schema.Liked, SinceMs: at(1), Region: schema.UnknownRegion}
		f.mu.reactions[[2]uint64{1, 7}] = reaction
		f.mu.likers = []wire.Liker{{UserID: 7, Since: wire.Millis(at(1)), Region: "ZZ"}}
	})
}
