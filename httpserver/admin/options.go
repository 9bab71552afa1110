package admin

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Options of the admin server.
type Options struct {
	// Addr is where it listens, host:port; port 0 takes a free one. It asks nobody who
	// they are, so it belongs on a private address.
	Addr string `mapstructure:"addr"`
	// Profiles: /debug/pprof is served. A profile costs CPU time for as long as it is taken.
	Profiles bool `mapstructure:"profiles"`
	// ShutdownTimeout bounds the answers in hand when it stops.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// DefaultOptions listen on this machine only.
func DefaultOptions() Options {
	return Options{
		Addr:            "127.0.0.1:9090",
		ShutdownTimeout: 2 * time.Second,
	}
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

// The bounds of every request. Constants: no workload asks for others.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	// writeTimeout leaves room for a CPU profile of a minute.
	writeTimeout = 90 * time.Second
	idleTimeout  = time.Minute
	// answerTimeout bounds probes and a scrape.
	answerTimeout  = 10 * time.Second
	maxHeaderBytes = 16 << 10
	maxConnections = 64
	maxScrapes     = 4
)
