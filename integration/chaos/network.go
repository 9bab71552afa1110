package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"kudos/integration/stack"
)

// healTimeout bounds the removal of a toxic from a proxy.
const healTimeout = 30 * time.Second

// network is what lies between our processes and the servers: a proxy in front of each broker, and two in front of
// MySQL, the second of which follows the primary.
//
//	kudos ──► toxiproxy ──► broker             kudos ──► commitProxy ──► toxiproxy ──► primary
type network struct {
	brokers []*toxiproxy.Proxy // by node
	mysql   *toxiproxy.Proxy
	commit  *commitProxy

	reserved []*stack.Reservation
}

func newNetwork(fronts []stack.Front, primary string) (*network, error) {
	n := &network{}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	for _, f := range fronts {
		p := toxiproxy.NewProxy(server, fmt.Sprintf("node-%d", f.Node), f.Address, f.Behind)
		n.brokers = append(n.brokers, p)
		if err := p.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("proxy of node %d: %w", f.Node, err), n.close())
		}
	}
	var at [2]string
	for i := range at {
		r, err := stack.Reserve()
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.reserved = append(n.reserved, r)
		at[i] = r.Address()
	}
	n.mysql = toxiproxy.NewProxy(server, "mysql", at[0], primary)
	err := n.mysql.Start()
	if err == nil {
		n.commit, err = newCommitProxy(at[1], at[0])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("proxies of MySQL: %w", err), n.close())
	}
	return n, nil
}

// brokerList is where our processes find Kafka.
func (n *network) brokerList() []string {
	var list []string
	for _, p := range n.brokers {
		list = append(list, p.Listen)
	}
	return list
}

// mysqlAddress is where they find MySQL.
func (n *network) mysqlAddress() string { return n.commit.Addr() }

// pointMySQLTo cuts all connections to the old primary; new ones go to the new one.
func (n *network) pointMySQLTo(primary string) error {
	return n.mysql.Update(&toxiproxy.Proxy{Listen: n.mysql.Listen, Upstream: primary, Enabled: true})
}

func (n *network) close() error {
	var errs []error
	if n.commit != nil {
		n.commit.Close()
	}
	for _, p := range n.brokers {
		p.Stop()
	}
	if n.mysql != nil {
		n.mysql.Stop()
	}
	for _, r := range n.reserved {
		errs = append(errs, r.Release())
	}
	return errors.Join(errs...)
}

// toxic is one way to disturb a connection, as toxiproxy takes it.
type toxic struct {
	Type       string         `json:"type"`
	Name       string         `json:"name"`
	Stream     string         `json:"stream"` // upstream or downstream
	Attributes map[string]any `json:"attributes"`
}

func (t toxic) String() string { return fmt.Sprintf("%s %s %v", t.Type, t.Stream, t.Attributes) }

// disturb adds toxics to proxies; heal takes them out again. Connections that lost bytes are cut then: they would never
// come to an end by themselves.
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

// healProxy cuts all connections, takes all toxics out and goes on.
func healProxy(p *toxiproxy.Proxy) error {
	done := make(chan error, 1)
	go func() { // ends at the latest when the proxy's connections have
		p.Stop()
		p.Toxics.ResetToxics(context.Background())
		done <- p.Start()
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("start the proxy %s again: %w", p.Name, err)
		}
		return nil
	case <-time.After(healTimeout):
		return fmt.Errorf("the proxy %s did not heal within %v", p.Name, healTimeout)
	}
}
