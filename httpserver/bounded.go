package httpserver

import (
	"container/list"
	"net/netip"
	"sync"
)

// bounded is a limit on what clients hold together. Beyond it, the oldest holdings are evicted: those of the client
// that holds more than half, if there is one. So a client's flood evicts itself.
type bounded struct {
	limit int64

	mu struct {
		sync.Mutex
		held    int64
		of      shares
		busiest netip.Addr // the client that holds most
		oldest  list.List  // of *holding, oldest first
	}
}

type holding struct {
	client netip.Addr
	evict  func() // called with the lock
	held   int64
	at     *list.Element // nil: evicted, or has left
}

func (b *bounded) enter(client netip.Addr, evict func()) *holding {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &holding{client: client, evict: evict}
	h.at = b.mu.oldest.PushBack(h)
	return h
}

// hold records how much h holds now, and evicts until the total is within the limit.
func (b *bounded) hold(h *holding, amount int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.at == nil {
		return
	}
	b.addLocked(h, amount-h.held)
	for b.mu.held > b.limit {
		oldest := b.mu.oldest.Front().Value.(*holding)
		if b.mu.of[b.mu.busiest] > b.limit/2 && oldest.client != b.mu.busiest {
			b.mu.oldest.MoveToBack(oldest.at) // so that it is passed over only once
			continue
		}
		b.removeLocked(oldest)
		oldest.evict()
	}
}

// leave removes a holding. It returns false if it was evicted.
func (b *bounded) leave(h *holding) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.at == nil {
		return false
	}
	b.removeLocked(h)
	return true
}

func (b *bounded) removeLocked(h *holding) {
	b.addLocked(h, -h.held)
	b.mu.oldest.Remove(h.at)
	h.at = nil
}

func (b *bounded) addLocked(h *holding, amount int64) {
	h.held += amount
	b.mu.held += amount
	b.mu.of.add(h.client, amount)
	if b.mu.of[h.client] > b.mu.of[b.mu.busiest] {
		b.mu.busiest = h.client
	}
}

// shares is how much each client holds; who holds nothing is not in it.
type shares map[netip.Addr]int64

func (s *shares) add(client netip.Addr, amount int64) {
	if *s == nil {
		*s = shares{}
	}
	if (*s)[client] += amount; (*s)[client] == 0 {
		delete(*s, client)
	}
}
