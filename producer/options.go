package producer

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"kudos/httpserver"
	"kudos/schema"
)

// Options configure the producer. config/kudos.example.yaml says more about each.
type Options struct {
	// HTTPAddr is host:port; port 0 picks a free one. With AuthNone, whoever reaches it can like in anybody's name.
	HTTPAddr string `mapstructure:"http_addr"`
	TLSCert  string `mapstructure:"tls_cert"` // PEM file, reloaded when it changes; "": plain HTTP
	TLSKey   string `mapstructure:"tls_key"`

	Auth             string   `mapstructure:"auth"`               // AuthNone, AuthGateway or AuthJWT
	AuthHeader       string   `mapstructure:"auth_header"`        // has the user id, set by a gateway
	AuthTrustedCIDRs []string `mapstructure:"auth_trusted_cidrs"` // networks of gateways: only theirs is trusted

	// JWKS is a file or https URL with the issuer's keys, read every JWKSRefreshInterval and for an unknown key.
	JWKS                string        `mapstructure:"jwks"`
	JWKSRefreshInterval time.Duration `mapstructure:"jwks_refresh_interval"`
	JWTIssuer           string        `mapstructure:"jwt_issuer"`     // required value of a token's iss
	JWTAudience         string        `mapstructure:"jwt_audience"`   // and of its aud
	JWTAlgorithms       []string      `mapstructure:"jwt_algorithms"` // accepted for signatures
	JWTLeeway           time.Duration `mapstructure:"jwt_leeway"`     // tolerated difference of the issuer's clock
	JWTUserClaim        string        `mapstructure:"jwt_user_claim"` // has the user id
	ServiceScope        string        `mapstructure:"service_scope"`  // tokens with it may act for every user; "": none

	// UserRate limits events per second of a user, AddressRate requests per second of a client address; 0: no limit.
	UserRate     float64 `mapstructure:"user_rate"`
	UserBurst    int     `mapstructure:"user_burst"`
	AddressRate  float64 `mapstructure:"address_rate"`
	AddressBurst int     `mapstructure:"address_burst"`

	TrustedProxies []string `mapstructure:"trusted_proxies"` // networks whose X-Forwarded-For is trusted
	RegionHeader   string   `mapstructure:"region_header"`   // has the region, set by a trusted proxy; "": none
	Origins        []string `mapstructure:"origins"`         // origins of web pages that may send likes; "*": all
	// UserBuckets are the posts whose keys name the user's bucket. If one is missing, processors forward its events.
	UserBuckets schema.UserBuckets `mapstructure:"-"`

	MaxBodyBytes   int64 `mapstructure:"max_body_bytes"`  // of a single like
	MaxBatchBytes  int64 `mapstructure:"max_batch_bytes"` // of a batch's body
	MaxBatchLines  int   `mapstructure:"max_batch_lines"`
	MaxHeaderBytes int   `mapstructure:"max_header_bytes"` // of the request line and headers
	// MaxConcurrentRequests is how many requests may be processed or wait for Kafka concurrently (about 20 KB each);
	// more get 429. MaxConcurrentBatches is how many of them may be batches (up to 9 MB each). A request counts once
	// its body has arrived. Unfinished bodies may hold as much memory as this many bodies of MaxBodyBytes (for batches,
	// MaxBatchBytes); beyond that the oldest gets 408.
	MaxConcurrentRequests int `mapstructure:"max_concurrent_requests"`
	MaxConcurrentBatches  int `mapstructure:"max_concurrent_batches"`
	// MaxBufferedRecords events may wait for Kafka, about 500 bytes each. Beyond that, a whole request gets 429 or 503.
	MaxBufferedRecords int `mapstructure:"max_buffered_records"`

	Linger       time.Duration `mapstructure:"linger"`        // wait of an event for others to share its record batch
	AckTimeout   time.Duration `mapstructure:"ack_timeout"`   // wait of a request for Kafka, before the response is 503
	ReadyTimeout time.Duration `mapstructure:"ready_timeout"` // silence of Kafka, before the producer is not ready
	RetryAfter   time.Duration `mapstructure:"retry_after"`   // wait that a rejected client is told; whole seconds

	ReadHeaderTimeout time.Duration `mapstructure:"read_header_timeout"` // of a request's headers
	ReadTimeout       time.Duration `mapstructure:"read_timeout"`        // of the whole request
	WriteTimeout      time.Duration `mapstructure:"write_timeout"`       // from the headers to the end of the response
	IdleTimeout       time.Duration `mapstructure:"idle_timeout"`        // of a keep-alive connection
	ShutdownTimeout   time.Duration `mapstructure:"shutdown_timeout"`    // of the requests in flight after SIGTERM
}

