// Package httpserver has what the HTTP servers of the roles and the admin server share.
//
//   - server.go: a server's lifecycle;
//   - certificate.go: its TLS certificate, reloaded when the files change;
//   - clients.go: the address of a request's client;
//   - slots.go: limits what is in flight, in total and of each client;
//   - bodies.go: reads request bodies before they take a slot;
//   - idle.go: closes idle connections beyond a limit;
//   - bounded.go: what both evict;
//   - cors.go: which web pages of other hosts may send requests from a browser.
package httpserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"kudos/httpserver/problem"
)

// Config configures a Server.
type Config struct {
	Name string // for messages: "reader"
	Key  string // the setting of Addr: "reader.http_addr"
	Addr string // host:port; port 0 picks a free one

	TLSCert, TLSKey string // PEM files, reloaded when they change; "": plain HTTP

	HTTP            *http.Server                    // the handler and the limits of requests
	Listener        func(net.Listener) net.Listener // replaces that of a server without TLS; nil: does not
	MaxIdleConns    int64                           // connections without a request in flight; 0: maxIdleConns
	ShutdownTimeout time.Duration                   // of the requests in flight after Serve's context has ended
	Work
}

// Work is what a role does besides serving requests. Every field is optional.
type Work struct {
	Open func() error // called before the first request
	// Run are run while the server serves, each until its context ends. If one returns an error, the server stops.
	Run []func(context.Context) error
	// Outlive are run like Run, but their context ends only after the last request, which may need them.
	Outlive []func(context.Context) error
	Close   func(context.Context) error // called after the last request, within the rest of ShutdownTimeout
}

// Server serves HTTP on one listener, once.
type Server struct {
	HTTP        *http.Server // of Config
	config      Config
	log         *slog.Logger
	certificate *certificate // nil: plain HTTP

	begun, stopping atomic.Bool
	listening       chan struct{} // closed once addr is set
	addr            string
}

// NewServer returns a server; it does no I/O.
func NewServer(c Config, log *slog.Logger) *Server {
	c.HTTP.Protocols = &http.Protocols{}
	c.HTTP.Protocols.SetHTTP1(true)
	c.HTTP.Protocols.SetHTTP2(true)
	c.HTTP.Protocols.SetUnencryptedHTTP2(true) // for services, which need fewer connections then
	c.HTTP.ConnState = (&idleConns{bounded: bounded{limit: cmp.Or(c.MaxIdleConns, maxIdleConns)}}).state
	c.HTTP.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	s := &Server{HTTP: c.HTTP, config: c, log: log, listening: make(chan struct{})}
	if c.TLSCert != "" {
		s.certificate = &certificate{section: c.Name, certFile: c.TLSCert, keyFile: c.TLSKey, every: watchEvery,
			log: log}
	}
	return s
}

// RejectOtherHosts makes the server answer only requests for localhost, an IP address or its own host. Otherwise a web
// page can reach it after pointing the name of its site to 127.0.0.1 (DNS rebinding). Call it before Serve.
func (s *Server) RejectOtherHosts() {
	own, _, _ := net.SplitHostPort(strings.ToLower(s.config.Addr))
	next := s.HTTP.Handler
	s.config.Listener = nil // does not look at the host
	s.HTTP.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := strings.ToLower((&url.URL{Host: r.Host}).Hostname())
		if net.ParseIP(host) == nil && host != "localhost" && (host == "" || host != own) {
			problem.Write(w, problem.New(http.StatusMisdirectedRequest, "host-not-allowed", "Host not allowed",
				"%.100q is not this server's; use localhost, an IP address or the host in %s", host, s.config.Key))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// noSniff keeps browsers from guessing the type of a response: a web page could run one as a script.
type noSniff struct{ http.Handler }

func (n noSniff) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	n.Handler.ServeHTTP(w, r)
}

// Listen opens a listener on the configured address.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	c := s.config
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s: listening on %s (set %s to a free host:port): %w", c.Name, c.Addr, c.Key, err)
	}
	return ln, nil
}

// smallWrites bounds what the system keeps of responses that a client does not read, by default megabytes of each.
type smallWrites struct{ net.Listener }

const writeBuffer = 128 << 10

func (l smallWrites) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(writeBuffer)
	}
	return conn, err
}

// Run listens on the configured address and serves; see Serve.
func (s *Server) Run(ctx context.Context) error {
	ln, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	return s.Serve(ctx, ln)
}

// Listening returns a channel that is closed once the server serves requests and Addr is set.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// Addr returns the address that the server listens on, host:port, or "" before it does.
func (s *Server) Addr() string {
	select {
	case <-s.listening:
		return s.addr
	default:
		return ""
	}
}

// Ready returns nil until shutdown begins.
func (s *Server) Ready() error {
	if s.stopping.Load() {
		return fmt.Errorf("%s: shutting down", s.config.Name)
	}
	return nil
}

// Serve serves on ln, which it closes, until ctx ends or something fails for good. Then it stops accepting, waits at
// most ShutdownTimeout for the requests in flight, and leaves nothing running. Call Serve or Run, once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	serve, err := s.open()
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	s.addr, ln = ln.Addr().String(), smallWrites{ln}
	close(s.listening)
	s.log.Info("listening", "event", "listening", "server", s.config.Name, "addr", s.addr) // read by package bench

	g, running := errgroup.WithContext(ctx)
	outliving, end := context.WithCancel(context.WithoutCancel(ctx))
	for _, run := range s.config.Outlive {
		g.Go(func() error { return run(outliving) })
	}
	for _, run := range s.config.Run {
		g.Go(func() error { return run(running) })
	}
	if s.certificate != nil {
		g.Go(func() error { s.certificate.watch(running); return nil })
	}
	g.Go(func() error {
		if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("%s: serving on %s: %w", s.config.Name, s.addr, err)
		}
		return nil
	})
	g.Go(func() error { <-running.Done(); defer end(); return s.shutdown(ctx) })
	return g.Wait()
}

func (s *Server) open() (serve func(net.Listener) error, err error) {
	if s.begun.Swap(true) {
		return nil, fmt.Errorf("%s: Run was called twice", s.config.Name)
	}
	serve, s.HTTP.Handler = s.HTTP.Serve, noSniff{s.HTTP.Handler}
	if c := s.certificate; c != nil {
		if _, err := c.reload(); err != nil {
			return nil, err
		}
		s.HTTP.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil }}
		serve = func(ln net.Listener) error { return s.HTTP.ServeTLS(ln, "", "") }
	} else if s.config.Listener != nil {
		serve = func(ln net.Listener) error { return s.HTTP.Serve(s.config.Listener(ln)) }
	}
	if s.config.Open != nil {
		err = s.config.Open()
	}
	return serve, err
}

// shutdown uses its own deadline, since ctx has ended.
func (s *Server) shutdown(ctx context.Context) error {
	s.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.ShutdownTimeout)
	defer cancel()
	err := s.HTTP.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("%s: requests were interrupted after %s: %w", s.config.Name, s.config.ShutdownTimeout,
			errors.Join(err, s.HTTP.Close()))
	}
	if s.config.Close != nil {
		err = errors.Join(err, s.config.Close(ctx))
	}
	return err
}
