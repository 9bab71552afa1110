package mysqlproxy

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second

// server responds OK to each statement, and with an error to those that start with BAD.
type server struct {
	listener net.Listener
	work     sync.WaitGroup

	mu struct {
		sync.Mutex
		queries []string
	}
}

func newServer(t *testing.T) *server {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{listener: listener}
	s.work.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			s.work.Go(func() { s.answer(c) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		s.work.Wait() // the proxy, closed before, has closed the connections
	})
	return s
}

func (s *server) answer(c net.Conn) {
	defer c.Close()
	for {
		packet, err := readPacket(c)
		if err != nil {
			return
		}
		query, _ := queryOf(packet)
		s.mu.Lock()
		s.mu.queries = append(s.mu.queries, query)
		s.mu.Unlock()
		answer := []byte{1, 0, 0, 1, answerOK}
		if strings.HasPrefix(query, "BAD") {
			answer = errorPacket(1064)
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

func (s *server) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.queries
}

func startProxy(t *testing.T) (*Proxy, *server) {
	s := newServer(t)
	p, err := Start("127.0.0.1:0", s.listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, s
}

// ask sends a statement on a new connection, and returns the body of the response.
func ask(t *testing.T, p *Proxy, query string) ([]byte, error) {
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	if _, err := c.Write(queryPacket(query)); err != nil {
		return nil, err
	}
	packet, err := readPacket(c)
	if err != nil {
		return nil, err
	}
	return packet[headerLen:], nil
}

// requireBroken requires a broken connection, whichever side noticed first.
func requireBroken(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection is still open")
}

func TestDecisions(t *testing.T) {
	committed := make(chan bool, 2)
	p, s := startProxy(t)
	p.On(func(query string) Decision {
		switch query {
		case "BEFORE":
			return CutBefore()
		case "AFTER", "BAD AFTER":
			return CutAfter(func(ok bool) { committed <- ok })
		case "REFUSE":
			return Refuse(1213)
		case "REWRITE":
			return Rewrite("REWRITTEN")
		}
		return Decision{}
	})
	answer, err := ask(t, p, "PASS")
	require.NoError(t, err)
	require.Equal(t, []byte{answerOK}, answer)

	_, err = ask(t, p, "BEFORE")
	requireBroken(t, err)
	require.Equal(t, []string{"PASS"}, s.done())

	_, err = ask(t, p, "AFTER")
	requireBroken(t, err)
	require.True(t, <-committed)
	_, err = ask(t, p, "BAD AFTER")
	requireBroken(t, err)
	require.False(t, <-committed)
	require.Equal(t, []string{"PASS", "AFTER", "BAD AFTER"}, s.done())

	answer, err = ask(t, p, "REFUSE")
	require.NoError(t, err)
	require.Equal(t, []byte{answerError, 1213 & 0xff, 1213 >> 8}, answer[:3])
	_, err = ask(t, p, "REWRITE")
	require.NoError(t, err)
	require.Equal(t, []string{"PASS", "AFTER", "BAD AFTER", "REWRITTEN"}, s.done())

	p.On(nil)
	_, err = ask(t, p, "BEFORE")
	require.NoError(t, err)
	require.Equal(t, 7, p.Connections())
}
