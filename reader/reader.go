// Package reader serves reads over HTTP: counts, who likes what, rankings and history, all of it also live
// (openapi.yaml describes the API).
//
// It keeps local views of the state table and of the topic trending, and queries MySQL only for likes over time. Each
// response names the position in the log that it reflects, exactly.
//
//	latest-like-action-table ─► view.Reactions ──► API (likers, reactions)
//	like-counts ──────────────► view.Counts ─────┬─► API (counts)
//	trending ─────────────────► view.Rankings ───┼─► API (rankings)
//	                                             └─► live.Hub ─► SSE, WebSocket ─► dashboard
//	MySQL like_hourly ──────────────────────────────► API (likes over time)
package reader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"kudos/httpserver"
	"kudos/reader/dashboard"
	"kudos/reader/live"
	"kudos/reader/view"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Reader is the reader role.
type Reader struct {
	likes    *view.Likes
	rankings *view.Rankings
	*httpserver.Server
}

// New does no I/O. Without a database, likes over time are not available. The metrics are registered with reg.
func New(o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer) (*Reader, error) {
	if err := errors.Join(o.Validate(), kafka.Validate()); err != nil {
		return nil, fmt.Errorf("reader options: %w", err)
	}
	log = log.With("role", "reader")
	views := view.Options{StateDir: o.StateDir, CacheBytes: o.CacheBytes, Reactions: o.Reactions,
		History: o.History, Share: view.Share{Replicas: o.Replicas, Address: o.AdvertisedURL, Zone: o.Zone,
			SessionTimeout: o.SessionTimeout}}
	r := &Reader{likes: view.NewLikes(views, kafka, log), rankings: view.NewRankings(views, kafka, log)}
	var h history
	var run []func(context.Context) error
	if db != nil {
		h, run = db.LikesByHour, append(run, db.CheckShards)
	}
	likes := lanes{counts: r.likes.Counts, checkEnds: r.likes.CheckEnds, ends: r.likes.Ends,
		askKafka: r.likes.AskKafka}
	if r.likes.Reactions != nil {
		likes.reactions = r.likes.Reactions
	}
	api, err := newAPI(o, likes, r.rankings, h, log, reg)
	if err != nil {
		return nil, err
	}
	if o.Replicas > 0 {
		api.peers = newPeers(o, r.likes.Reactions.Holders)
	}
	if r.likes.History != nil {
		api.posts = r.likes.History
	}
	viewed := api.viewed
	if likes.reactions == nil {
		viewed = nil
	}
	hub, err := live.New(live.Options{
		Slots: httpserver.NewSlots(o.MaxStreams, "open live streams", "reader.max_streams", "streams",
			api.metrics.refused),
		ClientOf: api.proxies.ClientOf, MaxPosts: maxStreamPosts, Interval: o.LiveInterval,
		Heartbeat: o.HeartbeatInterval, WriteTimeout: o.StreamWriteTimeout, Origins: o.Origins,
		Reactions: viewed,
	}, r.likes.Counts, r.rankings, log, reg)
	if err != nil {
		return nil, err
	}
	for _, c := range append(r.likes.Collectors(), viewCollector{r.likes}, r.rankings.Collector()) {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of the views: %w", err)
		}
	}
	var fast func(net.Listener) net.Listener
	if len(o.Origins) == 0 { // otherwise responses depend on more headers
		fast = func(l net.Listener) net.Listener { return fastListener{l, api, r.HTTP, &sync.Map{}} }
	}
	r.Server = httpserver.NewServer(httpserver.Config{
		Name: "reader", Key: "reader.http_addr", Addr: o.HTTPAddr, TLSCert: o.TLSCert, TLSKey: o.TLSKey,
		HTTP: &http.Server{Handler: routes(o, api, hub), MaxHeaderBytes: maxHeaderBytes, ReadTimeout: o.ReadTimeout,
			WriteTimeout: o.WriteTimeout, IdleTimeout: o.IdleTimeout},
		Listener: fast, ShutdownTimeout: o.ShutdownTimeout,
		// The views outlive the requests that read them.
		Work: httpserver.Work{Run: append(run, hub.Run),
			Outlive: []func(context.Context) error{r.likes.Run, r.rankings.Run}},
	}, log)
	return r, nil
}

