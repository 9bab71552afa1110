package stack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below 32768, where Linux begins to give out ports to outgoing connections. A port from up there
// could be taken by any connection while its server is down, and a client that dials a dead server on loopback could
// even be connected to itself.
const (
	lowestPort  = 15000
	highestPort = 32000
	portTries   = 200
)

// port is a TCP port of 127.0.0.1 that is ours while its server is down, too: as a sign for other processes that use
// this package we hold the UDP port of the same number, which no server here wants. The kernel frees it when we end.
type port struct {
	number int
	sign   net.PacketConn
}

func reservePort() (port, error) {
	var last error
	for range portTries {
		number := lowestPort + rand.IntN(highestPort-lowestPort)
		address := fmt.Sprintf("127.0.0.1:%d", number)
		sign, err := net.ListenPacket("udp4", address)
		if err != nil {
			last = err
			continue
		}
		l, err := net.Listen("tcp4", address) // does a stranger listen there?
		if err == nil {
			l.Close()
			return port{number: number, sign: sign}, nil
		}
		last = errors.Join(err, sign.Close())
	}
	return port{}, fmt.Errorf("no free loopback port between %d and %d in %d tries: %w", lowestPort, highestPort, portTries, last)
}

func (p port) address() string { return fmt.Sprintf("127.0.0.1:%d", p.number) }

// release gives the port up; twice is as good as once.
func (p *port) release() error {
	if p.sign == nil {
		return nil
	}
	sign := p.sign
	p.sign = nil
	return sign.Close()
}

// Reservation is a loopback address for a server of the caller's own, such as a proxy, that may go and come back.
type Reservation struct{ port port }

// Reserve takes a free port, until Release.
func Reserve() (*Reservation, error) {
	p, err := reservePort()
	if err != nil {
		return nil, err
	}
	return &Reservation{port: p}, nil
}

// Address is host:port.
func (r *Reservation) Address() string { return r.port.address() }

// Release gives the address up; twice is as good as once.
func (r *Reservation) Release() error { return r.port.release() }
