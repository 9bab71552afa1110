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

// Reservation is a TCP port of 127.0.0.1 that is ours while its server is down, too: as a sign for other processes that
// use this package we hold the UDP port of the same number, which no server here wants. The kernel frees it at our end.
type Reservation struct {
	number int
	sign   net.PacketConn
}

// Reserve takes a free port, until Release. Its server may be the caller's own, such as a proxy, and go and come back.
func Reserve() (*Reservation, error) {
	var last error
	for range portTries {
		r := &Reservation{number: lowestPort + rand.IntN(highestPort-lowestPort)}
		var err error
		if r.sign, err = net.ListenPacket("udp4", r.Address()); err != nil {
			last = err
			continue
		}
		l, err := net.Listen("tcp4", r.Address()) // does a stranger listen there?
		if err == nil {
			l.Close()
			return r, nil
		}
		last = errors.Join(err, r.Release())
	}
	return nil, fmt.Errorf("no free loopback port between %d and %d in %d tries: %w", lowestPort, highestPort,
		portTries, last)
}

// Address is host:port.
func (r *Reservation) Address() string { return fmt.Sprintf("127.0.0.1:%d", r.number) }

// Release gives the port up, if there is one; twice is as good as once.
func (r *Reservation) Release() error {
	if r == nil || r.sign == nil {
		return nil
	}
	sign := r.sign
	r.sign = nil
	return sign.Close()
}
