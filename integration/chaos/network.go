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

	"kudos/integration/mysqlproxy"
	"kudos/integration/stack"
)

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
		p.Toxics.ResetToxics(context.Background())
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
