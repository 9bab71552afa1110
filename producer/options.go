package producer

import (
	"errors"
	"fmt"
	"net"
	"time"

	"kudos/httpserver"
	"kudos/httpserver/origin"
	"kudos/schema"
)

// Options of the producer role.
type Options struct {
	// HTTPAddr is where to listen, host:port. Port 0 takes a free one. Unless Auth says
	// otherwise, whoever reaches the address can like in anybody's name.
	HTTPAddr string `mapstructure:"http_addr"`
	// TLSCert and TLSKey are PEM files, read again when they change. Empty: plain HTTP.
	TLSCert string `mapstructure:"tls_cert"`
	TLSKey  string `mapstructure:"tls_key"`

	// Auth is how to know who sends a request: none, gateway or jwt (AuthNone, …).
	Auth string `mapstructure:"auth"`
	// AuthHeader is where a gateway says who the user is; it is believed from the networks
	// of AuthTrustedCIDRs.
	AuthHeader       string   `mapstructure:"auth_header"`
	AuthTrustedCIDRs []string `mapstructure:"auth_trusted_cidrs"`
	// JWKS is where the keys of the issuer of tokens are: a file, or an https address. It
	// is read again each JWKSRefreshInterval, and for a token with a key that is not there.
	JWKS                string        `mapstructure:"jwks"`
	JWKSRefreshInterval time.Duration `mapstructure:"jwks_refresh_interval"`
	// JWTIssuer and JWTAudience are what a token must have in iss and aud.
	JWTIssuer   string `mapstructure:"jwt_issuer"`
	JWTAudience string `mapstructure:"jwt_audience"`
	// JWTAlgorithms are those that a token may be signed with; asymmetric ones only.
	JWTAlgorithms []string `mapstructure:"jwt_algorithms"`
	// JWTLeeway is how far the issuer's clock may differ.
	JWTLeeway time.Duration `mapstructure:"jwt_leeway"`
	// JWTUserClaim names the claim with the user id.
	JWTUserClaim string `mapstructure:"jwt_user_claim"`
	// ServiceScope is the scope of tokens that may act for every user. Empty: none may.
	ServiceScope string `mapstructure:"service_scope"`

	// UserRate is how many events a second are taken of a user, after UserBurst at once;
	// AddressRate how many requests of a client's address. 0: no limit.
	UserRate     float64 `mapstructure:"user_rate"`
	UserBurst    int     `mapstructure:"user_burst"`
	AddressRate  float64 `mapstructure:"address_rate"`
	AddressBurst int     `mapstructure:"address_burst"`
	// TrustedProxies are the networks whose word on a client's address (X-Forwarded-For)
	// is believed.
	TrustedProxies []string `mapstructure:"trusted_proxies"`

	// RegionHeader names a request header that a trusted proxy sets to the client's
	// region. Empty: no header is trusted.
	RegionHeader string `mapstructure:"region_header"`
	// Origins are the web pages of other hosts that may send likes from a browser, such
	// as https://www.example.com (a reader's dashboard is one); "*" is all.
	Origins []string `mapstructure:"origins"`
	// UserBuckets are the posts in whose keys the bucket of the user is named. Where that
	// is left out, the processors forward.
	UserBuckets schema.UserBuckets `mapstructure:"-"`

	// MaxBodyBytes bounds the body of a single like.
	MaxBodyBytes int64 `mapstructure:"max_body_bytes"`
	// MaxBatchBytes bounds the body of a batch, MaxBatchLines its lines.
	MaxBatchBytes int64 `mapstructure:"max_batch_bytes"`
	MaxBatchLines int   `mapstructure:"max_batch_lines"`
	// MaxHeaderBytes bounds a request's line and headers.
	MaxHeaderBytes int `mapstructure:"max_header_bytes"`

	// MaxConcurrentRequests is how many requests are worked on or wait for Kafka at a
	// time (about 20 KB each); more are refused with 429. MaxConcurrentBatches is how
	// many of them may be batches (up to 9 MB each). A request counts once its body has
	// arrived: the bodies that are arriving hold as many times MaxBodyBytes (of batches,
	// MaxBatchBytes) at most, and beyond that the oldest is answered with 408.
	MaxConcurrentRequests int `mapstructure:"max_concurrent_requests"`
	MaxConcurrentBatches  int `mapstructure:"max_concurrent_batches"`
	// MaxBufferedRecords is how many events wait for Kafka at a time, about 500 bytes
	// each; what would need more is refused whole, with 429 or 503.
	MaxBufferedRecords int `mapstructure:"max_buffered_records"`

	// Linger is how long an event waits for others to share its record batch. It is
	// part of every answer's latency.
	Linger time.Duration `mapstructure:"linger"`
	// AckTimeout is how long a request waits for Kafka's acknowledgement before the
	// answer is 503.
	AckTimeout time.Duration `mapstructure:"ack_timeout"`
	// ReadyTimeout is how long Kafka may be silent before the producer is not ready.
	ReadyTimeout time.Duration `mapstructure:"ready_timeout"`
	// RetryAfter is what a refused client is told to wait; whole seconds.
	RetryAfter time.Duration `mapstructure:"retry_after"`

	// ReadHeaderTimeout bounds the reading of a request's headers, ReadTimeout that of
	// the whole request.
	ReadHeaderTimeout time.Duration `mapstructure:"read_header_timeout"`
	ReadTimeout       time.Duration `mapstructure:"read_timeout"`
	// WriteTimeout bounds a request from the end of its headers to the end of its
	// answer.
	WriteTimeout time.Duration `mapstructure:"write_timeout"`
	// IdleTimeout is how long a kept connection waits for its next request.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`
	// ShutdownTimeout bounds the requests in hand after SIGTERM.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// DefaultOptions suit a production producer, but for the address: it is this
// machine's only.
func DefaultOptions() Options {
	return Options{
		HTTPAddr:              "127.0.0.1:8080",
		Auth:                  AuthNone,
		AuthHeader:            "X-User-Id",
		AuthTrustedCIDRs:      []string{},
		JWKSRefreshInterval:   5 * time.Minute,
		JWTAlgorithms:         []string{"RS256", "ES256", "EdDSA"},
		JWTLeeway:             30 * time.Second,
		JWTUserClaim:          "sub",
		ServiceScope:          "kudos:write",
		UserBurst:             30,
		AddressBurst:          300,
		TrustedProxies:        []string{},
		Origins:               []string{},
		MaxBodyBytes:          schema.MaxEventBytes,
		MaxBatchBytes:         4 << 20,
		MaxBatchLines:         10_000,
		MaxHeaderBytes:        16 << 10,
		MaxConcurrentRequests: 2_000,
		MaxConcurrentBatches:  32,
		MaxBufferedRecords:    100_000,
		Linger:                2 * time.Millisecond,
		AckTimeout:            10 * time.Second,
		ReadyTimeout:          15 * time.Second,
		RetryAfter:            time.Second,
		ReadHeaderTimeout:     5 * time.Second,
		ReadTimeout:           30 * time.Second,
		WriteTimeout:          60 * time.Second,
		IdleTimeout:           2 * time.Minute,
		ShutdownTimeout:       20 * time.Second,
	}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("producer."+key+": "+format, args...))
	}
	if _, _, err := net.SplitHostPort(o.HTTPAddr); err != nil {
		bad("http_addr", "%q is not host:port: %w", o.HTTPAddr, err)
	}
	if err := httpserver.CheckPair(o.TLSCert, o.TLSKey); err != nil {
		bad("tls_cert", "%w", err)
	}
	o.validateAuth(bad)
	o.validateRates(bad)
	if err := origin.Check(o.Origins); err != nil {
		bad("origins", "%w", err)
	}
	for _, n := range []struct {
		key   string
		value int64
	}{
		{"max_body_bytes", o.MaxBodyBytes},
		{"max_batch_bytes", o.MaxBatchBytes},
		{"max_batch_lines", int64(o.MaxBatchLines)},
		{"max_header_bytes", int64(o.MaxHeaderBytes)},
		{"max_concurrent_requests", int64(o.MaxConcurrentRequests)},
		{"max_concurrent_batches", int64(o.MaxConcurrentBatches)},
	} {
		if n.value < 1 {
			bad(n.key, "must be above zero")
		}
	}
	if o.MaxBufferedRecords < max(1, o.MaxBatchLines) {
		bad("max_buffered_records", "must be at least producer.max_batch_lines (%d), or a full batch could never be taken", o.MaxBatchLines)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"ready_timeout", o.ReadyTimeout},
		{"read_header_timeout", o.ReadHeaderTimeout},
		{"read_timeout", o.ReadTimeout},
		{"idle_timeout", o.IdleTimeout},
	} {
		if d.value <= 0 {
			bad(d.key, "must be above zero")
		}
	}
	if o.Linger < 0 || o.Linger > time.Second {
		bad("linger", "must be between 0 and 1s")
	}
	if o.AckTimeout < 200*time.Millisecond {
		bad("ack_timeout", "must be at least 200ms")
	}
	if o.RetryAfter < time.Second {
		bad("retry_after", "must be at least 1s")
	}
	if o.WriteTimeout < o.ReadTimeout+o.AckTimeout {
		bad("write_timeout", "must be at least producer.read_timeout plus producer.ack_timeout (%s), or answers would be cut off", o.ReadTimeout+o.AckTimeout)
	}
	if o.ShutdownTimeout <= o.AckTimeout {
		bad("shutdown_timeout", "must be above producer.ack_timeout (%s), or requests in hand would be cut off", o.AckTimeout)
	}
	return errors.Join(errs...)
}
