package httpserver

import (
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func newSlots(total int) (s *Slots, refused func(kind string) int) {
	metric := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refused_total"}, []string{"kind"})
	s = NewSlots(Limit{total, "concurrent requests", "reader", "max_concurrent_requests", "requests"}, metric)
	return s, func(kind string) int { return int(testutil.ToFloat64(metric.WithLabelValues(kind))) }
}

// Whatever the busiest addresses do, a new one gets a slot; and no address gets more than half.
func TestNoAddressTakesAllSlots(t *testing.T) {
	s, refused := newSlots(1000)
	address := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	takeAll := func(client netip.Addr) (taken int64) {
		for s.Take(client, 1) == nil {
			taken++
		}
		return taken
	}
	held := map[byte]int64{}
	for n := range byte(5) {
		held[n] = takeAll(address(n))
	}
	require.Equal(t, map[byte]int64{0: 500, 1: 250, 2: 125, 3: 63, 4: 31}, held)
	require.Equal(t, 5, refused("address_requests"))
	require.Zero(t, refused("requests"))
	full, ok := s.Take(address(0), 1).(*FullError)
	require.True(t, ok && full.OfAddress)
	require.EqualError(t, full, "this address holds as many of the concurrent requests as it leaves free for others "+
		"(reader.max_concurrent_requests); if it is a proxy, list it in reader.trusted_proxies")

	left := takeAll(netip.Addr{}) // which has no share
	require.EqualValues(t, 31, left)
	full, ok = s.Take(address(9), 1).(*FullError)
	require.True(t, ok && !full.OfAddress)
	require.EqualError(t, full, "the limit of concurrent requests is reached (reader.max_concurrent_requests)")
	require.Equal(t, 2, refused("requests"))

	s.Return(netip.Addr{}, left)
	for n, slots := range held {
		s.Return(address(n), slots)
	}
	require.Empty(t, s.mu.held, "an address that holds nothing must cost no memory")
	require.True(t, s.TryAcquire(1000), "all slots must be free again")
}

// A single slot can be used, and so can all of them at once.
func TestFewSlots(t *testing.T) {
	s, _ := newSlots(3)
	require.NoError(t, s.Take(one, 3))
	require.Error(t, s.Take(netip.Addr{}, 1))
	s.Return(one, 3)
	require.Error(t, s.Take(one, 4))
	require.NoError(t, s.Take(one, 1))
	require.Error(t, s.Take(one, 2), "it would leave none to others")
	require.NoError(t, s.Take(one, 1))
	require.Error(t, s.Take(one, 1))
	require.NoError(t, s.Take(netip.Addr{}, 1))
}
