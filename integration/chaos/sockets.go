package chaos

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// sockets is Linux's list of TCP connections.
const sockets = "/proc/net/tcp"

func hasSockets(*system) bool {
	_, err := os.Stat(sockets)
	return err == nil
}

// connectedTo are the clients that are connected to an address of this machine, by their ports.
func connectedTo(address string) (map[string]bool, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(sockets)
	if err != nil {
		return nil, err
	}
	const established = "01"
	server := fmt.Sprintf(":%04X", number)
	clients := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // number, local address, remote address, state, …
		if len(fields) > 3 && fields[3] == established && strings.HasSuffix(fields[2], server) {
			clients[fields[1]] = true
		}
	}
	return clients, nil
}
