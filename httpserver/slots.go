package httpserver

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// Slots bounds what is in flight, such as requests. An address may hold no more than what it leaves free: one gets at
// most half of the slots, two a third each, and a client with few requests always finds some. A fixed limit per address
// would have to suit an attacker as well as a network that many clients share.
type Slots struct {
	*semaphore.Weighted // of all; it can be waited for
	of, setting         string
	full, share         prometheus.Counter // refused because of all, and because of the address

	mu struct {
		sync.Mutex
		free int64
		held shares
	}
}

// FullError says why there is no slot.
type FullError struct {
	OfAddress bool // others may still get one
	error
}

// NewSlots returns slots for, say, "concurrent requests", as many as the setting says. refused counts what gets none,
// by kind; what is above an address's share, by address_ and the kind.
func NewSlots(total int, of, setting, kind string, refused *prometheus.CounterVec) *Slots {
	s := &Slots{Weighted: semaphore.NewWeighted(int64(total)), of: of, setting: setting,
		full: refused.WithLabelValues(kind), share: refused.WithLabelValues("address_" + kind)}
	s.mu.free = int64(total)
	return s
}

// Take takes n slots for a client, or returns a *FullError. The zero client is bounded by the total only.
func (s *Slots) Take(client netip.Addr, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.TryAcquire(n) {
		s.full.Inc()
		return &FullError{false, fmt.Errorf("the limit of %s is reached (%s)", s.of, s.setting)}
	}
	if client.IsValid() && s.mu.held[client]+n > s.mu.free {
		s.Release(n)
		s.share.Inc()
		role, _, _ := strings.Cut(s.setting, ".")
		return &FullError{true, fmt.Errorf("this address holds as many of the %s as it leaves free for others (%s); "+
			"if it is a proxy, list it in %s.trusted_proxies", s.of, s.setting, role)}
	}
	s.mu.free -= n
	s.mu.held.add(client, n)
	return nil
}

// Return frees n slots of a client.
func (s *Slots) Return(client netip.Addr, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.free += n
	s.mu.held.add(client, -n)
	s.Release(n)
}
