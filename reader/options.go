package reader

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"kudos/httpserver"
)

// Options configure the reader. config/kudos.example.yaml says more about each.
type Options struct {
	// HTTPAddr is host:port (port 0: a free one). The reader has no authentication: whoever reaches it can read all.
	HTTPAddr string `mapstructure:"http_addr"`
	TLSCert  string `mapstructure:"tls_cert"` // PEM file, reloaded when it changes; "": plain HTTP
	TLSKey   string `mapstructure:"tls_key"`
	// StateDir has the views, a directory per partition. It is a cache: deleting it only costs a recovery from Kafka.
	StateDir   string `mapstructure:"state_dir"`
	CacheBytes int64  `mapstructure:"cache_bytes"` // memory of the views' caches, for all partitions
	Reactions  bool   `mapstructure:"reactions"`   // keep who likes what; false: only counts

	// Replicas is how many readers keep the reactions of each partition; 0: each reader keeps all. Readers ask each
	// other at AdvertisedURL, such as http://10.0.0.7:8081, which must be reachable by all of them.
	Replicas       int           `mapstructure:"replicas"`
	AdvertisedURL  string        `mapstructure:"advertised_url"`
	PeerTLSCA      string        `mapstructure:"peer_tls_ca"`     // PEM file to verify https URLs with; "": the system's
	Zone           string        `mapstructure:"zone"`            // replicas are in different zones if possible
	SessionTimeout time.Duration `mapstructure:"session_timeout"` // how long a reader may be away before others copy

	// History is how many days of each post's history are kept, by hour and region; 0: none. At most 7 days are in
	// Kafka when a reader starts with an empty disk.
	History time.Duration `mapstructure:"history"`

	MaxWait time.Duration `mapstructure:"max_wait"` // of a response for min_offset
	// CacheMaxAge (whole seconds) is how long caches may reuse counts and rankings; 0: always revalidate, by ETag.
	CacheMaxAge time.Duration `mapstructure:"cache_max_age"`
	// MaxConcurrentRequests is how many requests may be processed concurrently, not counting streams, and how many more
	// may wait for min_offset; others get 429. A request counts once its body has arrived. An address may have as many
	// requests, and streams, as are left for others.
	MaxConcurrentRequests int      `mapstructure:"max_concurrent_requests"`
	TrustedProxies        []string `mapstructure:"trusted_proxies"` // networks whose X-Forwarded-For is trusted

	MaxStreams         int           `mapstructure:"max_streams"`          // live streams (30 KB each); more get 429
	LiveInterval       time.Duration `mapstructure:"live_interval"`        // between messages about a changing value
	HeartbeatInterval  time.Duration `mapstructure:"heartbeat_interval"`   // between heartbeats of a stream
	StreamWriteTimeout time.Duration `mapstructure:"stream_write_timeout"` // for a client to accept a write
	// Origins are those of web pages that may send requests from a browser, such as https://www.example.com; "*": all.
	Origins []string `mapstructure:"origins"`

	Dashboard bool `mapstructure:"dashboard"` // serve it at /
	// ProducerURL is where the dashboard's like button sends likes, as a browser reaches it; producer.origins must list
	// the dashboard's origin. Empty: no button.
	ProducerURL string `mapstructure:"producer_url"`
	// PostURL is a post's page and TitleURL its title, which browsers fetch; both contain {post_id}. Empty: none.
	PostURL  string `mapstructure:"post_url"`
	TitleURL string `mapstructure:"title_url"`

	// AdminURLs are the admin servers of other processes, which /v1/health asks; GrafanaURL is a link for operators.
	AdminURLs  []string `mapstructure:"admin_urls"`
	GrafanaURL string   `mapstructure:"grafana_url"`

	ReadTimeout     time.Duration `mapstructure:"read_timeout"`     // of a request
	WriteTimeout    time.Duration `mapstructure:"write_timeout"`    // of a response, from the request's headers on
	IdleTimeout     time.Duration `mapstructure:"idle_timeout"`     // of a keep-alive connection
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"` // of the requests in flight after SIGTERM
}

