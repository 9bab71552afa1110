package httpserver

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// idleConns bounds the connections without a request in flight: those that wait for their first or next one, or have
// sent only a part of its headers. There is always room for one more: a client that has more than half of them loses
// the one that waits longest, or if there is none, the one that waits longest of all is closed. So a client's flood
// evicts itself. A connection that is closed early only costs its client a new one.
type idleConns struct {
	max int

	mu struct {
		sync.Mutex
		conns   map[net.Conn]*idleConn // all that are open
		waiting list.List              // of *idleConn, the longest first
		of      map[netip.Addr]*list.List
		busiest netip.Addr // the client that has most of them
	}
}

type idleConn struct {
	net.Conn
	client  netip.Addr
	at, own *list.Element // in waiting and of; nil: not idle
}

const maxIdleConns = 10_000 // at most some 20 KB each

func newIdleConns(limit int) *idleConns {
	i := &idleConns{max: limit}
	i.mu.conns, i.mu.of = map[net.Conn]*idleConn{}, map[netip.Addr]*list.List{}
	return i
}

// state is http.Server.ConnState. StateIdle for an idle connection means that it has not waited so far.
func (i *idleConns) state(conn net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.mu.conns[conn]
	if c == nil {
		if state != http.StateNew {
			return
		}
		c = &idleConn{Conn: conn, client: subscriberOf(ParseAddr(conn.RemoteAddr().String()))}
		i.mu.conns[conn] = c
	}
	i.removeLocked(c)
	switch state {
	case http.StateNew, http.StateIdle:
		i.addLocked(c)
	case http.StateHijacked, http.StateClosed:
		delete(i.mu.conns, conn)
	}
}

func (i *idleConns) addLocked(c *idleConn) {
	own := i.mu.of[c.client]
	if own == nil {
		own = list.New()
		i.mu.of[c.client] = own
	}
	c.at, c.own = i.mu.waiting.PushBack(c), own.PushBack(c)
	if busiest := i.mu.of[i.mu.busiest]; busiest == nil || own.Len() > busiest.Len() {
		i.mu.busiest = c.client
	}
	if i.mu.waiting.Len() <= i.max {
		return
	}
	longest := i.mu.waiting.Front()
	if busiest := i.mu.of[i.mu.busiest]; busiest.Len() > i.max/2 {
		longest = busiest.Front()
	}
	evicted := longest.Value.(*idleConn)
	i.removeLocked(evicted)
	delete(i.mu.conns, evicted.Conn)
	if encrypted, ok := evicted.Conn.(*tls.Conn); ok {
		_ = encrypted.NetConn().Close() // its own Close would wait for the client
		return
	}
	_ = evicted.Close()
}

func (i *idleConns) removeLocked(c *idleConn) {
	if c.at == nil {
		return
	}
	i.mu.waiting.Remove(c.at)
	own := i.mu.of[c.client]
	own.Remove(c.own)
	if own.Len() == 0 {
		delete(i.mu.of, c.client)
	}
	c.at, c.own = nil, nil
}
