package httpserver

import (
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// Whatever the busiest addresses do, a new one gets a slot; and no address gets more than half.
func TestNoAddressTakesAllSlots(t *testing.T) {
	metric := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refused_total"}, []string{"kind"})
	s := NewSlots(1000, "concurrent requests", "reader.max_concurrent_requests", "requests", metric)
	takeAll := func(client netip.Addr) (taken int64) {
		for s.Take(client, 1) == nil {
			taken++
		}
		return taken
	}
	var held []int64
	for n := range byte(5) {
		held = append(held, takeAll(netip.AddrFrom4([4]byte{n})))
	}
	require.Equal(t, []int64{500, 250, 125, 63, 31}, held)
	full, ok := s.Take(netip.AddrFrom4([4]byte{}), 1).(*FullError)
	require.True(t, ok && full.OfAddress)
	require.EqualError(t, full, "this address holds as many of the concurrent requests as it leaves free for others "+
		"(reader.max_concurrent_requests); if it is a proxy, list it in reader.trusted_proxies")
	require.EqualValues(t, 6, testutil.ToFloat64(metric.WithLabelValues("address_requests")))

	left := takeAll(netip.Addr{}) // which has no share
	require.EqualValues(t, 31, left)
	full, ok = s.Take(one, 1).(*FullError)
	require.True(t, ok && !full.OfAddress)
	require.EqualError(t, full, "the limit of concurrent requests is reached (reader.max_concurrent_requests)")
	require.EqualValues(t, 2, testutil.ToFloat64(metric.WithLabelValues("requests")))

	s.Return(netip.Addr{}, left)
	for n, slots := range held {
		s.Return(netip.AddrFrom4([4]byte{byte(n)}), slots)
	}
	require.Empty(t, s.mu.held, "an address that holds nothing must cost no memory")
	require.NoError(t, s.Take(one, 1000), "a whole batch must be possible")
}
