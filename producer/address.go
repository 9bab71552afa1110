package producer

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// networks are addresses, by prefix.
type networks []netip.Prefix

// parseNetworks reads prefixes (10.0.0.0/8) and single addresses.
func parseNetworks(texts []string) (networks, error) {
	var n networks
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, err := netip.ParseAddr(text)
			if err != nil || addr.Zone() != "" {
				return nil, fmt.Errorf("%q is no network, as 10.0.0.0/8 or 2001:db8::/32, and no address", text)
			}
			addr = addr.Unmap()
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		n = append(n, prefix.Masked())
	}
	return n, nil
}

func (n networks) contain(addr netip.Addr) bool {
	return slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// clientOf is the address that a request comes from. For a connection of these networks,
// which are proxies, that is the last one in X-Forwarded-For that is no proxy: what stands
// further left anybody may have written. Where it cannot be read it is the last that could.
func (n networks) clientOf(r *http.Request) netip.Addr {
	client := parseAddr(r.RemoteAddr)
	if !n.contain(client) {
		return client
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr := parseAddr(strings.TrimSpace(hop))
		if !addr.IsValid() {
			break
		}
		if client = addr; !n.contain(client) {
			break
		}
	}
	return client
}

// parseAddr reads an address with or without a port, as Go and proxies write it. What is
// none gives the zero Addr, which is in no network.
func parseAddr(text string) netip.Addr {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// subscriberOf is what one client has of the addresses: all of an IPv4 address, and the
// 64 bits of IPv6 within which it can take whichever it likes.
func subscriberOf(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	return netip.PrefixFrom(addr, 64).Masked().Addr()
}
