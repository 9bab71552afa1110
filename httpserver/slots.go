package httpserver

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// Slots bounds what is in flight, such as requests, and leaves room for others than the busiest client: an address may
// hold no more than what is still free. So one address gets at most half of the slots, two get a third each, and a
// client with few requests in flight is accepted beside them. A limit per address would have to suit both a client that
// attacks and a network that many clients share; this one grows with what nobody else uses.
type Slots struct {
	*semaphore.Weighted // of all; it can be waited for
	limit               Limit
	all, address        prometheus.Counter // refused because of all, and of the address

	mu struct {
		sync.Mutex
		free int64
		held shares
	}
}

// Limit says what Slots bounds.
type Limit struct {
	Total   int
	Of      string // in messages: "concurrent requests"
	Role    string // "reader"
	Setting string // of the role, has Total: "max_concurrent_requests"
	Kind    string // in metrics: "requests"; what the address's share refuses has "address_" before it
}

// FullError says why there is no slot.
type FullError struct {
	OfAddress bool // others may still get one
	text      string
}

func (e *FullError) Error() string { return e.text }

// NewSlots returns slots that are all free; refused counts by kind what gets none.
func NewSlots(l Limit, refused *prometheus.CounterVec) *Slots {
	s := &Slots{Weighted: semaphore.NewWeighted(int64(l.Total)), limit: l,
		all: refused.WithLabelValues(l.Kind), address: refused.WithLabelValues("address_" + l.Kind)}
	s.mu.free, s.mu.held = int64(l.Total), shares{}
	return s
}

// Take takes n slots for a client, or returns a *FullError. The zero client is bounded by the total only.
func (s *Slots) Take(client netip.Addr, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limit
	switch {
	case !s.TryAcquire(n):
		s.all.Inc()
		return &FullError{false, fmt.Sprintf("the limit of %s is reached (%s.%s)", l.Of, l.Role, l.Setting)}
	case client.IsValid() && s.mu.held[client]+n > s.mu.free:
		s.Release(n)
		s.address.Inc()
		return &FullError{true, fmt.Sprintf("this address holds as many of the %s as it leaves free for others (%s.%s); "+
			"if it is a proxy, list it in %s.trusted_proxies", l.Of, l.Role, l.Setting, l.Role)}
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

// shares is how much each client holds; who holds nothing is not in it.
type shares map[netip.Addr]int64

func (s shares) add(client netip.Addr, n int64) {
	if !client.IsValid() {
		return
	}
	if s[client] += n; s[client] == 0 {
		delete(s, client)
	}
}
