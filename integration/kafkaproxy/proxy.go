// Package kafkaproxy is a test proxy for a Kafka broker: it reads the requests of clients, and can delay, duplicate and
// reorder single ones, as a network may. The broker must advertise the proxy's address (stack.Kafka.Fronts). Of each
// connection it forwards one request at a time, as brokers process them; each must ask for a response.
//
// Protocol: https://kafka.apache.org/protocol#protocol_messages
package kafkaproxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Action is what happens to a request.
type Action int

// The actions. To duplicate a request, or to deliver a held one, call its Send.
const (
	Pass Action = iota
	Hold        // neither it nor what follows on its connection reaches the broker; the client waits until it gives up
	Swap        // the next request on its connection overtakes it, if there is one within overtakeTimeout
)

const overtakeTimeout = 200 * time.Millisecond

// Proxy forwards connections to one broker.
type Proxy struct {
	Swapped atomic.Int64 // requests that were overtaken
	broker  string
	decide  func(*Request) Action
}

// Start listens and forwards connections until end is called, which returns when nothing is left running. decide
// chooses what happens to a request. Calls for different connections are concurrent, and must return before end does.
func Start(listen, broker string, decide func(*Request) Action) (p *Proxy, end func(), err error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, nil, fmt.Errorf("proxy of Kafka: %w", err)
	}
	p = &Proxy{broker: broker, decide: decide}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() { p.serve(ctx, client) })
		}
	})
	return p, func() { cancel(); listener.Close(); work.Wait() }, nil
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { client.Close() })
	broker := dial(ctx, p.broker)
	in := bufio.NewReader(client)
	for broker.err == nil {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		var early []byte // the response to a request that overtakes this one
		switch p.decide(p.parse(frame)) {
		case Hold:
			_, _ = io.Copy(io.Discard, in)
			return
		case Swap:
			_ = client.SetReadDeadline(time.Now().Add(overtakeTimeout))
			_, err := in.Peek(1)
			_ = client.SetReadDeadline(time.Time{})
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if next, err := readFrame(in); err == nil {
				early = broker.exchange(next)
				p.Swapped.Add(1)
			}
		}
		if response := broker.exchange(frame); broker.err == nil {
			_, broker.err = client.Write(append(response, early...))
		}
	}
}

// Request is a client's request.
type Request struct {
	kmsg.Request
	broker string
	frame  []byte
}

func (p *Proxy) parse(frame []byte) *Request {
	r := kbin.Reader{Src: frame[4:]}
	key, version := r.Int16(), r.Int16()
	r.Int32() // correlation id
	r.NullableString()
	req := &Request{kmsg.RequestForKey(key), p.broker, frame}
	req.SetVersion(version)
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	_ = req.ReadFrom(r.Src) // the broker rejects what is invalid
	return req
}

// Send sends the request to the broker on a new connection, and returns the response, which the client does not get.
func (r *Request) Send(ctx context.Context) (kmsg.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	broker := dial(ctx, r.broker)
	frame := broker.exchange(r.frame)
	if broker.err != nil {
		return nil, broker.err
	}
	resp, body := r.ResponseKind(), kbin.Reader{Src: frame[8:]}
	if r.IsFlexible() {
		kmsg.SkipTags(&body)
	}
	return resp, resp.ReadFrom(body.Src)
}

// link is a connection to the broker, until ctx ends or an error occurs.
type link struct {
	conn net.Conn
	err  error
}

func dial(ctx context.Context, address string) (l link) {
	if l.conn, l.err = new(net.Dialer).DialContext(ctx, "tcp", address); l.err == nil {
		context.AfterFunc(ctx, func() { l.conn.Close() })
	}
	return l
}

// exchange sends a request and returns the response, each with its length.
func (l *link) exchange(request []byte) (response []byte) {
	if l.err == nil {
		_, l.err = l.conn.Write(request)
	}
	if l.err == nil {
		response, l.err = readFrame(l.conn)
	}
	return response
}

func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	_, err := io.ReadFull(r, frame)
	if err == nil {
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
		_, err = io.ReadFull(r, frame[4:])
	}
	return frame, err
}
