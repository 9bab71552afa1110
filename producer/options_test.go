package producer

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func TestDefaultOptionsAreValid(t *testing.T) { require.NoError(t, DefaultOptions().Validate()) }

func TestValidateTellsAll(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`producer.http_addr: "8080" is not host:port`:                                                    func(o *Options) { o.HTTPAddr = "8080" },
		"producer.max_body_bytes: must be above zero":                                                    func(o *Options) { o.MaxBodyBytes = 0 },
		"producer.max_batch_bytes: must be above zero":                                                   func(o *Options) { o.MaxBatchBytes = -1 },
		"producer.max_batch_lines: must be above zero":                                                   func(o *Options) { o.MaxBatchLines = 0 },
		"producer.max_header_bytes: must be above zero":                                                  func(o *Options) { o.MaxHeaderBytes = 0 },
		"producer.max_concurrent_requests: must be above zero":                                           func(o *Options) { o.MaxConcurrentRequests = 0 },
		"producer.max_concurrent_batches: must be above zero":                                            func(o *Options) { o.MaxConcurrentBatches = 0 },
		"producer.max_buffered_records: must be at least producer.max_batch_lines (10000)":               func(o *Options) { o.MaxBufferedRecords = 9_999 },
		"producer.ready_timeout: must be above zero":                                                     func(o *Options) { o.ReadyTimeout = 0 },
		"producer.read_header_timeout: must be above zero":                                               func(o *Options) { o.ReadHeaderTimeout = 0 },
		"producer.idle_timeout: must be above zero":                                                      func(o *Options) { o.IdleTimeout = -time.Second },
		"producer.linger: must be between 0 and 1s":                                                      func(o *Options) { o.Linger = 2 * time.Second },
		"producer.ack_timeout: must be at least 200ms":                                                   func(o *Options) { o.AckTimeout = time.Millisecond },
		"producer.retry_after: must be at least 1s":                                                      func(o *Options) { o.RetryAfter = time.Millisecond },
		"producer.read_timeout: must be above zero":                                                      func(o *Options) { o.ReadTimeout = 0 },
		"producer.write_timeout: must be at least producer.read_timeout plus producer.ack_timeout (40s)": func(o *Options) { o.WriteTimeout = 39 * time.Second },
		"producer.shutdown_timeout: must be above producer.ack_timeout (10s)":                            func(o *Options) { o.ShutdownTimeout = 10 * time.Second },
		`producer.tls_cert: tls_cert and tls_key go together`:                                            func(o *Options) { o.TLSCert = "cert.pem" },
		`producer.auth: "oauth" is none of none, gateway and jwt`:                                        func(o *Options) { o.Auth = "oauth" },
		`producer.auth_trusted_cidrs: "here" is no network`:                                              func(o *Options) { o.AuthTrustedCIDRs = []string{"here"} },
		"producer.auth_trusted_cidrs: must name the networks that the gateway is in":                     func(o *Options) { o.Auth = AuthGateway },
		`producer.auth_header: "" is no header's name`:                                                   func(o *Options) { o.Auth, o.AuthHeader = AuthGateway, "" },
		"producer.jwks: must name a file, or an address":                                                 func(o *Options) { o.Auth = AuthJWT },
		"producer.jwks: must be https, not http, but on this machine":                                    func(o *Options) { o.Auth, o.JWKS = AuthJWT, "http://issuer.example.com/jwks" },
		"producer.jwks: must be https, not ftp":                                                          func(o *Options) { o.Auth, o.JWKS = AuthJWT, "ftp://127.0.0.1/jwks" },
		"producer.jwks: must not have a password in it":                                                  func(o *Options) { o.Auth, o.JWKS = AuthJWT, "https://a:b@issuer.example.com/jwks" },
		"producer.jwks: is no address":                                                                   func(o *Options) { o.Auth, o.JWKS = AuthJWT, "https://" },
		"producer.jwks_refresh_interval: must be between 10s and 24h":                                    func(o *Options) { o.Auth, o.JWKSRefreshInterval = AuthJWT, time.Second },
		"producer.jwt_issuer: must be set":                                                               func(o *Options) { o.Auth = AuthJWT },
		"producer.jwt_audience: must be set":                                                             func(o *Options) { o.Auth = AuthJWT },
		"producer.jwt_algorithms: must name at least one of RS256":                                       func(o *Options) { o.Auth, o.JWTAlgorithms = AuthJWT, nil },
		`producer.jwt_algorithms: "HS256" is none of RS256`:                                              func(o *Options) { o.Auth, o.JWTAlgorithms = AuthJWT, []string{"RS256", "HS256"} },
		`producer.jwt_algorithms: "none" is none of RS256`:                                               func(o *Options) { o.Auth, o.JWTAlgorithms = AuthJWT, []string{"none"} },
		"producer.jwt_leeway: must be between 0 and 10m":                                                 func(o *Options) { o.Auth, o.JWTLeeway = AuthJWT, time.Hour },
		`producer.jwt_user_claim: "" is no claim's name`:                                                 func(o *Options) { o.Auth, o.JWTUserClaim = AuthJWT, "" },
		`producer.service_scope: "a b" is more than one scope`:                                           func(o *Options) { o.Auth, o.ServiceScope = AuthJWT, "a b" },
		"producer.user_rate: must be 0 (no limit), or between 0.001 and 1000000 a second":                func(o *Options) { o.UserRate = math.NaN() },
		"producer.address_rate: must be 0 (no limit)":                                                    func(o *Options) { o.AddressRate = -1 },
		"producer.user_burst: must be above zero":                                                        func(o *Options) { o.UserRate, o.UserBurst = 1, 0 },
		`producer.trusted_proxies: "10.0.0.0/33" is no network`:                                          func(o *Options) { o.TrustedProxies = []string{"10.0.0.0/33"} },
	} {
		o := DefaultOptions()
		change(&o)
		require.ErrorContains(t, o.Validate(), want)
	}
	err := Options{}.Validate()
	require.ErrorContains(t, err, "http_addr")
	require.ErrorContains(t, err, "shutdown_timeout", "all of it in one go")
}

