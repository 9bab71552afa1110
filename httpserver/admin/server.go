// Package admin is the HTTP server beside every role, for those who operate it: /livez (the process answers), /readyz
// (each check by name, and why it fails), /metrics (Prometheus) and, on request, /debug/pprof. Nothing here belongs to
// a role, and no user of the service sees it.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/netutil"

	"kudos/httpserver"
)

// Options of the admin server.
type Options struct {
	// Addr is where it listens, host:port; port 0 takes a free one. There is no authentication, so it belongs on a
	// private address.
	Addr string `mapstructure:"addr"`
	// Profiles: /debug/pprof is served. A profile costs CPU time for as long as it is taken.
	Profiles bool `mapstructure:"profiles"`
	// ShutdownTimeout bounds the answers in flight when it stops.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// DefaultOptions listen on this machine only.
func DefaultOptions() Options {
	return Options{Addr: "127.0.0.1:9090", ShutdownTimeout: 2 * time.Second}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		errs = append(errs, fmt.Errorf("admin.addr: %q is not host:port: %w", o.Addr, err))
	}
	if o.ShutdownTimeout <= 0 {
		errs = append(errs, errors.New("admin.shutdown_timeout: must be above zero"))
	}
	return errors.Join(errs...)
}

// Limits of every request. Constants: no workload asks for others.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 90 * time.Second // a CPU profile of a minute
	idleTimeout       = time.Minute
	answerTimeout     = 10 * time.Second // of probes and a scrape
	maxHeaderBytes    = 16 << 10
	maxConnections    = 64
	maxScrapes        = 4
)

// Server is one admin server. Make it with New, then Run it once.
type Server struct {
	opts Options
	log  *slog.Logger
	*httpserver.Server
}

// NewRegistry returns the registry that a process gives to its roles and to its
// admin server; it has the collectors of the Go runtime and of the process.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return reg
}

// New makes a server that serves the registry's metrics and the checks. It does not listen yet.
func New(opts Options, reg *prometheus.Registry, checks []Check, log *slog.Logger) *Server {
	log = log.With("component", "admin")
	return &Server{opts, log, httpserver.NewServer(httpserver.Config{
		Name: "admin server", Key: "admin.addr", Addr: opts.Addr, Says: "listening",
		ShutdownTimeout: opts.ShutdownTimeout,
		HTTP: &http.Server{
			Handler:           newHandler(opts, reg, checks),
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
		},
	}, log)}
}

// Run serves until ctx ends, and then finishes the answers in flight, but waits no longer than the timeout for them: a
// profile that is still being taken is no reason to stay.
func (s *Server) Run(ctx context.Context) error {
	ln, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	err = s.Serve(ctx, netutil.LimitListener(ln, maxConnections), httpserver.Work{})
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests cut off at shutdown", "after", s.opts.ShutdownTimeout.Round(time.Millisecond))
		return nil
	}
	return err
}
