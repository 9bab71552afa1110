// Package listen tells where the HTTP server of a role listens, and what it shows of itself.
//
//   - listen.go: in comes a setting, out goes a listener, and for whoever waits the address
//     once there is one;
//   - tls.go: in come the files of a certificate, out goes a server that has the present one.
package httpserver

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
)

// Point is where one server listens. It serves one listener.
type Point struct {
	who, key, setting string

	begun     atomic.Bool
	listening chan struct{} // closed once addr is set
	addr      string
}

// NewPoint makes a point: who listens, the key of its setting, and what that says, host:port.
func NewPoint(who, key, setting string) *Point {
	return &Point{who: who, key: key, setting: setting, listening: make(chan struct{})}
}

// Listen takes the address that is set.
func (p *Point) Listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", p.setting)
	if err != nil {
		return nil, fmt.Errorf("%s: listening on %s (set %s to a free host:port): %w", p.who, p.setting, p.key, err)
	}
	return ln, nil
}

// Begin comes before everything that serves: a second time is an error.
func (p *Point) Begin() error {
	if p.begun.Swap(true) {
		return fmt.Errorf("%s: Run was called twice", p.who)
	}
	return nil
}

// Tell makes the listener's address known, once.
func (p *Point) Tell(ln net.Listener) {
	p.addr = ln.Addr().String()
	close(p.listening)
}

// Listening is closed once the server listens; Addr is known from then on.
func (p *Point) Listening() <-chan struct{} { return p.listening }

// Addr is the address that the server listens on, host:port, and "" before it does.
func (p *Point) Addr() string {
	select {
	case <-p.listening:
		return p.addr
	default:
		return ""
	}
}
