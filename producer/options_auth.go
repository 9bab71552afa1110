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
)

// asymmetric are the algorithms whose keys can be published (RFC 7518, RFC 8037). One that
// signs with a shared secret would let whoever can verify tokens make them as well.
var asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// validateAuth says what is wrong with how it is known who sends a request. What the
// other ways need may be missing.
func (o Options) validateAuth(bad func(key, format string, args ...any)) {
	if _, err := parseNetworks(o.AuthTrustedCIDRs); err != nil {
		bad("auth_trusted_cidrs", "%w", err)
	}
	switch o.Auth {
	case AuthNone:
	case AuthGateway:
		if !httpguts.ValidHeaderFieldName(o.AuthHeader) {
			bad("auth_header", "%q is no header's name", o.AuthHeader)
		}
		if len(o.AuthTrustedCIDRs) == 0 {
			bad("auth_trusted_cidrs", "must name the networks that the gateway is in: nobody else's %s is believed", o.AuthHeader)
		}
	case AuthJWT:
		o.validateJWT(bad)
	default:
		bad("auth", "%q is none of %s, %s and %s", o.Auth, AuthNone, AuthGateway, AuthJWT)
	}
}

func (o Options) validateJWT(bad func(key, format string, args ...any)) {
	if err := checkJWKS(o.JWKS); err != nil {
		bad("jwks", "%w", err)
	}
	if o.JWKSRefreshInterval < 10*time.Second || o.JWKSRefreshInterval > 24*time.Hour {
		bad("jwks_refresh_interval", "must be between 10s and 24h")
	}
	for _, s := range []struct{ key, value string }{{"jwt_issuer", o.JWTIssuer}, {"jwt_audience", o.JWTAudience}} {
		if s.value == "" {
			bad(s.key, "must be set: tokens of others, or for others, would be taken")
		}
	}
	if len(o.JWTAlgorithms) == 0 {
		bad("jwt_algorithms", "must name at least one of %s", strings.Join(asymmetric, ", "))
	}
	for _, alg := range o.JWTAlgorithms {
		if !slices.Contains(asymmetric, alg) {
			bad("jwt_algorithms", "%q is none of %s", alg, strings.Join(asymmetric, ", "))
		}
	}
	if o.JWTLeeway < 0 || o.JWTLeeway > 10*time.Minute {
		bad("jwt_leeway", "must be between 0 and 10m")
	}
	// It is repeated in WWW-Authenticate.
	if o.JWTUserClaim == "" || strings.ContainsFunc(o.JWTUserClaim, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		bad("jwt_user_claim", "%q is no claim's name: at least one of the visible characters of ASCII, without quotes", o.JWTUserClaim)
	}
	if strings.ContainsAny(o.ServiceScope, " \t\r\n") {
		bad("service_scope", "%q is more than one scope", o.ServiceScope)
	}
}

// checkJWKS refuses addresses from which anybody on the way could send keys of their own.
func checkJWKS(source string) error {
	if source == "" {
		return errors.New("must name a file, or an address as https://issuer.example.com/jwks.json")
	}
	if !isURL(source) {
		return nil
	}
	u, err := url.Parse(source)
	switch {
	case err != nil || u.Host == "":
		return errors.New("is no address as https://issuer.example.com/jwks.json")
	case u.User != nil:
		return errors.New("must not have a password in it: it is logged")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()):
		return nil
	}
	return fmt.Errorf("must be https, not %s, but on this machine", u.Scheme)
}

func (o Options) validateRates(bad func(key, format string, args ...any)) {
	if _, err := parseNetworks(o.TrustedProxies); err != nil {
		bad("trusted_proxies", "%w", err)
	}
	for _, l := range []struct {
		key   string
		rate  float64
		burst int
	}{
		{"user", o.UserRate, o.UserBurst},
		{"address", o.AddressRate, o.AddressBurst},
	} {
		// Not the other way round: NaN is no rate either.
		if usable := l.rate == 0 || l.rate >= 0.001 && l.rate <= 1_000_000; !usable {
			bad(l.key+"_rate", "must be 0 (no limit), or between 0.001 and 1000000 a second")
		}
		if l.rate != 0 && l.burst < 1 {
			bad(l.key+"_burst", "must be above zero")
		}
	}
}