// DefaultOptions suit production, except for the address, which is loopback.
func DefaultOptions() Options {
	return Options{
		HTTPAddr: "127.0.0.1:8080", Auth: AuthNone, AuthHeader: "X-User-Id", AuthTrustedCIDRs: []string{},
		JWKSRefreshInterval: 5 * time.Minute, JWTAlgorithms: []string{"RS256", "ES256", "EdDSA"},
		JWTLeeway: 30 * time.Second, JWTUserClaim: "sub", ServiceScope: "kudos:write",
		UserBurst: 30, AddressBurst: 300,
		TrustedProxies: []string{}, Origins: []string{},
		MaxBodyBytes: schema.MaxEventBytes, MaxBatchBytes: 4 << 20, MaxBatchLines: 10_000, MaxHeaderBytes: 16 << 10,
		MaxConcurrentRequests: 2_000, MaxConcurrentBatches: 32, MaxBufferedRecords: 100_000,
		Linger: 2 * time.Millisecond, AckTimeout: 10 * time.Second,
		ReadyTimeout: 15 * time.Second, RetryAfter: time.Second,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 60 * time.Second,
		IdleTimeout: 2 * time.Minute, ShutdownTimeout: 20 * time.Second,
	}
}

// asymmetric algorithms have public keys (RFC 7518, RFC 8037). With shared secrets, verifiers could forge tokens.
var asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// check reports a setting as wrong unless ok is true.
type check func(ok bool, key, format string, args ...any)

// Validate returns everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("producer."+key+": "+format, args...))
		}
	}
	const positive = "must be above zero"
	_, _, err := net.SplitHostPort(o.HTTPAddr)
	check(err == nil, "http_addr", "%q is not host:port: %w", o.HTTPAddr, err)
	err = httpserver.CheckPair(o.TLSCert, o.TLSKey)
	check(err == nil, "tls_cert", "%w", err)
	o.validateAuth(check)
	o.validateRates(check)
	err = httpserver.CheckOrigins(o.Origins)
	check(err == nil, "origins", "%w", err)

	check(o.MaxBodyBytes > 0, "max_body_bytes", positive)
	check(o.MaxBatchBytes > 0, "max_batch_bytes", positive)
	check(o.MaxBatchLines > 0, "max_batch_lines", positive)
	check(o.MaxHeaderBytes > 0, "max_header_bytes", positive)
	check(o.MaxConcurrentRequests > 0, "max_concurrent_requests", positive)
	check(o.MaxConcurrentBatches > 0, "max_concurrent_batches", positive)
	check(o.MaxBufferedRecords >= max(1, o.MaxBatchLines), "max_buffered_records",
		"must be at least producer.max_batch_lines (%d), or a full batch could never be accepted", o.MaxBatchLines)

	check(o.ReadyTimeout > 0, "ready_timeout", positive)
	check(o.ReadHeaderTimeout > 0, "read_header_timeout", positive)
	check(o.ReadTimeout > 0, "read_timeout", positive)
	check(o.IdleTimeout > 0, "idle_timeout", positive)
	check(o.Linger >= 0 && o.Linger <= time.Second, "linger", "must be between 0 and 1s")
	check(o.AckTimeout >= 200*time.Millisecond, "ack_timeout", "must be at least 200ms")
	check(o.RetryAfter >= time.Second, "retry_after", "must be at least 1s")
	check(o.WriteTimeout >= o.ReadTimeout+o.AckTimeout, "write_timeout",
		"must be at least producer.read_timeout plus producer.ack_timeout (%s), or responses would be truncated",
		o.ReadTimeout+o.AckTimeout)
	check(o.ShutdownTimeout > o.AckTimeout, "shutdown_timeout",
		"must be above producer.ack_timeout (%s), or requests in flight would be interrupted", o.AckTimeout)
	return errors.Join(errs...)
}

