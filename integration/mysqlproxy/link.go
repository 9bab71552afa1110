package mysqlproxy

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// link is one connection through the proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	mu struct {
		sync.Mutex
		cut  bool // the server's next answer is not passed on
		then func(ok bool)
	}
}

// toServer passes on packet by packet, to see the statements go by.
func (l *link) toServer() {
	defer l.proxy.drop(l.client, l.server)
	for {
		packet, err := readPacket(l.client)
		if err != nil {
			return
		}
		v := Verdict{}
		if query, ok := queryOf(packet); ok {
			v = l.proxy.judge(query)
		}
		switch v.step {
		case cutBefore:
			return
		case cutAfter:
			l.mu.Lock()
			l.mu.cut, l.mu.then = true, v.then
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

func (l *link) toClient() {
	defer l.proxy.drop(l.client, l.server)
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		cut, then := l.mu.cut, l.mu.then
		l.mu.Unlock()
		if cut {
			if then != nil {
				then(n > headerLen && buf[headerLen] == answerOK)
			}
			return
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

const (
	headerLen     = 4         // three bytes of size, one of sequence
	maxPacketSize = 1<<24 - 1 // of the size; another packet of the same statement follows
	commandQuery  = 0x03
	answerOK      = 0x00
	answerError   = 0xff
)

// readPacket reads one packet, header included.
func readPacket(r io.Reader) ([]byte, error) {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	packet := append(header, make([]byte, packetSize(header))...)
	_, err := io.ReadFull(r, packet[headerLen:])
	return packet, err
}

func packetSize(header []byte) int {
	return int(header[0]) | int(header[1])<<8 | int(header[2])<<16
}

// queryOf returns the statement in a packet, if there is one. Those of 16 MB and more, which take several packets, pass
// without a verdict.
func queryOf(packet []byte) (query string, ok bool) {
	begins := packet[3] == 0 // sequence 0 begins a command
	if !begins || len(packet) == headerLen || packet[headerLen] != commandQuery || packetSize(packet) == maxPacketSize {
		return "", false
	}
	return string(packet[headerLen+1:]), true
}

func queryPacket(query string) []byte {
	size := 1 + len(query)
	return append([]byte{byte(size), byte(size >> 8), byte(size >> 16), 0, commandQuery}, query...)
}

func errorPacket(number uint16) []byte {
	body := binary.LittleEndian.AppendUint16([]byte{answerError}, number)
	body = append(body, "#HY000by the proxy"...)
	return append([]byte{byte(len(body)), 0, 0, 1}, body...)
}
