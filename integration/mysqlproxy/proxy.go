// Package mysqlproxy is a test proxy for a MySQL server: it reads every statement and can make exactly one step fail.
//
// For each statement of the proxied connections, it calls the function set by On, and does what the returned Decision
// says: pass the statement on, close the connection before or after the server executes it, return an error instead of
// the response, or send another statement. SetUnavailable makes the server unavailable.
//
// Protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
package mysqlproxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Proxy forwards connections to one server. Its methods are safe for concurrent use.
type Proxy struct {
	listener net.Listener
	server   string
	ctx      context.Context // for connecting to the server
	cancel   context.CancelFunc
	work     sync.WaitGroup

	connections atomic.Int64 // forwarded so far

	mu struct {
		sync.Mutex
		decide       func(query string) Decision // nil: all pass
		open         map[net.Conn]struct{}
		away, closed bool
	}
}

// Start listens and forwards connections to the server until Close.
func Start(listen, server string) (*Proxy, error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("proxy of MySQL: %w", err)
	}
	p := &Proxy{listener: listener, server: server}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.open = map[net.Conn]struct{}{}
	p.work.Go(p.accept)
	return p, nil
}

// Addr is the listen address.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// On makes decide choose what happens to each statement from now on; nil lets all pass. Calls for different
// connections are concurrent. decide may block, which blocks its connection, but it must return before Close.
func (p *Proxy) On(decide func(query string) Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.decide = decide
}

// SetUnavailable(true) closes all connections and lets no new ones through until SetUnavailable(false).
func (p *Proxy) SetUnavailable(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.away = away
	if away {
		p.cutLocked()
	}
}

// Connections is how many connections have been forwarded so far.
func (p *Proxy) Connections() int { return int(p.connections.Load()) }

// Close closes all connections and returns when nothing is left running.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.cutLocked()
	p.mu.Unlock()
	p.cancel()
	p.listener.Close()
	p.work.Wait()
}

func (p *Proxy) cutLocked() {
	for c := range p.mu.open {
		c.Close()
	}
}

func (p *Proxy) accept() {
	var dialer net.Dialer
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.track(client) {
			continue
		}
		server, err := dialer.DialContext(p.ctx, "tcp", p.server)
		if err != nil || !p.track(server) {
			p.drop(client)
			continue
		}
		p.connections.Add(1)
		l := &link{proxy: p, client: client, server: server}
		p.work.Go(l.toServer)
		p.work.Go(l.toClient)
	}
}

// track registers a connection for closing. It closes a connection that is not allowed now, and returns false.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.away || p.mu.closed {
		c.Close()
		return false
	}
	p.mu.open[c] = struct{}{}
	return true
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.mu.open, c)
	}
}

func (p *Proxy) decide(query string) Decision {
	p.mu.Lock()
	decide := p.mu.decide
	p.mu.Unlock()
	if decide == nil {
		return Decision{}
	}
	return decide(query) // without the lock: decide may block
}

// Decision is what happens to a statement. The zero value lets it pass.
type Decision struct {
	// act returns what to send to the server instead of the packet, possibly nothing; false closes the connection.
	act func(l *link, packet []byte) (next []byte, ok bool)
}

// CutBefore closes the connection; the server never sees the statement.
func CutBefore() Decision { return Decision{func(*link, []byte) ([]byte, bool) { return nil, false }} }

// CutAfter closes the connection once the server has executed the statement and responded. then, if not nil, is called
// with whether the response was OK, as for a COMMIT that has committed.
func CutAfter(then func(ok bool)) Decision {
	if then == nil {
		then = func(bool) {}
	}
	return Decision{func(l *link, packet []byte) ([]byte, bool) {
		l.cut.Store(&then)
		return packet, true
	}}
}

// Refuse returns an error with this number to the client; the server never sees the statement.
func Refuse(number uint16) Decision {
	return Decision{func(l *link, _ []byte) ([]byte, bool) {
		_, err := l.client.Write(errorPacket(number))
		return nil, err == nil
	}}
}

// Rewrite sends another statement to the server.
func Rewrite(query string) Decision {
	return Decision{func(*link, []byte) ([]byte, bool) { return queryPacket(query), true }}
}

type link struct {
	proxy          *Proxy
	client, server net.Conn
	cut            atomic.Pointer[func(ok bool)] // is called with the server's next response, which is not forwarded
}

// toServer forwards packet by packet, to see the statements.
func (l *link) toServer() {
	defer l.proxy.drop(l.client, l.server)
	for {
		packet, err := readPacket(l.client)
		if err != nil {
			return
		}
		if query, ok := queryOf(packet); ok {
			if act := l.proxy.decide(query).act; act != nil {
				if packet, ok = act(l, packet); !ok {
					return
				}
			}
		}
		if _, err := l.server.Write(packet); err != nil {
			return
		}
	}
}

func (l *link) toClient() {
	defer l.proxy.drop(l.client, l.server)
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		if then := l.cut.Load(); then != nil {
			(*then)(n > headerLen && buf[headerLen] == answerOK)
			return
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

const (
	headerLen     = 4         // three bytes of size, one of sequence
	maxPacketSize = 1<<24 - 1 // limit of the size; larger statements continue in another packet
	commandQuery  = 0x03
	answerOK      = 0x00
	answerError   = 0xff
)

func readPacket(r io.Reader) ([]byte, error) {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	packet := append(header, make([]byte, packetSize(header))...)
	_, err := io.ReadFull(r, packet[headerLen:])
	return packet, err
}

func packetSize(header []byte) int { return int(header[0]) | int(header[1])<<8 | int(header[2])<<16 }

// queryOf returns the statement in a packet, if any. Statements of 16 MB or more, in several packets, always pass.
func queryOf(packet []byte) (query string, ok bool) {
	begins := packet[3] == 0 // sequence 0 starts a command
	if !begins || len(packet) == headerLen || packet[headerLen] != commandQuery || packetSize(packet) == maxPacketSize {
		return "", false
	}
	return string(packet[headerLen+1:]), true
}

func queryPacket(query string) []byte {
	size := 1 + len(query)
	return append([]byte{byte(size), byte(size >> 8), byte(size >> 16), 0, commandQuery}, query...)
}

func errorPacket(number uint16) []byte {
	body := binary.LittleEndian.AppendUint16([]byte{answerError}, number)
	body = append(body, "#HY000rejected by the proxy"...)
	return append([]byte{byte(len(body)), 0, 0, 1}, body...)
}
