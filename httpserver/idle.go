package httpserver

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// idleConns bounds the connections without a request in flight: those that wait for their first or next one, or have
// sent only a part of its headers. One that is evicted costs its client only a new connection.
type idleConns struct {
	bounded
	conns sync.Map // of *holding, by net.Conn
}

const maxIdleConns = 10_000 // at most some 20 KB each

// state is http.Server.ConnState. StateIdle for an idle connection means that it has not waited so far.
func (i *idleConns) state(conn net.Conn, state http.ConnState) {
	if h, known := i.conns.Load(conn); known {
		evicted := !i.leave(h.(*holding))
		if evicted && state != http.StateClosed {
			return
		}
		i.conns.Delete(conn)
	}
	if state != http.StateNew && state != http.StateIdle {
		return
	}
	h := i.enter(subscriberOf(ParseAddr(conn.RemoteAddr().String())), func() {
		if encrypted, ok := conn.(*tls.Conn); ok {
			_ = encrypted.NetConn().Close() // its own Close would wait for the client
			return
		}
		_ = conn.Close()
	})
	i.conns.Store(conn, h)
	i.hold(h, 1)
}
