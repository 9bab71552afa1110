package testkit

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Wire observes a broker's connections: it records the software name of each client, and can drop responses.
type Wire struct {
	Cut  atomic.Bool // drop the next response and close its connection
	Mute atomic.Bool // drop all responses; connections stay open

	mu       sync.Mutex
	software []string // the clients' software names, in order of connection
}

// Option makes a cluster listen through the wire.
func (w *Wire) Option() kfake.Opt {
	return kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return wireListener{l, w}, err
	})
}

// Seen returns the software names of the clients so far.
func (w *Wire) Seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.software...)
}

type wireListener struct {
	net.Listener
	w *Wire
}

func (l wireListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, w: l.w}, nil
}

type wireConn struct {
	net.Conn
	w     *Wire
	first []byte // the client's bytes until its first request is complete
	told  bool
}

func (c *wireConn) Write(b []byte) (int, error) {
	if c.w.Cut.CompareAndSwap(true, false) {
		c.Close()
		return 0, net.ErrClosed
	}
	if c.w.Mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.told {
		c.first = append(c.first, b[:n]...)
		if name, whole := softwareName(c.first); whole {
			c.w.mu.Lock()
			c.w.software = append(c.w.software, name)
			c.w.mu.Unlock()
			c.told, c.first = true, nil
		}
	}
	return n, err
}

// softwareName returns the name in a connection's first request: clients that send it do so in an ApiVersions request.
func softwareName(b []byte) (name string, whole bool) {
	if len(b) < 4 || len(b)-4 < int(binary.BigEndian.Uint32(b)) {
		return "", false
	}
	// Layout: size, key, version, correlation id, client id; then tags and the request.
	key, version := int16(binary.BigEndian.Uint16(b[4:])), int16(binary.BigEndian.Uint16(b[6:]))
	if key != int16(kmsg.ApiVersions) || version < 3 {
		return "no ApiVersions request", true
	}
	at := 14
	if n := int16(binary.BigEndian.Uint16(b[12:])); n > 0 {
		at += int(n)
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = version
	if err := req.ReadFrom(b[at+1:]); err != nil { // +1: no tags
		return err.Error(), true
	}
	return req.ClientSoftwareName, true
}
