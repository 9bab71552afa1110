package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/twmb/franz-go/pkg/kgo"
)

// weather is a network disturbance: toxics, their duration, and how to recognize their effect.
type weather struct {
	toxics []toxic
	d      time.Duration
	// slow is the minimum response time; never: there is no response. Both zero: connections are closed.
	slow  time.Duration
	never bool
}

func latency(f *fault) weather {
	ms := 30 + f.random.IntN(250)
	attributes := map[string]any{"latency": ms, "jitter": ms / 2}
	return weather{
		toxics: []toxic{{Type: "latency", Stream: f.direction(), Attributes: attributes}},
		d:      f.between(time.Second, 5*time.Second), slow: time.Duration(ms/2) * time.Millisecond,
	}
}

// reset ends connections, immediately or after some more bytes: mostly in the middle of a message.
func reset(f *fault) weather {
	t := toxic{Type: "reset_peer", Stream: f.direction(), Attributes: map[string]any{"timeout": f.random.IntN(300)}}
	if f.random.IntN(2) == 0 {
		t = toxic{Type: "limit_data", Stream: f.direction(),
			Attributes: map[string]any{"bytes": 1 + f.random.IntN(8_000)}}
	}
	return weather{toxics: []toxic{t}, d: f.between(700*time.Millisecond, 3*time.Second)}
}

// silence drops what is sent in one direction, or in both.
func silence(f *fault) weather {
	lost := func(stream string) toxic {
		return toxic{Type: "timeout", Stream: stream, Attributes: map[string]any{"timeout": 0}}
	}
	w := weather{toxics: []toxic{lost(f.direction())}, d: f.between(time.Second, 7*time.Second), never: true}
	if f.random.IntN(3) == 0 {
		w.toxics = []toxic{lost("upstream"), lost("downstream")}
	}
	return w
}

func (f *fault) direction() string {
	if f.random.IntN(2) == 0 {
		return "upstream"
	}
	return "downstream"
}

func mysqlNetwork(make func(*fault) weather) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		return f.weather(ctx, make(f), askMySQL, f.sys.network.mysql)
	}
}

func kafkaNetwork(make func(*fault) weather) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		brokers := f.sys.network.brokers
		if f.random.IntN(3) > 0 {
			one := f.random.IntN(len(brokers))
			brokers = brokers[one : one+1]
		}
		return f.weather(ctx, make(f), askBroker, brokers...)
	}
}

// weather disturbs existing connections and verifies the effect: they close, or a response on the path is late or lost.
func (f *fault) weather(
	ctx context.Context, w weather, ask func(context.Context, string) error, proxies ...*toxiproxy.Proxy,
) error {
	names, before := "", make([]map[string]bool, len(proxies))
	for i, p := range proxies {
		var err error
		if before[i], err = connectedTo(p.Listen); err != nil {
			return err
		}
		names += " " + p.Name
	}
	f.on("connections to%s: %v for %v", names, w.toxics, w.d.Round(time.Millisecond))
	heal, err := disturb(proxies, w.toxics...)
	if err != nil {
		return err
	}
	end := time.Now().Add(w.d)
	asking, cancel := context.WithTimeout(ctx, min(w.d, time.Second))
	begin := time.Now()
	err = ask(asking, proxies[0].Listen)
	took := time.Since(begin)
	cancel()
	struck := int64(0)
	switch {
	case w.never && err == nil, w.slow > 0 && (err != nil || took < w.slow):
		err = missed("got a response or an error after %v: %v", took, err)
	default:
		err = nil
	}
	err = errors.Join(err, wait(ctx, time.Until(end)))
	for i, p := range proxies {
		after, e := connectedTo(p.Listen)
		err = errors.Join(err, e)
		for client := range before[i] {
			if w.slow > 0 || w.never || !after[client] {
				struck++
			}
		}
	}
	if e := heal(); e != nil {
		return fmt.Errorf("%s: %w", f.kind.name, e)
	}
	if err == nil && struck == 0 {
		err = missed("no connection was affected")
	}
	if err == nil {
		f.show("connections affected by "+f.kind.name, struck)
	}
	return err
}

const sockets = "/proc/net/tcp"

func hasSockets(*system) bool {
	_, err := os.Stat(sockets)
	return err == nil
}

// connectedTo returns the clients connected to a local address, by port.
func connectedTo(address string) (map[string]bool, error) {
	server, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(sockets)
	if err != nil {
		return nil, err
	}
	const established = "01"
	clients := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // number, local address, remote address, state, …
		if len(fields) > 3 && fields[3] == established &&
			strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", server.Port())) {
			clients[fields[1]] = true
		}
	}
	return clients, nil
}

func askBroker(ctx context.Context, address string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DisableClientMetrics(), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.Ping(ctx)
}

// askMySQL waits for the server's greeting, which starts each connection. The client sends nothing before it, so to
// test the upstream direction askMySQL then sends an invalid reply and waits for the error.
func askMySQL(ctx context.Context, address string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	greeting := make([]byte, 4096)
	if _, err := conn.Read(greeting); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{1, 0, 0, 1, 0}); err != nil {
		return err
	}
	if _, err := conn.Read(greeting); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
