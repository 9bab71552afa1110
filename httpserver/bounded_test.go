package httpserver

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// A client that holds more than half loses its own, even if others are older. Otherwise the oldest goes.
func TestFloodEvictsItself(t *testing.T) {
	b := &bounded{limit: 8}
	hold := func(client netip.Addr) *holding {
		h := b.enter(client, func() {})
		b.hold(h, 1)
		return h
	}
	other, all := netip.MustParseAddr("192.0.2.2"), []*holding{}
	old, flood := hold(other), []*holding{}
	for range 100 {
		flood = append(flood, hold(one))
	}
	newer := hold(other)
	for i, h := range flood {
		require.Equal(t, i >= 94, h.at != nil, "holding %d of the flood", i)
	}
	require.True(t, b.leave(old) && b.leave(newer))
	for _, h := range flood {
		b.leave(h)
	}
	require.Empty(t, b.mu.of)
	for n := range byte(10) {
		all = append(all, hold(netip.AddrFrom4([4]byte{n})))
	}
	for n, h := range all {
		require.Equal(t, n >= 2, h.at != nil, "holding %d of 10 clients", n)
	}
}
