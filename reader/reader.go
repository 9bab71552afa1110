package reader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kudos/httpserver"
	"kudos/httpserver/origin"
	"kudos/reader/dashboard"
	"kudos/reader/live"
	"kudos/reader/view"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Reader is the role.
type Reader struct {
	options  Options
	db       *sql.Shards // nil: no likes over time
	log      *slog.Logger
	likes    *view.Likes
	rankings *view.Rankings
	hub      *live.Hub
	handler  http.Handler

	stopping    atomic.Bool
	certificate *httpserver.Certificate // nil: plain HTTP
	*httpserver.Point
}

// New makes a reader; it does no I/O. Without a database it does not answer likes over
// time. The metrics are registered with reg.
func New(o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer) (*Reader, error) {
	if err := errors.Join(o.Validate(), kafka.Validate()); err != nil {
		return nil, fmt.Errorf("reader options: %w", err)
	}
	log = log.With("role", "reader")
	views := view.Options{StateDir: o.StateDir, CacheBytes: o.CacheBytes, Reactions: o.Reactions}
	r := &Reader{
		options: o, db: db, log: log, Point: httpserver.NewPoint("reader", "reader.http_addr", o.HTTPAddr),
		certificate: httpserver.NewCertificate("reader", o.TLSCert, o.TLSKey, log),
		likes:       view.NewLikes(views, kafka, log), rankings: view.NewRankings(views, kafka, log),
	}
	var h history
	if db != nil {
		h = db
	}
	api, err := newAPI(o, r.likes, r.rankings, h, log, reg)
	if err != nil {
		return nil, err
	}
	r.hub, err = live.New(live.Options{
		MaxStreams: o.MaxStreams, MaxPosts: maxStreamPosts, Interval: o.LiveInterval,
		Heartbeat: o.HeartbeatInterval, WriteTimeout: o.StreamWriteTimeout, Origins: o.Origins,
	}, r.likes, r.rankings, log, reg)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(reg.Register(newViewCollector(r.likes)), reg.Register(r.likes.Sizes())); err != nil {
		return nil, fmt.Errorf("registering the metrics of the local copies: %w", err)
	}
	r.handler = routes(o, api, r.hub)
	return r, nil
}

// maxHeaderBytes has room for the longest query: 1,000 ids with as many places.
const maxHeaderBytes = 128 << 10

// maxStreamPosts is how many posts one stream may show: a page full of them.
const maxStreamPosts = 100

func routes(o Options, api, hub http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/v1/stream", origin.Access{
		Origins: o.Origins,
		Methods: []string{http.MethodGet},
		Headers: []string{"Last-Event-ID"},
		Exposed: []string{"Retry-After"},
	}.Handler(hub))
	if o.Dashboard {
		page := dashboard.Handler(dashboard.Settings{ProducerURL: o.ProducerURL})
		mux.Handle("/{$}", page)
		mux.Handle("/assets/", page)
		mux.Handle("/dashboard.json", page)
	}
	return mux
}

// Handler serves everything, for a server of the caller's own; while Run runs.
func (r *Reader) Handler() http.Handler { return r.handler }

// Ready is nil when everything can be read, and otherwise says what cannot, and how far
// it is.
func (r *Reader) Ready() error {
	if r.stopping.Load() {
		return errors.New("reader: shutting down")
	}
	return errors.Join(r.likes.Ready(), r.rankings.Ready())
}

// Run listens and serves.
func (r *Reader) Run(ctx context.Context) error {
	ln, err := r.Listen(ctx)
	if err != nil {
		return err
	}
	return r.Serve(ctx, ln)
}

// Serve serves on a listener until ctx ends or something fails for good. Then it closes
// the streams, lets the requests in hand end, within ShutdownTimeout, and leaves nothing
// running. Serve, or Run, once.
func (r *Reader) Serve(ctx context.Context, ln net.Listener) error {
	if err := r.Begin(); err != nil {
		return errors.Join(err, ln.Close())
	}
	server := &http.Server{
		Handler:        r.handler,
		ReadTimeout:    r.options.ReadTimeout,
		WriteTimeout:   r.options.WriteTimeout,
		IdleTimeout:    r.options.IdleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
	}
	if err := r.certificate.Load(server); err != nil {
		return errors.Join(err, ln.Close())
	}
	r.Tell(ln)
	r.log.Info("answering", "addr", r.Addr()) // benchmarks find it by this (package bench)
	// The copies outlive the requests that read them.
	copies, close := context.WithCancel(context.WithoutCancel(ctx))
	defer close()
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return r.likes.Run(copies) })
	g.Go(func() error { return r.rankings.Run(copies) })
	g.Go(func() error { return r.hub.Run(running) })
	g.Go(func() error { r.certificate.Watch(running); return nil })
	if r.db != nil {
		g.Go(func() error { return r.db.CheckShards(running) })
	}
	g.Go(func() error {
		if err := r.certificate.Serve(server, ln); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("reader: serving on %s: %w", r.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		<-running.Done()
		defer close()
		return r.shutdown(ctx, server)
	})
	return g.Wait()
}

// shutdown has a deadline apart from ctx, which has ended.
func (r *Reader) shutdown(ctx context.Context, server *http.Server) error {
	r.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return fmt.Errorf("reader: requests were cut off after %s: %w", r.options.ShutdownTimeout, errors.Join(err, server.Close()))
	}
	return nil
}