// validateAuth checks the settings of the selected authentication. Settings that only the others need may be missing.
func (o Options) validateAuth(check check) {
	_, err := httpserver.ParseNetworks(o.AuthTrustedCIDRs)
	check(err == nil, "auth_trusted_cidrs", "%w", err)
	switch o.Auth {
	case AuthNone:
	case AuthGateway:
		check(httpguts.ValidHeaderFieldName(o.AuthHeader), "auth_header", "%q is not a header name", o.AuthHeader)
		check(len(o.AuthTrustedCIDRs) > 0, "auth_trusted_cidrs",
			"must list the networks of the gateway: %s is trusted only from there", o.AuthHeader)
	case AuthJWT:
		o.validateJWT(check)
	default:
		check(false, "auth", "%q is not one of %s, %s and %s", o.Auth, AuthNone, AuthGateway, AuthJWT)
	}
}

func (o Options) validateJWT(check check) {
	err := checkJWKS(o.JWKS)
	check(err == nil, "jwks", "%w", err)
	check(o.JWKSRefreshInterval >= 10*time.Second && o.JWKSRefreshInterval <= 24*time.Hour,
		"jwks_refresh_interval", "must be between 10s and 24h")
	check(o.JWTIssuer != "", "jwt_issuer", "must be set, or tokens from any issuer would be accepted")
	check(o.JWTAudience != "", "jwt_audience", "must be set, or tokens for any audience would be accepted")
	known := strings.Join(asymmetric, ", ")
	check(len(o.JWTAlgorithms) > 0, "jwt_algorithms", "must name at least one of %s", known)
	for _, alg := range o.JWTAlgorithms {
		check(slices.Contains(asymmetric, alg), "jwt_algorithms", "%q is not one of %s", alg, known)
	}
	check(o.JWTLeeway >= 0 && o.JWTLeeway <= 10*time.Minute, "jwt_leeway", "must be between 0 and 10m")
	// The name is repeated in WWW-Authenticate.
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
	check(o.JWTUserClaim != "" && !strings.ContainsFunc(o.JWTUserClaim, odd), "jwt_user_claim",
		"%q is not a claim name: one or more visible ASCII characters, without quotes or backslashes", o.JWTUserClaim)
	check(!strings.ContainsAny(o.ServiceScope, " \t\r\n"), "service_scope", "%q is more than one scope", o.ServiceScope)
}

// checkJWKS rejects URLs on which a man in the middle could replace the keys.
func checkJWKS(source string) error {
	if source == "" {
		return errors.New("must be a file, or a URL such as https://issuer.example.com/jwks.json")
	}
	if !isURL(source) {
		return nil
	}
	u, err := url.Parse(source)
	switch {
	case err != nil || u.Host == "":
		return errors.New("is not a URL such as https://issuer.example.com/jwks.json")
	case u.User != nil:
		return errors.New("must not contain a password: it is logged")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()):
		return nil
	}
	return fmt.Errorf("must be https, not %s, except on this machine", u.Scheme)
}

func (o Options) validateRates(check check) {
	_, err := httpserver.ParseNetworks(o.TrustedProxies)
	check(err == nil, "trusted_proxies", "%w", err)
	for _, l := range []struct {
		key   string
		rate  float64
		burst int
	}{{"user", o.UserRate, o.UserBurst}, {"address", o.AddressRate, o.AddressBurst}} {
		// Not negated: a NaN must fail too.
		check(l.rate == 0 || l.rate >= 0.001 && l.rate <= 1_000_000, l.key+"_rate",
			"must be 0 (no limit), or between 0.001 and 1000000 a second")
		check(l.rate == 0 || l.burst > 0, l.key+"_burst", "must be above zero")
	}
}
