package processor_test

import (
	"io"
	"net"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// proxy stands between the processors and MySQL. It can keep the server away, and break
// a connection around a COMMIT.
// Protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
type proxy struct {
	listener net.Listener
	server   string
	conns    sync.WaitGroup

	mu struct {
		sync.Mutex
		away    bool
		closed  bool
		open    map[net.Conn]struct{}
		commits []commitCut // what happens to the next COMMITs
	}
}

type commitCut int

const (
	commitPass    commitCut = iota
	commitLost              // the connection breaks; the server never sees the COMMIT
	commitUnknown           // the connection breaks once the server has committed and answered
)

// throughProxy has all processors that are started from now on reach MySQL through a
// proxy.
func (s *system) throughProxy() *proxy {
	config, err := mysql.ParseDSN(s.mysql.DSN)
	require.NoError(s.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	p := &proxy{listener: listener, server: config.Addr}
	p.mu.open = map[net.Conn]struct{}{}
	p.conns.Go(p.accept)
	s.t.Cleanup(p.close)
	config.Addr = listener.Addr().String()
	s.mysql.DSN = config.FormatDSN()
	return p
}

// setAway cuts all connections and lets no new ones through, until it is set back.
func (p *proxy) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.away = away
	if away {
		for c := range p.mu.open {
			c.Close()
		}
	}
}

// cutCommits says what happens to the next COMMITs, one after another.
func (p *proxy) cutCommits(cuts ...commitCut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.commits = cuts
}

// pending is how many COMMITs have not come yet.
func (p *proxy) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.commits)
}

func (p *proxy) nextCommit() commitCut {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.commits) == 0 {
		return commitPass
	}
	c := p.mu.commits[0]
	p.mu.commits = p.mu.commits[1:]
	return c
}

func (p *proxy) close() {
	p.mu.Lock()
	p.mu.closed = true
	for c := range p.mu.open {
		c.Close()
	}
	p.mu.Unlock()
	p.listener.Close()
	p.conns.Wait()
}

// track keeps a connection to be cut; it closes one that must not be.
func (p *proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.mu.away || p.mu.closed {
			c.Close()
		} else {
			p.mu.open[c] = struct{}{}
		}
	}
	return !p.mu.away && !p.mu.closed
}

func (p *proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.mu.open, c)
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.track(client) {
			continue
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			p.forget(client)
			continue
		}
		if !p.track(server) {
			continue
		}
		l := &link{proxy: p, client: client, server: server}
		p.conns.Go(l.toServer)
		p.conns.Go(l.toClient)
	}
}

// link is one connection through the proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn

	mu struct {
		sync.Mutex
		cutNext bool // the server's next answer is not passed on
	}
}

func (l *link) toServer() {
	defer l.proxy.forget(l.client, l.server)
	for {
		header := make([]byte, 4)
		if _, err := io.ReadFull(l.client, header); err != nil {
			return
		}
		packet := append(header, make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)...)
		if _, err := io.ReadFull(l.client, packet[4:]); err != nil {
			return
		}
		const commandQuery = 0x03
		if len(packet) > 4 && packet[3] == 0 && packet[4] == commandQuery && strings.EqualFold(string(packet[5:]), "COMMIT") {
			switch l.proxy.nextCommit() {
			case commitLost:
				return
			case commitUnknown:
				l.mu.Lock()
				l.mu.cutNext = true
				l.mu.Unlock()
			}
		}
		if _, err := l.server.Write(packet); err != nil {
			return
		}
	}
}

func (l *link) toClient() {
	defer l.proxy.forget(l.client, l.server)
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		cut := l.mu.cutNext
		l.mu.Unlock()
		if cut {
			return
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}
