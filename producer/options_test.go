package producer

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-viper/mapstructure/v2"
	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func TestDefaultOptionsAreValid(t *testing.T) { require.NoError(t, DefaultOptions().Validate()) }

// with returns the default options with settings changed, given as "key value key value".
func with(t *testing.T, set string) Options {
	t.Helper()
	o, values := DefaultOptions(), map[string]any{}
	for pair := range slices.Chunk(strings.Fields(set), 2) {
		values[pair[0]] = strings.Trim(pair[1], `"`)
	}
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: &o, WeaklyTypedInput: true, ErrorUnused: true, ZeroFields: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToSliceHookFunc(",")),
	})
	require.NoError(t, err)
	require.NoError(t, decoder.Decode(values), set)
	return o
}

func TestValidateReportsAllErrors(t *testing.T) {
	for _, wrong := range [][2]string{
		{`origins https://www.example.com,www.example.com`, `origins: "www.example.com" is not an origin`},
		{`http_addr 8080`, `http_addr: "8080" is not host:port`},
		{`max_body_bytes 0`, `max_body_bytes: must be above zero`},
		{`max_batch_bytes -1`, `max_batch_bytes: must be above zero`},
		{`max_batch_lines 0`, `max_batch_lines: must be above zero`},
		{`max_header_bytes 0`, `max_header_bytes: must be above zero`},
		{`max_concurrent_requests 0`, `max_concurrent_requests: must be above zero`},
		{`max_concurrent_batches 0`, `max_concurrent_batches: must be above zero`},
		{`max_buffered_records 9999`, `max_buffered_records: must be at least producer.max_batch_lines (10000)`},
		{`ready_timeout 0`, `ready_timeout: must be above zero`},
		{`read_header_timeout 0`, `read_header_timeout: must be above zero`},
		{`idle_timeout -1s`, `idle_timeout: must be above zero`},
		{`linger 2s`, `linger: must be between 0 and 1s`},
		{`ack_timeout 1ms`, `ack_timeout: must be at least 200ms`},
		{`retry_after 1ms`, `retry_after: must be at least 1s`},
		{`read_timeout 0`, `read_timeout: must be above zero`},
		{`write_timeout 39s`, `write_timeout: must be at least producer.read_timeout plus producer.ack_timeout (40s)`},
		{`shutdown_timeout 10s`, `shutdown_timeout: must be above producer.ack_timeout (10s)`},
		{`tls_cert cert.pem`, `tls_cert: tls_cert and tls_key go together`},
		{`auth oauth`, `auth: "oauth" is not one of none, gateway and jwt`},
		{`auth_trusted_cidrs here`, `auth_trusted_cidrs: "here" is not a network`},
		{`auth gateway`, `auth_trusted_cidrs: must list the networks of the gateway`},
		{`auth gateway auth_header ""`, `auth_header: "" is not a header name`},
		{`auth jwt`, `jwks: must be a file, or a URL`},
		{`auth jwt jwks http://issuer.example.com/jwks`, `jwks: must be https, not http, except on this machine`},
		{`auth jwt jwks ftp://127.0.0.1/jwks`, `jwks: must be https, not ftp`},
		{`auth jwt jwks https://a:b@issuer.example.com/jwks`, `jwks: must not contain a password`},
		{`auth jwt jwks https://`, `jwks: is not a URL`},
		{`auth jwt jwks_refresh_interval 1s`, `jwks_refresh_interval: must be between 10s and 24h`},
		{`auth jwt`, `jwt_issuer: must be set`},
		{`auth jwt`, `jwt_audience: must be set`},
		{`auth jwt jwt_algorithms ""`, `jwt_algorithms: must name at least one of RS256`},
		{`auth jwt jwt_algorithms RS256,HS256`, `jwt_algorithms: "HS256" is not one of RS256`},
		{`auth jwt jwt_algorithms none`, `jwt_algorithms: "none" is not one of RS256`},
		{`auth jwt jwt_leeway 1h`, `jwt_leeway: must be between 0 and 10m`},
		{`auth jwt jwt_user_claim ""`, `jwt_user_claim: "" is not a claim name`},
		{`user_rate NaN`, `user_rate: must be 0 (no limit), or between 0.001 and 1000000 a second`},
		{`address_rate -1`, `address_rate: must be 0 (no limit)`},
		{`user_rate 1 user_burst 0`, `user_burst: must be above zero`},
		{`trusted_proxies 10.0.0.0/33`, `trusted_proxies: "10.0.0.0/33" is not a network`},
	} {
		require.ErrorContains(t, with(t, wrong[0]).Validate(), "producer."+wrong[1], wrong[0])
	}
	o := with(t, `auth jwt`)
	o.ServiceScope = "a b"
	require.ErrorContains(t, o.Validate(), `producer.service_scope: "a b" is more than one scope`)
	err := Options{}.Validate()
	require.ErrorContains(t, err, "http_addr")
	require.ErrorContains(t, err, "shutdown_timeout", "all errors must be reported together")
}

func TestSettingsOfEachAuth(t *testing.T) {
	require.NoError(t, with(t, `auth gateway auth_trusted_cidrs 10.1.0.0/16,192.0.2.1`).Validate())
	const jwt = `auth jwt jwt_issuer https://issuer.example.com jwt_audience kudos jwks `
	for _, jwks := range []string{
		`/etc/kudos/jwks.json`, `https://issuer.example.com/jwks.json`, `http://localhost:8000/jwks.json`,
		`http://[::1]:8000/jwks.json service_scope ""`,
	} {
		require.NoError(t, with(t, jwt+jwks).Validate(), jwks)
	}
}

// The memory for a request's records is allocated once, so the maximum must be right.
func TestMaxRecordBytes(t *testing.T) {
	const most = 1<<64 - 1
	e := schema.Event{PostID: most, UserID: most, Action: schema.Dislike, TimeMs: 1<<63 - 1,
		Region: schema.Region{'G', 'B', '-', 'E', 'N', 'G'}}
	layout, err := schema.NewLayout(1, "18446744073709551615:1024")
	require.NoError(t, err)
	key, _, all := appendRecord(make([]byte, 0, maxRecordBytes), layout, &e)
	require.LessOrEqual(t, len(all), maxRecordBytes)
	require.Equal(t, "18446744073709551615/357", string(key), "the user's bucket")
	key, value, all := appendRecord(make([]byte, 0, maxRecordBytes), schema.Layout{}, &e)
	require.LessOrEqual(t, len(all), maxRecordBytes)
	require.Equal(t, "18446744073709551615", string(key))
	require.Equal(t, schema.AppendEvent(nil, &e), value)
	require.Zero(t, cap(key)-len(key), "appending to the key must not overwrite the value")
}
