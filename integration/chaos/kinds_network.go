package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/mysqlproxy"
	"kudos/integration/stack"
)

// This file is the faults of the network, and the proxies that cause them.

// weather is a network disturbance: toxics, their duration, and how to recognize their effect.
type weather struct {
	toxics []toxic
	d      time.Duration
	slow   time.Duration // the minimum response time; if neither slow nor never is set, connections are closed
	never  bool          // there is no response
}

func latency(f *fault) weather {
	ms := 30 + f.random.IntN(250)
	attributes := map[string]any{"latency": ms, "jitter": ms / 2}
	return weather{toxics: []toxic{{Type: "latency", Stream: f.direction(), Attributes: attributes}},
		d: f.between(time.Second, 5*time.Second), slow: time.Duration(ms/2) * time.Millisecond}
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
	if w.slow == 0 {
		defer f.away()()
	}
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
	if w.slow > 0 { // the proxy holds everything back until its connections have taken notice, for seconds
		defer f.away()()
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

func hasSockets(*system) bool { _, err := os.Stat(sockets); return err == nil }

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
	deadline, _ := ctx.Deadline() // zero: none
	if err := conn.SetDeadline(deadline); err != nil {
		return err
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

const healTimeout = 30 * time.Second

// network is the network between kudos and the servers: a proxy in front of each broker, and two in front of MySQL: the
// first can lose the reply to a COMMIT, the second follows the primary.
//
//	kudos ──► toxiproxy ──► broker             kudos ──► mysqlproxy ──► toxiproxy ──► primary
type network struct {
	brokers []*toxiproxy.Proxy // by node
	mysql   *toxiproxy.Proxy
	commits *mysqlproxy.Proxy
}

// start starts the proxies, those of MySQL at addresses from reserve. Call close even after an error.
func (n *network) start(fronts []stack.Front, primary string, reserve func() (string, error)) error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	for _, f := range fronts {
		p := toxiproxy.NewProxy(server, fmt.Sprintf("node-%d", f.Node), f.Address, f.Behind)
		n.brokers = append(n.brokers, p)
		if err := p.Start(); err != nil {
			return fmt.Errorf("proxy of node %d: %w", f.Node, err)
		}
	}
	inner, err := reserve()
	if err != nil {
		return err
	}
	outer, err := reserve()
	if err != nil {
		return err
	}
	n.mysql = toxiproxy.NewProxy(server, "mysql", inner, primary)
	if err = n.mysql.Start(); err == nil {
		n.commits, err = mysqlproxy.Start(outer, inner)
	}
	if err != nil {
		return fmt.Errorf("proxies of MySQL: %w", err)
	}
	return nil
}

func (n *network) brokerList() []string {
	var list []string
	for _, p := range n.brokers {
		list = append(list, p.Listen)
	}
	return list
}

// pointMySQLTo closes all connections to the old primary; later ones go to the new primary.
func (n *network) pointMySQLTo(primary string) error {
	return n.mysql.Update(&toxiproxy.Proxy{Listen: n.mysql.Listen, Upstream: primary, Enabled: true})
}

func (n *network) close() error {
	if n.commits != nil {
		n.commits.Close()
	}
	for _, p := range n.brokers {
		p.Stop()
	}
	if n.mysql != nil {
		n.mysql.Stop()
	}
	return nil
}

type toxic struct {
	Type       string         `json:"type"`
	Name       string         `json:"name"`
	Stream     string         `json:"stream"` // upstream or downstream
	Attributes map[string]any `json:"attributes"`
}

func (t toxic) String() string { return fmt.Sprintf("%s %s %v", t.Type, t.Stream, t.Attributes) }

// disturb adds toxics to proxies; heal removes them and closes all connections: any that lost bytes would hang forever.
func disturb(proxies []*toxiproxy.Proxy, toxics ...toxic) (heal func() error, err error) {
	heal = func() error {
		var errs []error
		for _, p := range proxies {
			errs = append(errs, healProxy(p))
		}
		return errors.Join(errs...)
	}
	for _, p := range proxies {
		for i, t := range toxics {
			t.Name = fmt.Sprintf("%s-%d", t.Type, i)
			text, err := json.Marshal(t)
			if err == nil {
				_, err = p.Toxics.AddToxicJson(bytes.NewReader(text))
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("add %v to the proxy %s: %w", t, p.Name, err), heal())
			}
		}
	}
	return heal, nil
}

func healProxy(p *toxiproxy.Proxy) error {
	done := make(chan error, 1)
	go func() { // ends once the proxy's connections have ended
		p.Stop()
		// Not ResetToxics: it waits for toxics whose connection was closed while they were writing, forever.
		p.Toxics = toxiproxy.NewToxicCollection(p)
		done <- p.Start()
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("restart the proxy %s: %w", p.Name, err)
		}
		return nil
	case <-time.After(healTimeout):
		return fmt.Errorf("the proxy %s did not recover within %v", p.Name, healTimeout)
	}
}
