package reader

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/httpserver/admin"
	"kudos/reader/wire"
	"kudos/schema"
)

const (
	healthTimeout = 3 * time.Second // of all questions together
	healthFor     = 2 * time.Second // how long an answer is used again, since each asks many servers
)

// health has the last answer to /v1/health. Its lock makes concurrent requests share one.
type health struct {
	sync.Mutex
	last wire.Health
}

func (a *api) getHealth(q *request) (reply, error) {
	if err := q.refusal(); err != nil {
		return reply{}, err
	}
	a.health.Lock()
	defer a.health.Unlock()
	if now := a.now(); now.Sub(a.health.last.At) >= healthFor {
		// The answer is not only for this client, which may leave.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(q.Request.Context()), healthTimeout)
		defer cancel()
		a.health.last = a.askHealth(ctx)
		a.health.last.At = now.UTC()
	}
	return encode(q, []string{"no-store"}, a.health.last)
}

var userinfo = regexp.MustCompile(`://[^/?#"]*@`) // in URLs, which everybody sees

func (a *api) askHealth(ctx context.Context) wire.Health {
	h := wire.Health{Lanes: []wire.LaneStats{}, Transactions: []wire.OpenTransaction{},
		Processes: make([]wire.Process, len(a.options.AdminURLs))}
	var asked sync.WaitGroup
	for i, base := range a.options.AdminURLs {
		asked.Go(func() {
			answer, err := admin.Read(ctx, strings.TrimRight(base, "/")+"/readyz?verbose")
			h.Processes[i] = wire.Process{URL: userinfo.ReplaceAllString(base, "://***@"), Readiness: answer}
			if err != nil {
				h.Processes[i].Error = userinfo.ReplaceAllString(err.Error(), "://***@")
			}
		})
	}
	stable := a.askKafka(ctx, &h)
	addLane(&h, "counts", a.counts, stable)
	if a.reactions != nil {
		addLane(&h, "reactions", a.reactions, stable)
	}
	asked.Wait()
	return h
}

func addLane(h *wire.Health, name string, of lane, stable kadm.ListedOffsets) {
	list, err := laneStats(of)
	if err != nil {
		h.Errors = append(h.Errors, name+": "+err.Error())
	}
	for _, p := range list {
		stats := wire.LaneStats{Lane: name, PartitionStats: p, Lag: -1}
		if end, ok := stable.Lookup(schema.TopicLikes, p.AsOf.Partition); ok && end.Err == nil && p.Ready {
			stats.Lag = max(0, end.Offset-p.AsOf.Offset)
		}
		h.Lanes = append(h.Lanes, stats)
	}
}