const (
	maxHeaderBytes = 128 << 10 // enough for the longest query: 1,000 ids with as many offsets
	maxStreamPosts = 100       // in one stream: a page full of them
)

func routes(o Options, api *api, hub http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle(peerPath, api.peer)
	mux.Handle("/v1/stream", httpserver.CORS{Origins: o.Origins, Methods: []string{http.MethodGet},
		Headers: []string{"Last-Event-ID"}, Exposed: []string{"Retry-After"}}.Handler(hub))
	if o.Dashboard {
		page := dashboard.Handler(dashboard.Settings{ProducerURL: o.ProducerURL, PostURL: o.PostURL,
			TitleURL: o.TitleURL, GrafanaURL: o.GrafanaURL})
		mux.Handle("/{$}", page)
		mux.Handle("/assets/", page)
		mux.Handle("/dashboard.json", page)
	}
	return mux
}

// Ready returns nil when everything can be read. Otherwise the error says what cannot, and how far it is.
func (r *Reader) Ready() error {
	if err := r.Server.Ready(); err != nil {
		return err
	}
	return errors.Join(r.likes.Ready(), r.rankings.Ready()) // history is not waited for
}

// viewCollector exports the lanes as metrics.
type viewCollector struct{ likes *view.Likes }

func viewDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kudos_reader_"+name, help, labels, nil)
}

var (
	viewReady    = viewDesc("partition_ready", "1 if the lane of the partition is ready, else 0.", "lane", "partition")
	viewPosition = viewDesc("position",
		"Offset in likes that the responses from a lane of a partition reflect.", "lane", "partition")
	viewBehind = viewDesc("behind_records",
		"Records of its topic that a lane of a partition is behind while it is not ready; 0 once it is.",
		"lane", "partition")
	viewEvents = viewDesc("lag_events", "Events in likes that are not in the lane yet.", "lane")
	viewLag    = viewDesc("lag_seconds", "Seconds that the lane is behind likes, at most.", "lane")
	viewPosts  = viewDesc("posts", "Posts with a current reaction.")
)

func (c viewCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{viewReady, viewPosition, viewBehind, viewEvents, viewLag, viewPosts} {
		ch <- d
	}
}

func (c viewCollector) Collect(ch chan<- prometheus.Metric) {
	c.collect(ch, "counts", c.likes.Counts.Lane)
	if c.likes.Reactions != nil {
		c.collect(ch, "reactions", c.likes.Reactions.Lane)
	}
	ch <- prometheus.MustNewConstMetric(viewPosts, prometheus.GaugeValue, float64(c.likes.Counts.Totals().Posts))
}

func (c viewCollector) collect(ch chan<- prometheus.Metric, lane string, of *view.Lane) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{lane}, labels...)...)
	}
	n, _ := of.Partitions() // 0 while not known
	for p := range n {
		partition := strconv.Itoa(int(p))
		asOf, err := of.AsOf(p)
		var notReady *view.NotReadyError
		switch {
		case err == nil:
			gauge(viewReady, 1, partition)
			gauge(viewBehind, 0, partition)
			gauge(viewPosition, float64(asOf.Offset), partition)
		case errors.As(err, &notReady):
			gauge(viewReady, 0, partition)
			if notReady.Behind >= 0 {
				gauge(viewBehind, float64(notReady.Behind), partition)
			}
		}
	}
	if events, behind, _, known := of.Lag(); known {
		gauge(viewEvents, float64(events))
		gauge(viewLag, behind.Seconds())
	}
}
