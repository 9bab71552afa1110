package stack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are below 32768, where Linux starts allocating ports to outgoing connections. Any connection could take a
// higher port while its server is down, and a client that dials a dead server on loopback could even connect to itself.
const (
	lowestPort  = 15000
	highestPort = 32000
	portTries   = 200
)

// Reservation keeps a TCP port of 127.0.0.1 while its server is down: the UDP port of that number, which no server here
// uses, is held as a marker for other processes that use this package. The kernel releases it when this process ends.
type Reservation struct {
	number int
	sign   net.PacketConn
}

// Reserve reserves a free port until Release. Its server may be the caller's own, such as a proxy, and may restart.
func Reserve() (*Reservation, error) {
	var last error
	for range portTries {
		r := &Reservation{number: lowestPort + rand.IntN(highestPort-lowestPort)}
		var err error
		if r.sign, err = net.ListenPacket("udp4", r.Address()); err != nil {
			last = err
			continue
		}
		l, err := net.Listen("tcp4", r.Address()) // fails if another program listens there
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

// Release releases the port, if there is one. It may be called more than once.
func (r *Reservation) Release() error {
	if r == nil || r.sign == nil {
		return nil
	}
	sign := r.sign
	r.sign = nil
	return sign.Close()
}
