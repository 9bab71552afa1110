package reader

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"kudos/httpserver"
	"kudos/httpserver/origin"
)

// Options of the reader role.
type Options struct {
	// HTTPAddr is where to listen, host:port. Port 0 takes a free one. There is no
	// authentication here: whoever reaches the address can read everything.
	HTTPAddr string `mapstructure:"http_addr"`
	// TLSCert and TLSKey are PEM files, read again when they change. Empty: plain HTTP.
	TLSCert string `mapstructure:"tls_cert"`
	TLSKey  string `mapstructure:"tls_key"`
	// StateDir holds the local copies of the state table and of trending, a folder per
	// partition. It is a cache: deleting it costs a recovery from Kafka and nothing else.
	StateDir string `mapstructure:"state_dir"`
	// CacheBytes is the memory of the copies' block cache, for all partitions.
	CacheBytes int64 `mapstructure:"cache_bytes"`
	// Reactions: keep who likes what. Without it only counts are kept and answered.
	Reactions bool `mapstructure:"reactions"`

	// MaxWait bounds how long an answer waits for min_offset.
	MaxWait time.Duration `mapstructure:"max_wait"`
	// CacheMaxAge is how long browsers and caches between may show counts and rankings
	// without asking again; whole seconds. 0: they always ask (an ETag makes it cheap).
	CacheMaxAge time.Duration `mapstructure:"cache_max_age"`
	// MaxConcurrentRequests is how many requests are worked on at a time, streams not
	// among them, and how many more may wait for min_offset; others are refused with
	// 429. A request counts once its body has arrived.
	MaxConcurrentRequests int `mapstructure:"max_concurrent_requests"`

	// MaxStreams is how many live streams are open at a time (about 30 KB each); more
	// are refused with 429.
	MaxStreams int `mapstructure:"max_streams"`
	// LiveInterval is how often a stream is told of a value that goes on changing.
	LiveInterval time.Duration `mapstructure:"live_interval"`
	// HeartbeatInterval is how often a stream on which nothing happens is written to.
	HeartbeatInterval time.Duration `mapstructure:"heartbeat_interval"`
	// StreamWriteTimeout is how long a client may take to accept what is written to
	// its stream, before it is closed.
	StreamWriteTimeout time.Duration `mapstructure:"stream_write_timeout"`
	// Origins are the web pages of other hosts that may ask from a browser, such as
	// https://www.example.com; "*" is all.
	Origins []string `mapstructure:"origins"`

	// Dashboard: serve it at /.
	Dashboard bool `mapstructure:"dashboard"`
	// ProducerURL is where the dashboard's like button sends likes, as a browser
	// reaches it; the producer must list the dashboard's origin in producer.origins.
	// Empty: there is no button.
	ProducerURL string `mapstructure:"producer_url"`

	// ReadTimeout bounds the reading of a request.
	ReadTimeout time.Duration `mapstructure:"read_timeout"`
	// WriteTimeout bounds a request from the end of its headers to the end of its
	// answer, but for streams.
	WriteTimeout time.Duration `mapstructure:"write_timeout"`
	// IdleTimeout is how long a kept connection waits for its next request.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`
	// ShutdownTimeout bounds the requests in hand after SIGTERM. Streams are closed at once.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// DefaultOptions suit a production reader, but for the address: it is this machine's
// only.
func DefaultOptions() Options {
	return Options{
		HTTPAddr:              "127.0.0.1:8081",
		StateDir:              "kudos-reader-state",
		CacheBytes:            256 << 20,
		Reactions:             true,
		MaxWait:               5 * time.Second,
		CacheMaxAge:           time.Second,
		MaxConcurrentRequests: 2_000,
		MaxStreams:            10_000,
		LiveInterval:          200 * time.Millisecond,
		HeartbeatInterval:     15 * time.Second,
		StreamWriteTimeout:    5 * time.Second,
		Origins:               []string{},
		Dashboard:             true,
		ReadTimeout:           10 * time.Second,
		WriteTimeout:          30 * time.Second,
		IdleTimeout:           2 * time.Minute,
		ShutdownTimeout:       10 * time.Second,
	}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("reader."+key+": "+format, args...))
	}
	if _, _, err := net.SplitHostPort(o.HTTPAddr); err != nil {
		bad("http_addr", "%q is not host:port: %w", o.HTTPAddr, err)
	}
	if err := httpserver.CheckPair(o.TLSCert, o.TLSKey); err != nil {
		bad("tls_cert", "%w", err)
	}
	if o.StateDir == "" {
		bad("state_dir", "must name a folder")
	}
	if o.CacheBytes < 1<<20 {
		bad("cache_bytes", "must be at least 1 MiB (%d)", 1<<20)
	}
	for _, n := range []struct {
		key   string
		value int
	}{
		{"max_concurrent_requests", o.MaxConcurrentRequests},
		{"max_streams", o.MaxStreams},
	} {
		if n.value < 1 {
			bad(n.key, "must be above zero")
		}
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"heartbeat_interval", o.HeartbeatInterval},
		{"stream_write_timeout", o.StreamWriteTimeout},
		{"read_timeout", o.ReadTimeout},
		{"idle_timeout", o.IdleTimeout},
		{"shutdown_timeout", o.ShutdownTimeout},
	} {
		if d.value <= 0 {
			bad(d.key, "must be above zero")
		}
	}
	if o.LiveInterval < 10*time.Millisecond || o.LiveInterval > 10*time.Second {
		bad("live_interval", "must be between 10ms and 10s")
	}
	if o.CacheMaxAge < 0 || o.CacheMaxAge%time.Second != 0 {
		bad("cache_max_age", "must be whole seconds, not below zero")
	}
	if o.MaxWait < 0 {
		bad("max_wait", "must not be below zero")
	}
	if o.WriteTimeout < o.ReadTimeout+o.MaxWait {
		bad("write_timeout", "must be at least reader.read_timeout plus reader.max_wait (%s), or answers would be cut off", o.ReadTimeout+o.MaxWait)
	}
	if err := origin.Check(o.Origins); err != nil {
		bad("origins", "%w", err)
	}
	if u, err := url.Parse(o.ProducerURL); o.ProducerURL != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		bad("producer_url", "%q is not an address as https://likes.example.com", o.ProducerURL)
	}
	return errors.Join(errs...)
}
