package sql

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// wireProxy stands between a store and a server, reads every statement, and can fail exactly one step.
// Protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
type wireProxy struct {
	listener net.Listener
	server   string
	conns    sync.WaitGroup

	mu struct {
		sync.Mutex
		onQuery     func(query string) verdict // nil: all pass
		queries     []string
		connections int
		open        []net.Conn
		closed      bool
	}
}

// verdict is what happens to a statement.
type verdict struct {
	step   step
	number uint16 // of the error the client gets, with refuse
	query  string // what the server gets, with rewrite
}

type step int

const (
	pass      step = iota
	cutBefore      // the connection breaks; the server never sees the statement
	cutAfter       // the connection breaks once the server has done it and answered
	refuse         // the client gets an error; the server never sees the statement
	rewrite        // the server gets another statement
)

// through puts a proxy in front of d, and returns d as seen through it.
func (d database) through(t testing.TB) (*wireProxy, database) {
	t.Helper()
	config, err := mysql.ParseDSN(d.options.DSN)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &wireProxy{listener: listener, server: config.Addr}
	p.conns.Go(p.accept)
	t.Cleanup(p.close)
	config.Addr = listener.Addr().String()
	d.options.DSN = config.FormatDSN()
	return p, d
}

// on sets what happens to the statements from now on.
func (p *wireProxy) on(f func(query string) verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.onQuery = f
}

// once lets v happen to the first statement that begins with prefix, and to no other.
func (p *wireProxy) once(prefix string, v verdict) {
	var done sync.Once
	p.on(func(query string) (answer verdict) {
		if strings.HasPrefix(query, prefix) {
			done.Do(func() { answer = v })
		}
		return answer
	})
}

// hold stops the first statement that begins with prefix until release, or the end of the test.
func (p *wireProxy) hold(t testing.TB, prefix string) (held <-chan struct{}, release func()) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	var first sync.Once
	p.on(func(query string) verdict {
		if strings.HasPrefix(query, prefix) {
			first.Do(func() {
				close(reached)
				<-goOn
			})
		}
		return verdict{}
	})
	return reached, release
}

// seen returns the statements since the last call.
func (p *wireProxy) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	queries := p.mu.queries
	p.mu.queries = nil
	return queries
}

func (p *wireProxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.connections
}

func (p *wireProxy) close() {
	p.mu.Lock()
	p.mu.closed = true
	open := p.mu.open
	p.mu.Unlock()
	p.listener.Close()
	for _, c := range open {
		c.Close()
	}
	p.conns.Wait()
}

func (p *wireProxy) accept() {
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
		p.mu.Lock()
		p.mu.connections++
		p.mu.open = append(p.mu.open, client, server)
		if p.mu.closed {
			client.Close()
			server.Close()
		}
		p.mu.Unlock()
		link := &proxyLink{proxy: p, client: client, server: server}
		p.conns.Go(link.clientToServer)
		p.conns.Go(link.serverToClient)
	}
}

type proxyLink struct {
	proxy          *wireProxy
	client, server net.Conn

	mu struct {
		sync.Mutex
		cutNext bool // the server's next answer is not passed on
	}
}

func (l *proxyLink) clientToServer() {
	defer l.client.Close()
	defer l.server.Close()
	for {
		packet, err := readPacket(l.client)
		if err != nil {
			return
		}
		v := verdict{}
		if packet[3] == 0 && len(packet) > 4 && packet[4] == commandQuery { // sequence 0 begins a command
			v = l.proxy.judge(string(packet[5:]))
		}
		switch v.step {
		case cutBefore:
			return
		case cutAfter:
			l.mu.Lock()
			l.mu.cutNext = true
			l.mu.Unlock()
		case refuse:
			if _, err := l.client.Write(errorPacket(v.number)); err != nil {
				return
			}
			continue
		case rewrite:
			packet = queryPacket(v.query)
		}
		if _, err := l.server.Write(packet); err != nil {
			return
		}
	}
}

func (l *proxyLink) serverToClient() {
	defer l.client.Close()
	defer l.server.Close()
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

func (p *wireProxy) judge(query string) verdict {
	p.mu.Lock()
	p.mu.queries = append(p.mu.queries, query)
	f := p.mu.onQuery
	p.mu.Unlock()
	if f == nil {
		return verdict{}
	}
	return f(query) // not under the lock: it may wait
}

const commandQuery = 0x03

func queryPacket(query string) []byte {
	size := 1 + len(query)
	return append([]byte{byte(size), byte(size >> 8), byte(size >> 16), 0, commandQuery}, query...)
}

// readPacket reads one packet, header included. Statements of 16 MB and more, which take several, do not occur.
func readPacket(r io.Reader) ([]byte, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	size := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	if size == 1<<24-1 {
		return nil, errors.New("proxy: packet continues")
	}
	packet := append(header, make([]byte, size)...)
	_, err := io.ReadFull(r, packet[4:])
	return packet, err
}

func errorPacket(number uint16) []byte {
	body := binary.LittleEndian.AppendUint16([]byte{0xff}, number)
	body = append(body, "#HY000by the proxy"...)
	return append([]byte{byte(len(body)), 0, 0, 1}, body...)
}
