package httpserver

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressOf(t *testing.T) {
	proxies, err := ParseNetworks([]string{"10.0.0.0/8", "2001:db8:1::/48", "127.0.0.1"})
	require.NoError(t, err)
	for _, tt := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:5", nil, "192.0.2.1"},
		{"192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"}, // not a trusted proxy
		{"10.0.0.1:5", nil, "10.0.0.1"},
		{"10.0.0.1:5", []string{"192.0.2.1"}, "192.0.2.1"},
		{"10.0.0.1:5", []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		{"10.0.0.1:5", []string{"198.51.100.1", "192.0.2.1,10.0.0.2 ,  127.0.0.1"}, "192.0.2.1"},
		{"10.0.0.1:5", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1:5", []string{"192.0.2.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:5", []string{""}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{"[2001:db8:1::1]:5", []string{"[2001:db8:2::1]:80"}, "2001:db8:2::1"},
		{"[2001:db8:1::1]:5", []string{"[2001:db8:2::1]"}, "2001:db8:2::1"},
		{"[2001:db8:1::1]:5", []string{"2001:db8:2::1"}, "2001:db8:2::1"},
		{"[::ffff:10.0.0.1]:5", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"[fe80::1%eth0]:5", nil, "fe80::1"},
		{"@", []string{"192.0.2.1"}, "invalid IP"},
	} {
		r := httptest.NewRequest("PUT", "/", nil)
		r.RemoteAddr = tt.remote
		for _, f := range tt.forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		require.Equal(t, tt.want, proxies.addressOf(r).String(), "%s, forwarded for %q", tt.remote, tt.forwarded)
	}
}

// A client with an IPv6 network must not evade its rate with a new address per request.
func TestSubscriberOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "2001:db8:1:2::": "2001:db8:1:2::",
	} {
		require.Equal(t, want, subscriberOf(ParseAddr(address)).String())
	}
	require.False(t, subscriberOf(ParseAddr("@")).IsValid())
}

func TestParseNetworks(t *testing.T) {
	n, err := ParseNetworks([]string{"10.1.2.3/16", "192.0.2.1", "2001:db8::/32", "::1"})
	require.NoError(t, err)
	for address, want := range map[string]bool{
		"10.1.0.1": true, "10.2.0.1": false, "192.0.2.1": true, "192.0.2.2": false,
		"2001:db8::1": true, "::1": true, "::2": false, "": false,
	} {
		require.Equal(t, want, n.Contain(ParseAddr(address)), address)
	}
	for _, bad := range []string{"", "10.0.0.0/33", "10.0.0", "example.com", "fe80::1%eth0", "10.0.0.1:80"} {
		_, err := ParseNetworks([]string{"10.0.0.0/8", bad})
		require.ErrorContains(t, err, fmt.Sprintf("%q is not a network", bad))
	}
}
