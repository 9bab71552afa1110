package chaos

import (
	"io"
	"net"
	"strings"
	"sync"
)

// commitProxy passes MySQL connections on, and can break one at the worst of moments: the server has committed and has
// answered, and the answer does not arrive.
// Protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
type commitProxy struct {
	listener net.Listener
	server   string
	work     sync.WaitGroup

	mu struct {
		sync.Mutex
		open   map[net.Conn]struct{}
		closed bool
		armed  int // COMMITs whose answers are still to be lost
		lost   int // those that were
	}
}

func newCommitProxy(listen, server string) (*commitProxy, error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := &commitProxy{listener: listener, server: server}
	p.mu.open = map[net.Conn]struct{}{}
	p.work.Go(p.accept)
	return p, nil
}

// lose has the answers to the next n COMMITs lost.
func (p *commitProxy) lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.armed = n
}

// lost is how many answers were lost so far.
func (p *commitProxy) lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.lost
}

func (p *commitProxy) close() {
	p.mu.Lock()
	p.mu.closed = true
	for c := range p.mu.open {
		c.Close()
	}
	p.mu.Unlock()
	p.listener.Close()
	p.work.Wait()
}

func (p *commitProxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		c.Close()
		return false
	}
	p.mu.open[c] = struct{}{}
	return true
}

func (p *commitProxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.mu.open, c)
	}
}

func (p *commitProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		if p.track(client) && p.track(server) {
			l := &commitLink{proxy: p, client: client, server: server}
			p.work.Go(l.toServer)
			p.work.Go(l.toClient)
		} else {
			p.drop(client, server)
		}
	}
}

// commitLink is one connection.
type commitLink struct {
	proxy          *commitProxy
	client, server net.Conn

	mu struct {
		sync.Mutex
		losing bool // the server's next answer is not passed on
	}
}

// toServer reads packet by packet, to see a COMMIT go by.
func (l *commitLink) toServer() {
	defer l.proxy.drop(l.client, l.server)
	const commandQuery = 0x03
	for {
		header := make([]byte, 4)
		if _, err := io.ReadFull(l.client, header); err != nil {
			return
		}
		packet := append(header, make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)...)
		if _, err := io.ReadFull(l.client, packet[4:]); err != nil {
			return
		}
		if len(packet) > 4 && packet[3] == 0 && packet[4] == commandQuery && strings.EqualFold(string(packet[5:]), "COMMIT") {
			l.sawCommit()
		}
		if _, err := l.server.Write(packet); err != nil {
			return
		}
	}
}

func (l *commitLink) sawCommit() {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.armed == 0 {
		return
	}
	p.mu.armed--
	l.mu.Lock()
	l.mu.losing = true
	l.mu.Unlock()
}

func (l *commitLink) toClient() {
	defer l.proxy.drop(l.client, l.server)
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		losing := l.mu.losing
		l.mu.Unlock()
		if losing {
			const ok = 0x00
			if n > 4 && buf[4] == ok { // the server has committed and said so; anything else is just a connection that breaks
				l.proxy.mu.Lock()
				l.proxy.mu.lost++
				l.proxy.mu.Unlock()
			}
			return
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}
