// Package admin is the HTTP server beside every role, for those who operate it. In
// come probes, scrapes and profile requests; out go /livez (the process answers),
// /readyz (each check by name, and why it fails), /metrics (Prometheus) and
// /debug/pprof if that is wanted. Nothing here belongs to a role, and no user of the service sees it.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/netutil"

	"kudos/httpserver"
)

// Server is one admin server. Make it with New, then Run it once.
type Server struct {
	opts Options
	log  *slog.Logger
	http *http.Server
	*httpserver.Point
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

// New makes a server that serves the registry's metrics and the checks. It does not
// listen yet.
func New(opts Options, reg *prometheus.Registry, checks []Check, log *slog.Logger) *Server {
	log = log.With("component", "admin")
	return &Server{
		opts:  opts,
		log:   log,
		Point: httpserver.NewPoint("admin server", "admin.addr", opts.Addr),
		http: &http.Server{
			Handler:           newHandler(opts, reg, checks),
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
	}
}

// Run serves until ctx ends, and then finishes the answers in hand.
func (s *Server) Run(ctx context.Context) error {
	l, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	if err := s.Begin(); err != nil {
		return errors.Join(err, l.Close())
	}
	s.Tell(l)
	s.log.Info("listening", "addr", s.Addr())

	served := make(chan error, 1)
	go func() { served <- s.http.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-served:
		return fmt.Errorf("admin server on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	err = s.shutdown(ctx)
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// shutdown lets answers in hand finish, but no longer than the timeout: a profile
// that is still being taken is no reason to stay.
func (s *Server) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.ShutdownTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests cut off at shutdown", "after", s.opts.ShutdownTimeout.Round(time.Millisecond))
		err = s.http.Close()
	}
	if err != nil {
		return fmt.Errorf("stop admin server on %s: %w", s.Addr(), err)
	}
	return nil
}
