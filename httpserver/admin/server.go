// Package admin is the HTTP server for operators that runs with every role: /livez (the process answers), /readyz (each
// check by name, and why it fails), /metrics (Prometheus) and, if enabled, /debug/pprof. It is not for users.
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

// Options configure the admin server.
type Options struct {
	// Addr is the host:port to listen on; port 0 picks a free one. There is no authentication, so keep it private.
	Addr            string        `mapstructure:"addr"`
	Profiles        bool          `mapstructure:"profiles"`         // enables /debug/pprof; a profile costs CPU time
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"` // of the responses in flight at shutdown
}

// DefaultOptions listen on loopback only.
func DefaultOptions() Options {
	return Options{Addr: "127.0.0.1:9090", ShutdownTimeout: 2 * time.Second}
}

// Validate returns everything that is wrong with the options.
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

// Limits of every request; constants, because no workload needs others.
const (
	answerTimeout  = 10 * time.Second // of probes and scrapes
	maxConnections = 64
	maxScrapes     = 4
)

// Server is an admin server. Create it with New, then call Run once.
type Server struct {
	opts Options
	log  *slog.Logger
	*httpserver.Server
}

// NewRegistry returns the registry of a process, with the collectors of the Go runtime and of the process.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return reg
}

// New returns a server for the registry's metrics and the checks. It does not listen yet.
func New(opts Options, reg *prometheus.Registry, checks []Check, log *slog.Logger) *Server {
	log = log.With("component", "admin")
	return &Server{opts, log, httpserver.NewServer(httpserver.Config{
		Name: "admin server", Key: "admin.addr", Addr: opts.Addr, ShutdownTimeout: opts.ShutdownTimeout,
		MaxIdleConns: maxConnections / 2, // the others are for probes and scrapes
		HTTP: &http.Server{
			Handler:           newHandler(opts, reg, checks),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      90 * time.Second, // allows a CPU profile of one minute
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    16 << 10,
		},
	}, log)}
}

// Run serves until ctx ends, then waits for the responses in flight, at most ShutdownTimeout. It logs responses that
// exceed it, such as a long profile, and returns nil.
func (s *Server) Run(ctx context.Context) error {
	ln, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	err = s.Serve(ctx, netutil.LimitListener(ln, maxConnections))
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests interrupted at shutdown", "after", s.opts.ShutdownTimeout.Round(time.Millisecond))
		return nil
	}
	return err
}