// What a way to know who asks needs is enough for it.
func TestWhatEachAuthNeeds(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Auth, o.AuthTrustedCIDRs = AuthGateway, []string{"10.1.0.0/16", "192.0.2.1"} },
		func(o *Options) { o.JWKS = "/etc/kudos/jwks.json" },
		func(o *Options) { o.JWKS = "https://issuer.example.com/jwks.json" },
		func(o *Options) { o.JWKS = "http://localhost:8000/jwks.json" },
		func(o *Options) { o.JWKS, o.ServiceScope = "http://[::1]:8000/jwks.json", "" },
	} {
		o := DefaultOptions()
		o.JWTIssuer, o.JWTAudience = "https://issuer.example.com", "kudos"
		if change(&o); o.JWKS != "" {
			o.Auth = AuthJWT
		}
		require.NoError(t, o.Validate())
	}
}

// The slab of a request's records is made once.
func TestMaxRecordBytes(t *testing.T) {
	const most = 1<<64 - 1
	e := schema.Event{PostID: most, UserID: most, Action: schema.Dislike, TimeMs: 1<<63 - 1, Region: schema.Region{'G', 'B', '-', 'E', 'N', 'G'}}
	layout, err := schema.NewLayout(1, "18446744073709551615:1024")
	require.NoError(t, err)
	key, _, all := appendRecord(make([]byte, 0, maxRecordBytes), layout, &e)
	require.LessOrEqual(t, len(all), maxRecordBytes)
	require.Equal(t, "18446744073709551615/357", string(key), "the user's bucket")
	key, value, all := appendRecord(make([]byte, 0, maxRecordBytes), schema.Layout{}, &e)
	require.LessOrEqual(t, len(all), maxRecordBytes)
	require.Equal(t, "18446744073709551615", string(key))
	require.Equal(t, schema.AppendEvent(nil, &e), value)
	require.Zero(t, cap(key)-len(key), "what is appended to a key must not write into the value")
}