// DefaultOptions suit production, except for the address, which is loopback.
func DefaultOptions() Options {
	return Options{
		HTTPAddr: "127.0.0.1:8081", StateDir: "kudos-reader-state", CacheBytes: 256 << 20, Reactions: true,
		SessionTimeout: 30 * time.Second,
		MaxWait:        5 * time.Second, CacheMaxAge: time.Second, MaxConcurrentRequests: 2_000,
		MaxStreams: 10_000, LiveInterval: 200 * time.Millisecond,
		HeartbeatInterval: 15 * time.Second, StreamWriteTimeout: 5 * time.Second,
		Origins: []string{}, TrustedProxies: []string{}, Dashboard: true, AdminURLs: []string{},
		ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, ShutdownTimeout: 10 * time.Second,
	}
}

const maxHistory = 366 * 24 * time.Hour

// Validate returns everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("reader."+key+": "+format, args...))
		}
	}
	_, _, err := net.SplitHostPort(o.HTTPAddr)
	check(err == nil, "http_addr", "%q is not host:port: %w", o.HTTPAddr, err)
	err = httpserver.CheckPair(o.TLSCert, o.TLSKey)
	check(err == nil, "tls_cert", "%w", err)
	check(o.StateDir != "", "state_dir", "must name a directory")
	check(o.CacheBytes >= 1<<20, "cache_bytes", "must be at least 1 MiB (%d)", 1<<20)

	check(o.History >= 0 && o.History <= maxHistory, "history", "must be between 0 and %s", maxHistory)
	check(o.Replicas >= 0, "replicas", "must not be below zero")
	check(o.Replicas == 0 || o.Reactions, "replicas", "must be 0 if reader.reactions is false")
	check(o.Replicas == 0 || isHTTP(o.AdvertisedURL), "advertised_url",
		"%q is not a URL such as http://10.0.0.7:8081, where other readers reach this one", o.AdvertisedURL)

	const positive = "must be above zero"
	check(o.SessionTimeout > 0, "session_timeout", positive)
	check(o.MaxConcurrentRequests > 0, "max_concurrent_requests", positive)
	check(o.MaxStreams > 0, "max_streams", positive)
	check(o.HeartbeatInterval > 0, "heartbeat_interval", positive)
	check(o.StreamWriteTimeout > 0, "stream_write_timeout", positive)
	check(o.ReadTimeout > 0, "read_timeout", positive)
	check(o.IdleTimeout > 0, "idle_timeout", positive)
	check(o.ShutdownTimeout > 0, "shutdown_timeout", positive)
	check(o.LiveInterval >= 10*time.Millisecond && o.LiveInterval <= 10*time.Second, "live_interval",
		"must be between 10ms and 10s")
	check(o.CacheMaxAge >= 0 && o.CacheMaxAge%time.Second == 0, "cache_max_age",
		"must be whole seconds, not below zero")
	check(o.MaxWait >= 0, "max_wait", "must not be below zero")
	check(o.WriteTimeout >= o.ReadTimeout+o.MaxWait, "write_timeout",
		"must be at least reader.read_timeout plus reader.max_wait (%s), or responses would be truncated",
		o.ReadTimeout+o.MaxWait)

	_, err = httpserver.ParseNetworks(o.TrustedProxies)
	check(err == nil, "trusted_proxies", "%w", err)
	err = httpserver.CheckOrigins(o.Origins)
	check(err == nil, "origins", "%w", err)
	o.checkURLs(check)
	return errors.Join(errs...)
}

func (o Options) checkURLs(check func(ok bool, key, format string, args ...any)) {
	const form = "%q is not a URL such as https://www.example.com"
	for key, s := range map[string]string{"producer_url": o.ProducerURL, "grafana_url": o.GrafanaURL} {
		check(s == "" || isHTTP(s), key, form, s)
	}
	for key, s := range map[string]string{"post_url": o.PostURL, "title_url": o.TitleURL} {
		check(s == "" || isHTTP(s) && strings.Contains(s, "{post_id}"), key, form+"/{post_id}", s)
	}
	for _, s := range o.AdminURLs {
		check(isHTTP(s), "admin_urls", form, s)
	}
}

func isHTTP(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}
