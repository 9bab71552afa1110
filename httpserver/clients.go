package httpserver

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Networks are networks of proxies or gateways.
type Networks []netip.Prefix

// ParseNetworks parses networks, such as 10.0.0.0/8, and single addresses.
func ParseNetworks(texts []string) (Networks, error) {
	var n Networks
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, err := netip.ParseAddr(text)
			if err != nil || addr.Zone() != "" {
				return nil, fmt.Errorf("%q is not a network, such as 10.0.0.0/8 or 2001:db8::/32, or an address", text)
			}
			addr = addr.Unmap()
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		n = append(n, prefix.Masked())
	}
	return n, nil
}

// Contain reports whether an address is in one of the networks.
func (n Networks) Contain(addr netip.Addr) bool {
	return slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// ClientOf returns the address that identifies a request's client, for limits; see subscriberOf.
func (n Networks) ClientOf(r *http.Request) netip.Addr { return subscriberOf(n.addressOf(r)) }

// addressOf returns the client's address of a request. If the connection comes from these networks, which are trusted
// proxies, that is the last address in X-Forwarded-For that is not a proxy: what is left of it, anybody may have
// written. An entry that is not an address ends the search at the last one that is.
func (n Networks) addressOf(r *http.Request) netip.Addr {
	client := ParseAddr(r.RemoteAddr)
	if !n.Contain(client) {
		return client
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr := ParseAddr(strings.TrimSpace(hop))
		if !addr.IsValid() {
			break
		}
		if client = addr; !n.Contain(client) {
			break
		}
	}
	return client
}

// ParseAddr parses an address, with or without a port. Anything else gives the zero Addr, which is in no network.
func ParseAddr(text string) netip.Addr {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	addr, _ := netip.ParseAddr(strings.Trim(text, "[]")) // the zero Addr after an error
	return addr.Unmap().WithZone("")
}

// subscriberOf identifies one client: by an IPv4 address, or by the /64 in which an IPv6 client can use any address.
func subscriberOf(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	return netip.PrefixFrom(addr, 64).Masked().Addr()
}
