package mysqlproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Proxy passes connections on to one server. Its methods may be called at any time, from any goroutine.
type Proxy struct {
	listener net.Listener
	server   string
	ctx      context.Context // of connecting to the server
	cancel   context.CancelFunc
	work     sync.WaitGroup

	mu struct {
		sync.Mutex
		judge       func(query string) Verdict // nil: all pass
		open        map[net.Conn]struct{}
		connections int
		away        bool
		closed      bool
	}
}

// Start listens, and passes on what comes to the server, until Close.
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

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// On has judge decide on each statement from now on; nil lets all pass. Statements of different connections are judged
// at the same time. judge may wait, which holds its connection, but not beyond Close.
func (p *Proxy) On(judge func(query string) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.judge = judge
}

// SetAway cuts all connections and lets no new ones through, until it is set back.
func (p *Proxy) SetAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.away = away
	if away {
		p.cutLocked()
	}
}

// Connections is how many have been passed on so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.connections
}

// Close cuts all connections and returns when nothing is left running.
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
		if err != nil {
			p.drop(client)
			continue
		}
		if !p.track(server) {
			p.drop(client)
			continue
		}
		p.mu.Lock()
		p.mu.connections++
		p.mu.Unlock()
		l := &link{proxy: p, client: client, server: server}
		p.work.Go(l.toServer)
		p.work.Go(l.toClient)
	}
}

// track keeps a connection to be cut; it closes one that must not be.
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

func (p *Proxy) judge(query string) Verdict {
	p.mu.Lock()
	judge := p.mu.judge
	p.mu.Unlock()
	if judge == nil {
		return Verdict{}
	}
	return judge(query) // not under the lock: it may wait
}
